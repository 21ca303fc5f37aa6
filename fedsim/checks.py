"""Checks of arguments that are more than one number: arrays, paths, and what they would take of the memory."""

from __future__ import annotations

import errno
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import FedsimError, InvalidInput, is_real, quoted, shown

LONGEST = 2**32  # entries: a range may claim to have any number of them


def array_of(value: object) -> Array | None:
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


def floats_of(value: object) -> Array | None:
    """The same in float64, always a copy."""
    array = array_of(value)
    if array is None:
        return None
    with np.errstate(over="ignore"):  # an infinity, which callers refuse where they must
        return np.array(array, np.float64)


def numbers(where: str, value: object, axes: int | None = None, finite: bool = False, remedy: str = "") -> Array:
    """`value` in float64, a copy, with so many axes and without NaN and infinities where that matters."""
    array = floats_of(value)
    if array is None:
        raise InvalidInput(f"{where}={quoted(value)}: {remedy or 'give numbers, in a rectangular array'}")
    if axes is not None and array.ndim != axes:
        shape = remedy or f"give an array with {axes} {'axis' if axes == 1 else 'axes'}"
        raise InvalidInput(f"{where} has shape {array.shape}: {shape}")
    if finite and not np.isfinite(array).all():
        raise InvalidInput(f"{where} holds a NaN or an infinity: give finite numbers")
    return array


def called(where: str, function: Any, *arguments: object) -> Any:
    """What a user's own function returns; if it raises, one sentence says so, and the cause is chained."""
    try:
        return function(*arguments)
    except FedsimError:
        raise
    except Exception as error:
        raise InvalidInput(f"{where} raised {quoted(error)}: mend the function") from error


def path_of(where: str, value: Any) -> Path:
    """`value` as a path that the system could know."""
    try:
        path = Path(os.fsdecode(value))
    except (TypeError, ValueError, UnicodeError):
        raise InvalidInput(f"{where}={quoted(value)}: give a path, as text or a Path") from None
    if "\0" in str(path):
        raise InvalidInput(f"{where}={quoted(value)}: no path holds a NUL character; leave it out")
    try:
        os.lstat(path)
    except UnicodeError:
        raise InvalidInput(f"{where}={quoted(value)}: no file's name can be written so; use proper text") from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise InvalidInput(f"{where}={quoted(value)}: {error.strerror}; give a shorter path") from None
    return path


# --- Memory ---------------------------------------------------------------------------------------------


def refuse_beyond_memory(what: str, size: float, remedy: str) -> None:
    """Refuse what would take more bytes than this machine has free, before anything is allocated."""
    free = free_bytes()
    if size > free:
        raise InvalidInput(f"{shown(what, 160)} would take {in_bytes(size)}, and {in_bytes(free)} are free: {remedy}")


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


def in_bytes(size: float) -> str:
    """A number of bytes for people: 1.6 GB."""
    for unit, name in ((1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:,.3g} {name}"
    return f"{size / 1e3:.3g} kB"
