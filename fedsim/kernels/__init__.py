"""Pure array maths over flat batches of jobs, in three forms that are held to one contract.

`reference` is plain NumPy, `cpu` Numba, `cuda` CuPy. A backend is the module itself: whoever computes holds one and
calls `backend.normal(...)`, `backend.langevin_quadratic(...)`.

Where a kernel's machine code is found. No Numba here: who only wants the words need not load it.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from fedsim.errors import InvalidInput
from fedsim.text import short_repr

if (_set := os.environ.get("NUMBA_DISABLE_JIT", "0")) not in ("", "0"):
    # An `overload` or an intrinsic has no Python body: without the compiler, kernels would leave out what they fill.
    raise InvalidInput(f"NUMBA_DISABLE_JIT={_set}: fedsim needs Numba's compiler; unset the variable")


def backend(name: str) -> Any:
    """The module behind "auto" (the CPU unless a host asks for its GPU), "cpu", "cuda" or "numpy"."""
    if name in ("auto", "cpu"):
        from fedsim.kernels import cpu

        return cpu
    if name == "numpy":
        from fedsim.kernels import reference

        return reference
    if name == "cuda":
        from fedsim.kernels import cuda

        cuda.require_device()
        return cuda
    raise InvalidInput(f"backend={short_repr(name)}: choose 'auto', 'cpu', 'cuda' or 'numpy' (the slow reference)")


class Found(Enum):
    """By how long it takes until it runs."""

    LOADED = "in this process"
    KEPT = "on the disk"
    NOWHERE = "nowhere: it would be compiled"
