"""Everything fedsim raises on purpose, in one tree.

    FedsimError                  the root: catch this to catch all of them
    ├── InvalidInput             the caller asked for something impossible; also a ValueError (exit code 2)
    │   ├── NotRecorded          the run did not keep what is asked of it
    │   └── InUse                another process is at work in the folder
    ├── NonFinite                the numbers left the real line: client, round and a step size to try
    ├── ClientFailed             an exception inside a client's code: client, round and seed
    ├── RuntimeFailed            the machinery that runs jobs gave up: processes, hosts, cluster
    ├── Interrupted              asked to stop, and stopped between two rounds (exit code 130)
    └── CorruptData              bytes that are not what they claim to be: messages, files, checkpoints

    ResultWarning                a warning: a figure of a finished run says less than it seems

A message is one sentence that says what is wrong, the value, and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any


class FedsimError(Exception):
    """The root of every error that fedsim raises on purpose."""


class InvalidInput(FedsimError, ValueError):
    """The caller asked for something impossible; the message carries the remedy."""


class Interrupted(FedsimError):
    """Asked to stop: the round was finished and a checkpoint written, where the run has a folder."""


class NotRecorded(InvalidInput, LookupError):
    """The run did not keep what is asked of it; the message says what to set."""


class InUse(InvalidInput):
    """Another process is at work in the folder; the message says which."""


class NonFinite(FedsimError, ArithmeticError):
    """A client or the server produced a NaN or an infinity."""


class ResultWarning(UserWarning):
    """A figure of a finished run says less than it seems; also in the manifest, under `warnings`."""


class ClientFailed(FedsimError, RuntimeError):
    """A client's own code raised; the cause is chained."""


class RuntimeFailed(FedsimError, RuntimeError):
    """The machinery that runs jobs (processes, hosts, a cluster) gave up."""


class CorruptData(FedsimError, ValueError):
    """Bytes that are not what they claim to be."""


# --- Refusals that many arguments share: `where` is the argument as it was written, {} its value ------


def is_whole(value: Any, least: int = 0, most: int = 2**64) -> bool:
    """Whether a setting is a whole number of at least this: 3, NumPy's 3, 3.0; not True, "3", NaN or 1e300."""
    if not is_real(value):
        return False
    value = value.item() if hasattr(value, "item") else value  # a float16 cannot be compared with 2**64
    return bool(least <= value <= most and value == int(value))


def whole(where: str, value: Any, least: int = 1, remedy: str = "", most: int = 2**64) -> int:
    """`value` as an int: `whole("Record(every={})", 0)` refuses Record(every=0)."""
    if not is_whole(value, least, most):
        upper = f" and at most {most:,}" if most < 2**64 else ""
        raise refusal(where, value, remedy or f"must be a whole number of at least {least}{upper}")
    return int(value)


def positive(where: str, value: object, zero: bool = False, remedy: str = "") -> float:
    """`value` as a float, if it is a finite number above zero, or zero where that is allowed."""
    number = as_float(value)
    if not (0 <= number < math.inf and (zero or number > 0)):
        raise refusal(where, value, remedy or f"must be {'zero or ' * zero}a positive number")
    return number


def number(where: str, value: object, low: float = -math.inf, high: float = math.inf, remedy: str = "") -> float:
    """`value` as a float, if it is a finite number from `low` to `high`."""
    real = as_float(value)
    if not (math.isfinite(real) and low <= real <= high):
        bounds = f"number of at least {low:g}" if high == math.inf else f"number from {low:g} to {high:g}"
        raise refusal(where, value, remedy or f"must be a {bounds if low > -math.inf else 'finite number'}")
    return real


def one_of(where: str, value: object, options: tuple[Any, ...], remedy: str = "") -> Any:
    """`value`, if it is one of these words (or None, where that is among them)."""
    if not (value is None or isinstance(value, str)) or value not in options:
        words = [repr(option) for option in options]
        raise refusal(where, value, remedy or f"choose {', '.join(words[:-1])} or {words[-1]}")
    return value


def flag(where: str, value: object) -> bool:
    """`value`, if it is True or False, NumPy's included."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise refusal(where, value, "give True or False")
    return bool(value)


def refusal(where: str, value: object, remedy: str) -> InvalidInput:
    """The sentence about a value that will not do."""
    return InvalidInput(f"{shown(where.format(_Quoted(value)))}: {remedy}")


def shown(value: object, longest: int = 100) -> str:
    """A value as part of a sentence: on one line, and cut where it is long. Never fails, whatever the value."""
    return _cut(value, str, longest)


def quoted(value: object, longest: int = 100) -> str:
    """The same as its `repr`: text in quotation marks."""
    return _cut(value, repr, longest)


def is_real(value: object) -> bool:
    """A real number, exact or not; truth values and NumPy's durations (which call themselves numbers) are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and type(value).__name__ != "timedelta64"


def as_float(value: object) -> float:
    """A real number as a float, infinite where it has no room; NaN for anything else."""
    try:
        return float(value) if is_real(value) else math.nan  # type: ignore[arg-type]
    except OverflowError:  # an int of more than 1024 bits
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


class _Quoted:
    """Stands for a value in `str.format`, so that neither {} nor {!r} can fail."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __str__(self) -> str:
        return shown(self.value)

    def __repr__(self) -> str:
        return quoted(self.value)


def _cut(value: object, words: Callable[[object], str], longest: int) -> str:
    try:
        text = " ".join(words(value).split())
    except Exception:  # its own __repr__ raised, or an int has more digits than Python writes out
        kind = type(value).__name__
        text = f"<an int of {value.bit_length()} bits>" if isinstance(value, int) else f"<{kind}, which has no words>"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
