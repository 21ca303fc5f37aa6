"""Where a kernel's machine code is found. No Numba here: who only wants the words need not load it."""

from __future__ import annotations

from enum import Enum


class Found(Enum):
    """By how long it takes until it runs."""

    LOADED = "in this process"
    KEPT = "on the disk"
    NOWHERE = "nowhere: it would be compiled"
