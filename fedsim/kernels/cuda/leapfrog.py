"""Hamiltonian trajectories on the device. The sums over rows of logistic regression are those of `qlsd.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.qlsd import minibatch
from fedsim.kernels.cuda import device
from fedsim.kernels.cuda.device import empty, get, put, run, table
from fedsim.kernels.cuda.draws import choose_rows_on_device
from fedsim.kernels.cuda.qlsd import parts
from fedsim.kernels.reference.leapfrog import step_sizes
from fedsim.protocols import StepSizes


def leapfrog_quadratic(
    theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array,
    scale: Array, common: float, steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """Return the ends of T trajectories of every job on its quadratic potential.

    A thread computes a job for small d and a coordinate for large d; the batch has no influence.
    """
    (jobs, d), dtype = theta.shape, theta.dtype
    sizes = step_sizes(steps, dtype)
    momenta = _momenta(dtype, private, shared, scale, common)
    hessians, clients = table(hessian, dtype), put(client, np.int64)
    if d <= device.REGISTERS:
        state = put(theta.T, dtype)
        run(
            "leapfrog_small_dim", dtype, jobs,
            np.int64(jobs), state, hessians, put(linear.T, dtype), clients, *momenta,
            np.int32(len(sizes)), put(sizes, dtype), np.int32(leapfrog_steps),
            dim=d,
        )  # fmt: skip
        return np.ascontiguousarray(get(state).T)
    now, constant = put(theta, dtype), put(linear, dtype)
    moved, momentum, gradient = (empty((jobs, d), dtype) for _ in range(3))
    for t, size in enumerate(sizes):
        for k in range(leapfrog_steps):
            run(
                "leapfrog_step", dtype, jobs * d,
                np.int64(jobs), np.int64(d), now, hessians, constant, clients, *momenta, np.int32(k == 0),
                np.int64(t * d), *size, momentum, gradient, moved,
            )  # fmt: skip
            now, moved = moved, now
    return np.asarray(get(now))


def leapfrog_logistic(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, factor: Array, ridge: Array,
    linear: Array | None, rows: Array | None, key: Array | None, private: Array, shared: Array, scale: Array,
    common: float, steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """Return the ends of T trajectories of every job on its client's logistic regression.

    A gradient takes three launches: a thread computes a row of a job, then a coordinate of the sum, then a coordinate's
    step.
    """
    d, dtype = theta.shape[1], theta.dtype
    rows, key = minibatch(offsets, rows, key)
    sampled, size, population = len(key) > 0, rows[client], np.diff(offsets)[client]
    draws = 2 * leapfrog_steps - 1 if sampled else leapfrog_steps
    data, labels, nothing = table(x, dtype), table(y, dtype), empty((0, d), dtype)
    out = np.empty_like(theta)
    for part in parts(size + d, device.SCORES):
        now = put(theta[part], dtype)
        shape, count = (np.int64(len(now)), np.int64(d)), int(size[part].sum())
        start = np.concatenate([[0], np.cumsum(size[part])])
        owned = table(offsets, np.int64), put(client[part], np.int64)
        begins, chosen = (put(start, np.int64), np.int32(not sampled)), empty(0, np.int64)
        multiple = put(factor[part], dtype)
        terms = (
            put(ridge[part], dtype), nothing if linear is None else put(linear[part], dtype),
            np.int32(linear is not None), *_momenta(dtype, private[part], shared[part], scale[part], common),
        )  # fmt: skip
        residual = empty(count, dtype)
        sums, momentum, gradient = (empty(now.shape, dtype) for _ in range(3))
        for t, sizes in enumerate(step_sizes(steps, dtype)):
            for draw in range(draws):
                if sampled:
                    chosen = choose_rows_on_device(key[part], population[part], start, t * draws + draw)
                run(
                    "logistic_residuals", dtype, count,
                    shape[0], np.int64(count), shape[1], now, nothing, np.int32(0), data, labels, *owned, chosen,
                    *begins, residual,
                )  # fmt: skip
                run(
                    "logistic_gradient", dtype, now.size,
                    *shape, data, *owned, chosen, *begins, residual, multiple, sums,
                )  # fmt: skip
                turn, move = draw > 0 and (draw % 2 == 1 or not sampled), draw % 2 == 0 or not sampled
                run(
                    "leapfrog_move", dtype, now.size,
                    *shape, sums, *terms, np.int32(draw == 0), np.int32(turn), np.int32(move), np.int64(t * d), *sizes,
                    momentum, gradient, now,
                )  # fmt: skip
        out[part] = get(now)
    return out


def _momenta(dtype: np.dtype[Any], private: Array, shared: Array, scale: Array, common: float) -> tuple[Any, ...]:
    return (
        put(private, np.uint32), put(shared, np.uint32), put(scale, dtype),
        np.int32(common < 1), np.int32(common > 0), dtype.type(common),
    )  # fmt: skip
