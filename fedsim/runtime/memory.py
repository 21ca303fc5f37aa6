"""Memory: what arrays give back stays with the process, and during a run Python looks for cycles less often."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# glibc's names in <malloc.h>, the variables by which a user sets them, and our values in bytes
TRIM_THRESHOLD = (-1, "MALLOC_TRIM_THRESHOLD_", 2**28)  # free memory at the top before it goes back
MMAP_THRESHOLD = (-3, "MALLOC_MMAP_THRESHOLD_", 2**25)  # arrays above it come and go by themselves; glibc's limit


@cache
def keep_freed_memory() -> None:
    """Fresh pages cost as much as the work on them: a sixth of the time of FedAvg on 100 models of 8,000 parameters.

    From the first run on. The user's own variables stand; with another C library nothing is done.
    """
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for number, variable, size in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        if variable not in os.environ:
            mallopt(number, size)


NEW_OBJECTS = 20_000  # between two looks for cycles; Python's own is 700 or 2,000
_lock = threading.RLock()  # a collection may end a run that was left, inside another's beginning
_thresholds: list[tuple[int, int, int]] = []  # those that each run under way has found


@contextmanager
def rare_collections() -> Iterator[None]:
    """Python's collector takes a quarter of SimPy's time, and finds next to nothing: our rounds leave no cycles.

    A user who has switched it off, or made it still rarer, is left alone.
    """
    first, *others = found = gc.get_threshold()
    ours = (max(first, NEW_OBJECTS) if first else 0, *others)
    with _lock:
        _thresholds.append(found)
        gc.set_threshold(*ours)
    try:
        yield
    finally:
        with _lock:
            found = _thresholds.pop()
            if not _thresholds and gc.get_threshold() == ours:  # else somebody has set it meanwhile
                gc.set_threshold(*found)
