"""Local Langevin steps in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.protocols.runtime import LangevinSteps


def langevin_quadratic(dim: int) -> LangevinSteps:
    """Return the kernel that takes K Langevin steps of every job on its quadratic potential (FA-LD, equation 7)."""
    return _langevin_quadratic


def _langevin_quadratic(
    theta: Array,  # (jobs, d) start of each job, overwritten by its end
    hessian: Array,  # (clients, d, d), divided by the client's weight
    linear: Array,  # (clients, d), divided likewise: the gradient is hessian @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private noise
    shared: Array,  # uint32 (jobs, 4) keys of the shared noise
    scale: Array,  # (jobs,) factor of the private noise
    correlation: np.floating[Any],
    steps: Array,  # (K,) step sizes eta
    amplitude: Array,  # (K,) sqrt(2 eta temperature)
) -> None:
    d = theta.shape[1]
    h, b = hessian[client], linear[client]
    for k in range(len(steps)):
        gradient = h[:, 0] * theta[:, :1] - b
        for i in range(1, d):  # a fixed order; that of BLAS depends on the machine
            gradient = gradient + h[:, i] * theta[:, i : i + 1]
        noise = np.zeros_like(theta)
        if correlation < 1:
            noise = scale[:, None] * rng.normal(private, d, k, theta.dtype)
        if correlation > 0:
            noise = correlation * rng.normal(shared, d, k, theta.dtype) + noise
        theta[:] = theta - steps[k] * gradient + amplitude[k] * noise
