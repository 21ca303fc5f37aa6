"""Hamiltonian trajectories on a CUDA device: `leapfrog.cu`, launched through the backend `device` (kernels/cuda.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def leapfrog_quadratic(
    device: Any, theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array,
    scale: Array, common: float, steps: Any, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """The twin of `leapfrog_reference.leapfrog_quadratic`: same arguments after the device.

    A thread takes a job where d is small, a coordinate where it is large, and d alone decides.
    """
    (jobs, d), dtype = theta.shape, theta.dtype
    eta = np.asarray(steps, np.float64)
    sizes = np.stack([eta, eta * eta / 2, eta / 2], axis=1).astype(dtype)
    momenta = (
        device.put(private, np.uint32), device.put(shared, np.uint32), device.put(scale, dtype),
        np.int32(common < 1), np.int32(common > 0), dtype.type(common),
    )  # fmt: skip
    table, clients = device.table(hessian, dtype), device.put(client, np.int64)
    if d <= device.REGISTERS:
        state = device.put(theta.T, dtype)
        device.run(
            "leapfrog_narrow", dtype, jobs,
            np.int64(jobs), state, table, device.put(linear.T, dtype), clients, *momenta,
            np.int32(len(sizes)), device.put(sizes, dtype), np.int32(leapfrog_steps),
            dim=d,
        )  # fmt: skip
        return np.ascontiguousarray(device.get(state).T)
    now, constant = device.put(theta, dtype), device.put(linear, dtype)
    moved, momentum, gradient = (device.empty((jobs, d), dtype) for _ in range(3))
    for t, size in enumerate(sizes):
        for k in range(leapfrog_steps):
            device.run(
                "leapfrog_step", dtype, jobs * d,
                np.int64(jobs), np.int64(d), now, table, constant, clients, *momenta, np.int32(k == 0),
                np.int64(t * d), *size, momentum, gradient, moved,
            )  # fmt: skip
            now, moved = moved, now
    return np.asarray(device.get(now))
