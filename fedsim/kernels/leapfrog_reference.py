"""The plain NumPy form of the leapfrog kernel: short, slow, and the oracle that the compiled one is held to."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng

Array = npt.NDArray[Any]


def leapfrog_quadratic(
    theta: Array,  # (jobs, d) where each job starts
    hessian: Array,  # (clients, d, d), already divided by the client's weight
    linear: Array,  # (jobs, d), likewise: a job's gradient is hessian[client] @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private momenta
    shared: Array,  # uint32 (jobs, 4) keys of the shared momenta
    scale: Array,  # (jobs,) what multiplies the private momentum
    common: float,  # what multiplies the shared one; 1 leaves the private one out
    steps: Any,  # (T,) step sizes, one for each trajectory
    leapfrog_steps: int,
) -> Array:
    """T Hamiltonian trajectories of every job on its own quadratic potential (FA-HMC, Algorithm 1)."""
    theta = theta.copy()
    d, dtype = theta.shape[1], theta.dtype.type
    h = hessian[client]
    scale = np.asarray(scale, theta.dtype)[:, None]

    def gradient() -> Array:
        out = h[:, 0] * theta[:, :1] - linear
        for i in range(1, d):  # in this order, so that no BLAS decides it
            out = out + h[:, i] * theta[:, i : i + 1]
        return np.asarray(out)

    for t, eta in enumerate(steps):
        p = scale * rng.normal(private, d, t, theta.dtype) if common < 1 else np.zeros_like(theta)
        if common > 0:
            p = dtype(common) * rng.normal(shared, d, t, theta.dtype) + p
        whole, square, half = dtype(eta), dtype(eta * eta / 2), dtype(eta / 2)
        g = gradient()
        theta = theta + whole * p - square * g
        for _ in range(1, leapfrog_steps):
            previous, g = g, gradient()
            p = p - half * (previous + g)
            theta = theta + whole * p - square * g
    return theta
