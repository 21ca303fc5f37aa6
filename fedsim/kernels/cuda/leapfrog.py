"""Hamiltonian trajectories on a CUDA device: `leapfrog.cu`, launched through the backend `device` (kernels/cuda.py).

The sums over rows of logistic regression are QLSD's, in `qlsd.cu`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.qlsd import minibatch
from fedsim.kernels.cuda.device import Device
from fedsim.kernels.cuda.qlsd import turns
from fedsim.kernels.reference.leapfrog import step_sizes
from fedsim.protocols import StepSizes


def leapfrog_quadratic(
    device: Device, theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array,
    scale: Array, common: float, steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """The twin of `leapfrog_reference.leapfrog_quadratic`: same arguments after the device.

    A thread takes a job where d is small, a coordinate where it is large, and d alone decides.
    """
    (jobs, d), dtype = theta.shape, theta.dtype
    sizes = step_sizes(steps, dtype)
    momenta = _momenta(device, dtype, private, shared, scale, common)
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


def leapfrog_logistic(
    device: Device, theta: Array, x: Array, y: Array, offsets: Array, client: Array, factor: Array, ridge: Array,
    linear: Array | None, rows: Array | None, key: Array | None, private: Array, shared: Array, scale: Array,
    common: float, steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """The twin of `leapfrog_reference.leapfrog_logistic`: same arguments after the device.

    A gradient is three launches: one thread a row of a job, a coordinate of its sum, a coordinate that moves.
    """
    d, dtype = theta.shape[1], theta.dtype
    rows, key = minibatch(offsets, rows, key)
    fresh, size, population = len(key) > 0, rows[client], np.diff(offsets)[client]
    draws = 2 * leapfrog_steps - 1 if fresh else leapfrog_steps
    data, labels, nothing = device.table(x, dtype), device.table(y, dtype), device.empty((0, d), dtype)
    out = np.empty_like(theta)
    for part in turns(size + d, device.SCORES):
        now = device.put(theta[part], dtype)
        shape, count = (np.int64(len(now)), np.int64(d)), int(size[part].sum())
        start = np.concatenate([[0], np.cumsum(size[part])])
        owned = device.table(offsets, np.int64), device.put(client[part], np.int64)
        begins, chosen = (device.put(start, np.int64), np.int32(not fresh)), device.empty(0, np.int64)
        multiple = device.put(factor[part], dtype)
        terms = (
            device.put(ridge[part], dtype), nothing if linear is None else device.put(linear[part], dtype),
            np.int32(linear is not None), *_momenta(device, dtype, private[part], shared[part], scale[part], common),
        )  # fmt: skip
        residual = device.empty(count, dtype)
        sums, momentum, gradient = (device.empty(now.shape, dtype) for _ in range(3))
        for t, sizes in enumerate(step_sizes(steps, dtype)):
            for draw in range(draws):
                if fresh:
                    chosen = device.chosen(key[part], population[part], start, t * draws + draw)
                device.run(
                    "logistic_residuals", dtype, count,
                    shape[0], np.int64(count), shape[1], now, nothing, np.int32(0), data, labels, *owned, chosen,
                    *begins, residual,
                )  # fmt: skip
                device.run(
                    "logistic_gradient", dtype, now.size,
                    *shape, data, *owned, chosen, *begins, residual, multiple, sums,
                )  # fmt: skip
                turn, move = draw > 0 and (draw % 2 == 1 or not fresh), draw % 2 == 0 or not fresh
                device.run(
                    "leapfrog_move", dtype, now.size,
                    *shape, sums, *terms, np.int32(draw == 0), np.int32(turn), np.int32(move), np.int64(t * d), *sizes,
                    momentum, gradient, now,
                )  # fmt: skip
        out[part] = device.get(now)
    return out


def _momenta(
    device: Device, dtype: np.dtype[Any], private: Array, shared: Array, scale: Array, common: float
) -> tuple[Any, ...]:
    return (
        device.put(private, np.uint32), device.put(shared, np.uint32), device.put(scale, dtype),
        np.int32(common < 1), np.int32(common > 0), dtype.type(common),
    )  # fmt: skip
