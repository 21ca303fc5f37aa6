"""Text of values for people: virtual time, bits, bytes, fractions, tables, and objects as the call that makes them."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

DEFAULT_WIDTH = 80  # columns, if the width is unknown
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # and of direction


def width() -> int:
    """Return the width of the terminal, or the environment's COLUMNS."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def printable(value: str) -> str:
    """Return text for a terminal: control characters are shown as escapes, except tabs and line ends."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), value)


def wrapped(line: str, wide: int, indent: int = 0) -> list[str]:
    """Wrap a line to a width; all lines but the first are indented, and long words are not broken."""
    if len(line) <= wide:
        return [line]
    lead = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(), wide, initial_indent=lead, subsequent_indent=" " * max(indent, len(lead)),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def columns(rows: list[list[str]], wide: int, keys: int = 1) -> list[str]:
    """Return a table as lines; its first `keys` columns are repeated if the others need several pages."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pages, used = [list(range(keys))], sum(w + 2 for w in widths[:keys])
    for i in range(keys, len(widths)):
        if used + widths[i] > wide and len(pages[-1]) > keys:
            pages.append(list(range(keys)))
            used = sum(w + 2 for w in widths[:keys])
        pages[-1].append(i)
        used += widths[i] + 2
    return ["  ".join(f"{row[i]:>{widths[i]}}" for i in page) for page in pages for row in rows]


def seconds(value: float) -> str:
    """Return seconds as text: 1h33m, 28m04s, 12.3 s, 4.56 ms."""
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
    """Return bits as text: 955 Mbit, 51.2 kbit, 128 bit."""
    if not math.isfinite(value):
        return "never" if value > 0 else "unknown"
    for unit, name in ((1e12, "Tbit"), (1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g} bit"


def size(value: float) -> str:
    """Return bytes as text: 6.1 MB."""
    for unit, name in ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} B"


def number(value: float) -> str:
    """Return a number with three digits, or an integer with all digits."""
    return f"{value:,.0f}" if abs(value) < 1e9 and value == round(value) else f"{value:.3g}"


def amount(name: str, value: float) -> str:
    """Return a number in the unit of its column's name: seconds, wasted_s, uplink_bits, share."""
    name = name.removesuffix("_to_target")
    if name == "seconds" or name.endswith("_s"):
        return seconds(value)
    if name.endswith("_bits"):
        return bits(value)
    return share(value) if name == "share" else number(value)


def scale(name: str, most: float) -> tuple[float, str]:
    """Return the divisor and unit of an axis up to `most`: 1e6 and Mbit for uplink_bits up to 3e6."""
    name = name.removesuffix("_to_target")
    if name.endswith("_bits"):
        steps = ((1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit"))
        return next((step for step in steps if most >= step[0]), (1.0, "bit"))
    if name == "seconds" or name.endswith("_s"):
        return (3600.0, "hours") if most >= 7200 else (60.0, "minutes") if most >= 180 else (1.0, "seconds")
    return 1.0, ""


def share(value: float) -> str:
    """Return a fraction in per cent; "<1%" and ">99%" are neither 0% nor 100%."""
    percent = 100 * value
    if 0 < percent < 0.5:
        return "<1%"
    return ">99%" if 99.5 <= percent < 100 else f"{percent:.0f}%"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural: 1 round, 2 rounds."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def call_of(value: object) -> str:
    """Return an object as the call that makes it, without default values: FALD(step_size=0.001)."""
    if not is_dataclass(value) or isinstance(value, type):
        return type(value).__name__
    arguments = [f"{f.name}={_short(getattr(value, f.name))}" for f in fields(value) if f.init and _differs(value, f)]
    return f"{type(value).__name__}({', '.join(arguments)})"


def policy(value: object) -> str:
    """Return a policy as the call of its factory: uniform(10, at_least=3)."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(value).__name__).lower()
    given = [f for f in fields(value) if f.init and _differs(value, f)] if is_dataclass(value) else []
    values = [(f.name, _short(getattr(value, f.name))) for f in given]
    positional = [f.name for f in given if not f.kw_only][:1]
    return f"{name}({', '.join(text if n in positional else f'{n}={text}' for n, text in values)})"


def recorded_call(value: object) -> str:
    """Return an object of a manifest as the call that makes it: FALD(step_size=0.001, local_steps=10)."""
    if isinstance(value, dict):
        if "array" in value:
            return f"array{tuple(value['array'])}"
        if "function" in value:
            return str(value["function"])
        arguments = [f"{n}={recorded_call(v)}" for n, v in value.items() if n != "type" and v is not None]
        return f"{value.get('type', '')}({', '.join(arguments)})"
    if isinstance(value, list):
        return f"({', '.join(map(recorded_call, value))})"
    return _short(value)


def _differs(value: object, f: Any) -> bool:
    own, default = getattr(value, f.name), f.default if f.default_factory is MISSING else f.default_factory()
    plain = isinstance(own, bool | int | float | str)  # comparing arrays gives arrays
    return own is not default and not (plain and type(own) is type(default) and own == default)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if is_dataclass(value) and not isinstance(value, type):
        return call_of(value)
    if hasattr(value, "shape"):
        return f"array{tuple(value.shape)}"
    text = str(getattr(value, "__name__", None) or repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def short_str(value: object, longest: int = 100) -> str:
    """Return a value as part of a sentence: on one line, cut if it is long. Never raises."""
    return _cut(value, str, longest)


def short_repr(value: object, longest: int = 100) -> str:
    """Return the `repr` of a value on one line, cut if it is long. Never raises."""
    return _cut(value, repr, longest)


def _cut(value: object, words: Callable[[object], str], longest: int) -> str:
    try:
        text = " ".join(words(value).split())
    except Exception:  # its __repr__ raised, or an int has more digits than Python converts
        kind = type(value).__name__
        text = f"<an int of {value.bit_length()} bits>" if isinstance(value, int) else f"<{kind} without a text>"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
