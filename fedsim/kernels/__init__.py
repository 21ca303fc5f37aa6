"""Array maths over flat batches of jobs, in three backends with one contract: NumPy, Numba and CUDA.

A backend is a module: `kernels.reference`, `kernels.cpu` or `kernels.cuda`. Callers receive one and call
`backend.normal(...)` or `backend.langevin_quadratic(...)`. A file of the same name holds the same maths in each.
This module does not load Numba.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

from fedsim.errors import InvalidInput
from fedsim.text import short_repr

if (_set := os.environ.get("NUMBA_DISABLE_JIT", "0")) not in ("", "0"):
    # An `overload` or an intrinsic has no Python body, so kernels cannot run without the compiler.
    raise InvalidInput(f"NUMBA_DISABLE_JIT={_set}: fedsim needs Numba's compiler; unset the variable")


def backend(name: str) -> Any:
    """Return the module of "auto" (the CPU), "cpu", "cuda" or "numpy"."""
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


class KernelState(Enum):
    """Where a kernel's machine code is, from fast to slow."""

    LOADED = "in this process"
    CACHED = "on disk"
    MISSING = "to be compiled"
