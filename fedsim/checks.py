"""Checks of arguments that are more than one number: arrays, paths, and what they would take of the memory."""

from __future__ import annotations

import errno
import math
import os
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import FedsimError, InvalidInput
from fedsim.text import in_bytes, short_repr, short_str

LONGEST = 2**32  # entries: a range may claim to have any number of them


# --- One number, word or switch: `where` is the argument as it was written, {} its value ---------------------------


def is_int(value: Any, least: int = 0, most: int = 2**64) -> bool:
    """Whether a setting is an integer of at least this: 3, NumPy's 3, 3.0; not True, "3", NaN or 1e300."""
    if not is_real(value):
        return False
    value = value.item() if hasattr(value, "item") else value  # a float16 cannot be compared with 2**64
    return bool(least <= value <= most and value == int(value))


def check_int(where: str, value: Any, least: int = 1, remedy: str = "", most: int = 2**64) -> int:
    """`value` as an int: `check_int("Record(every={})", 0)` refuses Record(every=0)."""
    if not is_int(value, least, most):
        upper = f" and at most {most:,}" if most < 2**64 else ""
        raise invalid_argument(where, value, remedy or f"must be an integer of at least {least}{upper}")
    return int(value)


def check_positive(where: str, value: object, zero: bool = False, remedy: str = "") -> float:
    """`value` as a float, if it is a finite number above zero, or zero where that is allowed."""
    number = as_float(value)
    if not (0 <= number < math.inf and (zero or number > 0)):
        raise invalid_argument(where, value, remedy or f"must be {'zero or ' * zero}a positive number")
    return number


def check_float(where: str, value: object, low: float = -math.inf, high: float = math.inf, remedy: str = "") -> float:
    """`value` as a float, if it is a finite number from `low` to `high`."""
    real = as_float(value)
    if not (math.isfinite(real) and low <= real <= high):
        bounds = f"number of at least {low:g}" if high == math.inf else f"number from {low:g} to {high:g}"
        raise invalid_argument(where, value, remedy or f"must be a {bounds if low > -math.inf else 'finite number'}")
    return real


def check_choice(where: str, value: object, options: tuple[Any, ...], remedy: str = "") -> Any:
    """`value`, if it is one of these words (or None, where that is among them)."""
    if not (value is None or isinstance(value, str)) or value not in options:
        words = [repr(option) for option in options]
        raise invalid_argument(where, value, remedy or f"choose {', '.join(words[:-1])} or {words[-1]}")
    return value


def check_bool(where: str, value: object) -> bool:
    """`value`, if it is True or False, NumPy's included."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise invalid_argument(where, value, "give True or False")
    return bool(value)


def invalid_argument(where: str, value: object, remedy: str) -> InvalidInput:
    """The sentence about a value that will not do."""
    return InvalidInput(f"{short_str(where.format(_Quoted(value)))}: {remedy}")


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
        return short_str(self.value)

    def __repr__(self) -> str:
        return short_repr(self.value)


# --- Arrays, functions, paths ---------------------------------------------------------------------------------


def as_array(value: object) -> Array | None:
    """`value` as an array of real numbers, not a copy if it is one; None if it is not a rectangle of numbers."""
    if type(value) is np.ndarray and value.dtype.char in "?bhilqBHILQfd":
        return value
    if isinstance(value, range) and len(range(value.start, value.stop, value.step)[:LONGEST]) == LONGEST:
        return None
    if isinstance(value, str | bytes | dict | set) or np.ma.is_masked(value):
        return None
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(value)
            if array.dtype == object:
                array = array.astype(np.float64) if all(map(is_real, array.flat)) else array
            if array.dtype.char in "eg":  # half and long double, which no kernel knows
                array = array.astype(np.float64)
    except Exception:  # whatever a stranger's own conversion raises
        return None
    return array if array.dtype.kind in "biuf" else None


def as_float_array(value: object) -> Array | None:
    """The same in float64, always a copy."""
    array = as_array(value)
    if array is None:
        return None
    with np.errstate(over="ignore"):  # an infinity, which callers refuse where they must
        return np.array(array, np.float64)


def check_array(where: str, value: object, axes: int | None = None, finite: bool = False, remedy: str = "") -> Array:
    """`value` in float64, a copy, with so many axes and without NaN and infinities where that matters."""
    array = as_float_array(value)
    if array is None:
        raise InvalidInput(f"{where}={short_repr(value)}: {remedy or 'give numbers, in a rectangular array'}")
    if axes is not None and array.ndim != axes:
        shape = remedy or f"give an array with {axes} {'axis' if axes == 1 else 'axes'}"
        raise InvalidInput(f"{where} has shape {array.shape}: {shape}")
    if finite and not np.isfinite(array).all():
        raise InvalidInput(f"{where} holds a NaN or an infinity: give finite numbers")
    return array


def call_function(where: str, function: Any, *arguments: object) -> Any:
    """What a user's own function returns; if it raises, one sentence says so, and the cause is chained."""
    try:
        return function(*arguments)
    except FedsimError:
        raise
    except Exception as error:
        raise InvalidInput(f"{where} raised {short_repr(error)}: mend the function") from error


def check_path(where: str, value: Any) -> Path:
    """`value` as a path that the system could know."""
    try:
        path = Path(os.fsdecode(value))
    except (TypeError, ValueError, UnicodeError):
        raise InvalidInput(f"{where}={short_repr(value)}: give a path, as text or a Path") from None
    if "\0" in str(path):
        raise InvalidInput(f"{where}={short_repr(value)}: no path holds a NUL character; leave it out")
    try:
        os.lstat(path)
    except UnicodeError:
        raise InvalidInput(f"{where}={short_repr(value)}: no file's name can be written so; use proper text") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InvalidInput(f"{where}={short_repr(value)}: {error.strerror}; give a shorter path") from None
    return path


# --- Memory ---------------------------------------------------------------------------------------------


def check_allocation(what: str, size: float, remedy: str) -> None:
    """Refuse what would take more bytes than this machine has free, before anything is allocated."""
    free = free_bytes()
    if size > free:
        raise InvalidInput(
            f"{short_str(what, 160)} would take {in_bytes(size)}, and {in_bytes(free)} are free: {remedy}"
        )


def free_bytes() -> float:
    """What may still be allocated: the machine's available memory, or less where a control group says so."""
    free = _meminfo()
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, float(Path(limit).read_text()) - float(Path(used).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return max(free, 2.0**20)


def _meminfo() -> float:
    try:
        with open("/proc/meminfo") as file:
            return next(1024.0 * float(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, ValueError, IndexError, StopIteration):
        return _physical()


@cache
def _physical() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return float("inf")
