"""Everything fedsim raises on purpose, in one tree.

    FedsimError                  the root: catch this to catch all of them
    ├── InvalidInput             the caller asked for something impossible; also a ValueError (exit code 2)
    │   └── NotRecorded          the run did not keep what is asked of it
    ├── NonFinite                the numbers left the real line: client, round and a step size to try
    ├── ClientFailed             an exception inside a client's code: client, round and seed
    ├── RuntimeFailed            the machinery that runs jobs gave up: processes, hosts, cluster
    └── CorruptData              bytes that are not what they claim to be: messages, files, checkpoints

    Doubt                        a warning: a figure of a finished run says less than it seems

A message is one sentence that says what is wrong, the value, and what would be right.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any


class FedsimError(Exception):
    """The root of every error that fedsim raises on purpose."""


class InvalidInput(FedsimError, ValueError):
    """The caller asked for something impossible; the message carries the remedy."""


class NotRecorded(InvalidInput, LookupError):
    """The run did not keep what is asked of it; the message says what to set."""


class NonFinite(FedsimError, ArithmeticError):
    """A client or the server produced a NaN or an infinity."""


class Doubt(UserWarning):
    """A figure of a finished run says less than it seems; also in the manifest, under `warnings`."""


class ClientFailed(FedsimError, RuntimeError):
    """A client's own code raised; the cause is chained."""


class RuntimeFailed(FedsimError, RuntimeError):
    """The machinery that runs jobs (processes, hosts, a cluster) gave up."""


class CorruptData(FedsimError, ValueError):
    """Bytes that are not what they claim to be."""


# --- Refusals that many arguments share: `where` is the argument as it was written, {} its value ------


def is_whole(value: Any, least: int = 0) -> bool:
    """Whether a setting is a whole number of at least this: 3, NumPy's 3, 3.0; not True, "3", NaN or 1e300."""
    return _is_real(value) and bool(least <= value <= 2**64 and value == int(value))


def whole(where: str, value: Any, least: int = 1, remedy: str = "") -> int:
    """`value` as an int: `whole("Record(every={})", 0)` refuses Record(every=0)."""
    if not is_whole(value, least):
        remedy = remedy or f"must be a whole number of at least {least}"
        raise InvalidInput(f"{shown(where.format(value))}: {remedy}")
    return int(value)


def positive(where: str, value: Any, zero: bool = False, remedy: str = "") -> float:
    """`value` as a float, if it is a finite number above zero, or zero where that is allowed."""
    try:
        number = float(value) if _is_real(value) else math.nan
    except OverflowError:  # an int of more than 1024 bits
        number = math.inf
    if not (0 <= number < math.inf and (zero or number > 0)):
        remedy = remedy or f"must be {'zero or ' * zero}a positive number"
        raise InvalidInput(f"{shown(where.format(value))}: {remedy}")
    return number


def shown(value: object, longest: int = 100) -> str:
    """A value as part of a sentence: on one line, and cut where it is long."""
    text = " ".join(str(value).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
