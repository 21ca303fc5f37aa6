"""Memory that arrays give back stays with the process: the next round asks for as much again."""

from __future__ import annotations

import ctypes
import os
from functools import cache

# glibc's names in <malloc.h>, the variables by which a user sets them, and our values in bytes
TRIM_THRESHOLD = (-1, "MALLOC_TRIM_THRESHOLD_", 2**28)  # free memory at the top before it goes back
MMAP_THRESHOLD = (-3, "MALLOC_MMAP_THRESHOLD_", 2**25)  # arrays above it come and go by themselves; glibc's limit


@cache
def keep_freed_memory() -> None:
    """Fresh pages cost as much as the work on them: a sixth of the time of FedAvg on 100 models of 8,000 parameters.

    The user's own variables stand; with another C library nothing is done.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for number, variable, size in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        if variable not in os.environ:
            mallopt(number, size)
