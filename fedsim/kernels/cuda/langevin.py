"""Local Langevin steps on the device, one thread a job."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cuda.device import REGISTERS, empty, get, put, run, table
from fedsim.protocols.runtime import LangevinSteps


def langevin_quadratic(dim: int) -> LangevinSteps:
    """Return the kernel that takes K Langevin steps of every job; arguments as in `reference.langevin`."""
    return _langevin_quadratic


def _langevin_quadratic(
    theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array, scale: Array,
    correlation: np.floating[Any], steps: Array, amplitude: Array,
) -> None:  # fmt: skip
    jobs, d = theta.shape
    dtype = theta.dtype
    state, scratch = put(theta.T, dtype), empty((0 if d <= REGISTERS else d, jobs), dtype)
    run(
        "langevin_quadratic", dtype, jobs,
        np.int64(jobs), np.int32(d), state, scratch, table(hessian, dtype), table(linear, dtype),
        put(client, np.int64), put(private, np.uint32), put(shared, np.uint32), put(scale, dtype),
        np.int32(correlation < 1), np.int32(correlation > 0), correlation,
        np.int32(len(steps)), put(steps, dtype), put(amplitude, dtype),
        dim=d if d <= REGISTERS else 0,
    )  # fmt: skip
    theta[:] = get(state).T
