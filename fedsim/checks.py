"""Checks of arguments: numbers, words, switches, arrays, functions, paths and their need of memory."""

from __future__ import annotations

import errno
import math
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import text
from fedsim.arrays import Array
from fedsim.errors import FedsimError, InvalidInput
from fedsim.text import short_repr, short_str

MAX_RANGE = 2**32  # entries of a range


# --- One number, word or switch: `where` is the argument as written, with {} for its value ----------------------------


def is_int(value: Any, least: int = 0, most: int = 2**64) -> bool:
    """Return whether a value is an integer in bounds: 3, NumPy's 3 or 3.0; not True, "3", NaN or 1e300."""
    if not is_real(value):
        return False
    value = value.item() if hasattr(value, "item") else value  # a float16 cannot be compared with 2**64
    return bool(least <= value <= most and value == int(value))


def check_int(where: str, value: Any, least: int = 1, remedy: str = "", most: int = 2**64) -> int:
    """Return `value` as an int: `check_int("Record(every={})", 0)` refuses Record(every=0)."""
    if not is_int(value, least, most):
        upper = f" and at most {most:,}" if most < 2**64 else ""
        raise invalid_argument(where, value, remedy or f"must be an integer of at least {least}{upper}")
    return int(value)


def check_positive(where: str, value: object, zero: bool = False, remedy: str = "") -> float:
    """Return `value` as a float if it is finite and positive, or zero if that is allowed."""
    number = as_float(value)
    if not (0 <= number < math.inf and (zero or number > 0)):
        raise invalid_argument(where, value, remedy or f"must be {'zero or ' * zero}a positive number")
    return number


def check_float(where: str, value: object, low: float = -math.inf, high: float = math.inf, remedy: str = "") -> float:
    """Return `value` as a float if it is finite and from `low` to `high`."""
    real = as_float(value)
    if not (math.isfinite(real) and low <= real <= high):
        bounds = f"number of at least {low:g}" if high == math.inf else f"number from {low:g} to {high:g}"
        raise invalid_argument(where, value, remedy or f"must be a {bounds if low > -math.inf else 'finite number'}")
    return real


def check_choice(where: str, value: object, options: tuple[Any, ...], remedy: str = "") -> Any:
    """Return `value` if it is one of the options, which are strings or None."""
    if not (value is None or isinstance(value, str)) or value not in options:
        words = [repr(option) for option in options]
        raise invalid_argument(where, value, remedy or f"choose {', '.join(words[:-1])} or {words[-1]}")
    return value


def check_bool(where: str, value: object) -> bool:
    """Return `value` if it is True or False, NumPy's included."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise invalid_argument(where, value, "give True or False")
    return bool(value)


def check_name(where: str, value: object, remedy: str) -> str:
    """Return a printable, non-empty string."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise invalid_argument(where, value, remedy)
    return value


def check_counts(factory: str, part: Any, *names: str) -> None:
    """Store fields of a frozen dataclass as integers of at least 1; None is allowed in all but its first field."""
    first = fields(part)[0].name
    for name in names:
        value = getattr(part, name)
        if value is not None or name == first:
            where = f"{factory}({{}})" if name == first else f"{factory}({name}={{}})"
            object.__setattr__(part, name, check_int(where, value, remedy="give an integer of at least 1"))


def check_cohort(factory: str, size: int | None, at_least: int | None, clients: int) -> None:
    """Refuse to select, or to wait for, more clients than exist."""
    for name, count in (("", size), ("at_least=", at_least)):
        if count is not None and count > clients:
            raise InvalidInput(f"{factory}({name}{count}): only {clients} clients exist; use at most {clients}")


def invalid_argument(where: str, value: object, remedy: str) -> InvalidInput:
    """Return the exception for an invalid value."""
    return InvalidInput(f"{short_str(where.format(_Quoted(value)))}: {remedy}")


def is_real(value: object) -> bool:
    """Return whether a value is a real number, which bool and NumPy's timedelta64 are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and type(value).__name__ != "timedelta64"


def as_float(value: object) -> float:
    """Return a real number as a float, infinite on overflow; NaN for anything else."""
    try:
        return float(value) if is_real(value) else math.nan  # type: ignore[arg-type]
    except OverflowError:  # an int of more than 1024 bits
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


class _Quoted:
    """A value in `str.format` for which neither {} nor {!r} can fail."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __str__(self) -> str:
        return short_str(self.value)

    def __repr__(self) -> str:
        return short_repr(self.value)


# --- Arrays, functions, paths ---------------------------------------------------------------------------------


def as_array(value: object) -> Array | None:
    """Return `value` as an array of real numbers, without a copy if it is one; None if it is not rectangular."""
    if type(value) is np.ndarray and value.dtype.char in "?bhilqBHILQfd":
        return value
    if isinstance(value, range) and len(range(value.start, value.stop, value.step)[:MAX_RANGE]) == MAX_RANGE:
        return None
    if isinstance(value, str | bytes | dict | set) or np.ma.is_masked(value):
        return None
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(value)
            if array.dtype == object:
                array = array.astype(np.float64) if all(map(is_real, array.flat)) else array
            if array.dtype.char in "eg":  # no kernel supports half and long double
                array = array.astype(np.float64)
    except Exception:  # a user's own conversion may raise anything
        return None
    return array if array.dtype.kind in "biuf" else None


def as_float_array(value: object) -> Array | None:
    """Return `value` as a float64 array, always a copy; None if it is not rectangular."""
    array = as_array(value)
    if array is None:
        return None
    with np.errstate(over="ignore"):  # callers refuse an infinity if necessary
        return np.array(array, np.float64)


def check_array(where: str, value: object, axes: int | None = None, finite: bool = False, remedy: str = "") -> Array:
    """Return a copy of `value` in float64 with this number of axes, and without NaN and infinities if `finite`."""
    array = as_float_array(value)
    if array is None:
        raise InvalidInput(f"{where}={short_repr(value)}: {remedy or 'give numbers, in a rectangular array'}")
    if axes is not None and array.ndim != axes:
        shape = remedy or f"give an array with {axes} {'axis' if axes == 1 else 'axes'}"
        raise InvalidInput(f"{where} has shape {array.shape}: {shape}")
    if finite and not np.isfinite(array).all():
        raise InvalidInput(f"{where} contains a NaN or an infinity: give finite numbers")
    return array


def call_function(where: str, function: Callable[..., Any], *arguments: object, **named: object) -> Any:
    """Return the value of a user's function; if it raises, refuse it."""
    return call_users_code(lambda what: InvalidInput(f"{where} {what}"), function, *arguments, **named)


def call_users_code(
    failed: Callable[[str], FedsimError], function: Callable[..., Any], *arguments: object, **named: object
) -> Any:
    """Return the value of a user's function, the only call of any; `failed` makes the error that its own becomes."""
    try:
        return function(*arguments, **named)
    except FedsimError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # sys.exit() would end a host, or the program, silently
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # Ctrl-C, which only the main thread receives
        if isinstance(error, ValueError) and "read-only" in str(error):  # NumPy's refusal to change an array
            raise failed("changed an array in place that it received; work on a copy: theta = theta + step") from error
        raise failed(f"raised {type(error).__name__}: {short_str(error, 300)}") from error


def users_traceback(error: BaseException) -> list[str]:
    """Return the lines of the traceback in the user's code that an error comes from; none for sys.exit()."""
    cause: BaseException | None = error
    while cause is not None:
        frames = traceback.extract_tb(cause.__traceback__)
        calls = [i for i, frame in enumerate(frames) if (frame.filename, frame.name) == (__file__, "call_users_code")]
        if not isinstance(cause, FedsimError | SystemExit) and calls and calls[-1] + 1 < len(frames):
            return "".join(traceback.format_list(frames[calls[-1] + 1 :])).splitlines()
        cause = cause.__cause__
    return []


def check_path(where: str, value: Any) -> Path:
    """Return `value` as a path that is valid for the operating system."""
    try:
        path = Path(os.fsdecode(value))
    except (TypeError, ValueError, UnicodeError):
        raise InvalidInput(f"{where}={short_repr(value)}: give a path, as text or a Path") from None
    if "\0" in str(path):
        raise InvalidInput(f"{where}={short_repr(value)}: a path has no NUL character; leave it out")
    try:
        os.lstat(path)
    except UnicodeError:
        raise InvalidInput(f"{where}={short_repr(value)}: not a valid file name; use Unicode text") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InvalidInput(f"{where}={short_repr(value)}: {error.strerror}; give a shorter path") from None
    return path


# --- Memory ---------------------------------------------------------------------------------------------


def check_allocation(what: str, size: float, remedy: str) -> None:
    """Refuse an allocation of more bytes than are free on this machine."""
    free = free_bytes()
    if size > free:
        raise InvalidInput(
            f"{short_str(what, 160)} would take {text.size(size)}, and {text.size(free)} are free: {remedy}"
        )


def free_bytes() -> float:
    """Return the bytes that may be allocated: the machine's available memory, or the control group's if less."""
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
