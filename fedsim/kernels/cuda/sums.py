"""Gradients that are sums over rows of data, on the device. Sums of replies are computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.kernels.cpu.sums import segment_sum
from fedsim.kernels.cuda import device
from fedsim.kernels.cuda.device import empty, get, put, run, table
from fedsim.protocols import GradientKernels, PortableGradients, ProblemLike, Rows, call

__all__ = ["gaussian_rows", "gradients", "linear_model", "over_rows", "quadratic_full", "segment_sum"]


def gradients(problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array:
    """Return the clients' sum gradients, by `problem.gradients_by`.

    A problem without it is refused: its gradients would be computed on the CPU although the user chose "cuda".
    """
    from fedsim.kernels import cuda

    if not isinstance(problem, PortableGradients):
        raise InvalidInput(
            f"backend='cuda': the gradients of {type(problem).__name__} have no CUDA kernel "
            "(it has no gradients_by); use backend='cpu'"
        )
    kernels: GradientKernels = cuda
    return np.asarray(call(problem, "gradients_by", kernels, theta, clients, rows))


def quadratic_full(theta: Array, hessian: Array, linear: Array, client: Array, out: Array) -> None:
    """Write hessian_c theta - linear_c into `out`."""
    (jobs, d), dtype = theta.shape, theta.dtype
    result = empty((jobs, d), dtype)
    run(
        "quadratic_full", dtype, jobs * d,
        np.int64(jobs), np.int64(d), put(theta, dtype), table(hessian, dtype), table(linear, dtype),
        put(client, np.int64), result,
    )  # fmt: skip
    out[:] = get(result)


def gaussian_rows(
    theta: Array, x: Array, offsets: Array, precision: Array, client: Array, rows: Array, start: Array,
    share: float, out: Array,
) -> None:  # fmt: skip
    """Sum (P_c + share I) theta - P_c x_row over the chosen rows; precision is (1 or clients, d, d)."""
    (jobs, d), dtype = theta.shape, theta.dtype
    parameters, clients, starts = put(theta, dtype), put(client, np.int64), put(start, np.int64)
    total, result = empty((jobs, d), dtype), empty((jobs, d), dtype)
    run(
        "gaussian_total", dtype, jobs * d,
        np.int64(jobs), np.int64(d), parameters, table(x, dtype), table(offsets, np.int64), clients,
        put(rows, np.int64), starts, total,
    )  # fmt: skip
    run(
        "gaussian_rows", dtype, jobs * d,
        np.int64(jobs), np.int64(d), parameters, total, table(precision, dtype), np.int32(len(precision) == 1),
        clients, starts, dtype.type(share), result,
    )  # fmt: skip
    out[:] = get(result)


def linear_model(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array,
    logistic: bool, scale: float, share: float, out: Array,
) -> None:  # fmt: skip
    """Sum scale (mu(x theta) - y) x + share theta over rows; mu is the identity or the logistic function."""
    dtype = theta.dtype

    def residuals(jobs: int, count: int, where: tuple[Any, ...], z: object) -> None:
        run(
            "residuals", dtype, count, np.int64(jobs), np.int64(count), table(y, dtype), *where,
            np.int32(logistic), dtype.type(scale), z,
        )  # fmt: skip

    over_rows(theta, x, offsets, client, rows, start, 1, False, share, residuals, out)


def over_rows(
    theta: Array, x: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: float, residuals: Callable[..., None], out: Array, scale: Array | None = None,
    shift: Array | None = None,
) -> None:  # fmt: skip
    """Compute the scores of all rows, replace them by `residuals`, then sum over each job's rows.

    The jobs go in parts that fit on the device.
    """
    dtype, all_rows = theta.dtype, len(rows) == 0
    if all_rows:
        start = np.concatenate([[0], np.cumsum(np.diff(offsets)[client])])
    shape = np.int64(x.shape[1]), np.int64(classes), np.int32(bias)
    data = table(x, dtype, scale, shift)
    a = 0
    while a < len(theta):
        b = max(a + 1, int(np.searchsorted(start, start[a] + device.SCORES // classes, side="right")) - 1)
        jobs, count = b - a, int(start[b] - start[a])
        parameters, result = put(theta[a:b], dtype), empty((jobs, theta.shape[1]), dtype)
        chosen = put(rows[:0] if all_rows else rows[start[a] : start[b]], np.int64)
        where = (
            table(offsets, np.int64), put(client[a:b], np.int64), chosen,
            put(start[a : b + 1] - start[a], np.int64), np.int32(all_rows),
        )  # fmt: skip
        z = empty((count, classes), dtype)
        run(
            "scores", dtype, count * classes,
            np.int64(jobs), np.int64(count), *shape, parameters, data, *where, z,
        )  # fmt: skip
        residuals(jobs, count, where, z)
        run(
            "sum_over_rows", dtype, jobs * theta.shape[1],
            np.int64(jobs), *shape, parameters, data, *where, z, dtype.type(share), result,
        )  # fmt: skip
        out[a:b] = get(result)
        a = b
