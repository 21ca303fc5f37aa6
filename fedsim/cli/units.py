"""Numbers for the eye: virtual time, bits, shares, and objects as the call that makes them."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def seconds(value: float) -> str:
    """1h33m, 28m04s, 12.3 s, 4.56 ms."""
    if not math.isfinite(value):
        return "never" if value > 0 else "unknown"
    if value >= 3600:
        minutes = round(value / 60)
        return f"{minutes // 60:,}h{minutes % 60:02}m"
    if value >= 60:
        return f"{round(value) // 60}m{round(value) % 60:02}s"
    if value == 0 or value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def bits(value: float) -> str:
    """955 Mbit, 51.2 kbit, 128 bit."""
    for unit, name in ((1e12, "Tbit"), (1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g} bit"


def size(value: float) -> str:
    """Bytes on a disk: 6.1 MB."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


def number(value: float) -> str:
    """Three digits are enough."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e9 else f"{value:.3g}"


def share(value: float) -> str:
    """A fraction in per cent; a little is never shown as nothing, nor nearly all as all."""
    percent = 100 * value
    if 0 < percent < 0.5:
        return "<1%"
    return ">99%" if 99.5 <= percent < 100 else f"{percent:.0f}%"


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def called(value: Any) -> str:
    """An object as the call that makes it, with what differs from the defaults: FALD(step_size=0.001)."""
    if not is_dataclass(value) or isinstance(value, type):
        return type(value).__name__
    told = [f"{f.name}={_short(getattr(value, f.name))}" for f in fields(value) if f.init and _differs(value, f)]
    return f"{type(value).__name__}({', '.join(told)})"


def policy(value: Any) -> str:
    """A policy by the name of its factory: with_replacement(draws=5)."""
    name, bracket, rest = called(value).partition("(")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() + bracket + rest


def _differs(value: Any, f: Any) -> bool:
    own, default = getattr(value, f.name), f.default if f.default_factory is MISSING else f.default_factory()
    plain = isinstance(own, bool | int | float | str)  # arrays do not compare to one truth
    return own is not default and not (plain and type(own) is type(default) and own == default)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if is_dataclass(value) and not isinstance(value, type):
        return called(value)
    if hasattr(value, "shape"):
        return f"array{tuple(value.shape)}"
    text = str(getattr(value, "__name__", None) or repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."
