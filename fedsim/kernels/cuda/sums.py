"""Gradients that are sums over rows, on the device: the twins of `gradients.linear_model` and of `softmax`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cuda.device import Device


def linear_model(
    device: Device, theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array,
    logistic: bool, scale: float, share: float, out: Array,
) -> None:  # fmt: skip
    dtype = theta.dtype

    def residuals(jobs: int, count: int, where: tuple[Any, ...], z: object) -> None:
        device.run(
            "residuals", dtype, count, np.int64(jobs), np.int64(count), device.table(y, dtype), *where,
            np.int32(logistic), dtype.type(scale), z,
        )  # fmt: skip

    _over_rows(device, theta, x, offsets, client, rows, start, 1, False, share, residuals, out)


def softmax_gradient(
    device: Device, theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array,
    classes: int, bias: bool, share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    def residuals(jobs: int, count: int, where: tuple[Any, ...], z: object) -> None:
        device.run(
            "softmax_residuals", theta.dtype, count, np.int64(jobs), np.int64(count), np.int64(classes),
            device.table(y, np.int64), *where, z,
        )  # fmt: skip

    _over_rows(device, theta, x, offsets, client, rows, start, classes, bias, share, residuals, out, scale, shift)


def _over_rows(
    device: Device, theta: Array, x: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: float, residuals: Callable[..., None], out: Array, scale: Array | None = None,
    shift: Array | None = None,
) -> None:  # fmt: skip
    """Scores of all rows, `residuals` in their place, then each job's sum; as many jobs at a time as fit."""
    dtype, whole = theta.dtype, len(rows) == 0
    if whole:
        start = np.concatenate([[0], np.cumsum(np.diff(offsets)[client])])
    shape = np.int64(x.shape[1]), np.int64(classes), np.int32(bias)
    data = device.table(x, dtype, scale, shift)
    a = 0
    while a < len(theta):
        b = max(a + 1, int(np.searchsorted(start, start[a] + device.SCORES // classes, side="right")) - 1)
        jobs, count = b - a, int(start[b] - start[a])
        parameters, result = device.put(theta[a:b], dtype), device.empty((jobs, theta.shape[1]), dtype)
        chosen = device.put(rows[:0] if whole else rows[start[a] : start[b]], np.int64)
        where = (
            device.table(offsets, np.int64), device.put(client[a:b], np.int64), chosen,
            device.put(start[a : b + 1] - start[a], np.int64), np.int32(whole),
        )  # fmt: skip
        z = device.empty((count, classes), dtype)
        device.run(
            "scores", dtype, count * classes,
            np.int64(jobs), np.int64(count), *shape, parameters, data, *where, z,
        )  # fmt: skip
        residuals(jobs, count, where, z)
        device.run(
            "sum_over_rows", dtype, jobs * theta.shape[1],
            np.int64(jobs), *shape, parameters, data, *where, z, dtype.type(share), result,
        )  # fmt: skip
        out[a:b] = device.get(result)
        a = b
