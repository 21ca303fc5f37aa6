"""Softmax regression and ReLU networks on the device, as many jobs at a time as fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cuda import device
from fedsim.kernels.cuda.device import empty, get, put, run, table
from fedsim.kernels.cuda.sums import over_rows


def softmax_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """Write the jobs' gradients of softmax regression into `out`; arguments as in `cpu.classification`."""

    def residuals(jobs: int, count: int, where: tuple[Any, ...], z: object) -> None:
        run(
            "softmax_residuals", theta.dtype, count, np.int64(jobs), np.int64(count), np.int64(classes),
            table(y, np.int64), *where, z,
        )  # fmt: skip

    over_rows(theta, x, offsets, client, rows, start, classes, bias, share, residuals, out, scale, shift)


def network_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, widths: Array,
    share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """Write the jobs' gradients of a ReLU network into `out`, layer by layer."""
    dtype, all_rows, i64 = theta.dtype, len(rows) == 0, np.int64
    if all_rows:
        start = np.concatenate([[0], np.cumsum(np.diff(offsets)[client])])
    data, labels, dim = table(x, dtype, scale, shift), table(y, i64), i64(theta.shape[1])
    a = 0
    while a < len(theta):
        most = device.SCORES // int(widths.sum())
        b = max(a + 1, int(np.searchsorted(start, start[a] + most, side="right")) - 1)
        jobs, count = i64(b - a), int(start[b] - start[a])
        parameters, begin = put(theta[a:b], dtype), put(start[a : b + 1] - start[a], i64)
        chosen = put(rows[:0] if all_rows else rows[start[a] : start[b]], i64)
        where = table(offsets, i64), put(client[a:b], i64), chosen, begin, np.int32(all_rows)
        layers, at = [], 0
        below = empty((count, int(widths[0])), dtype)
        run("take_rows", dtype, below.size, jobs, i64(count), i64(widths[0]), data, *where, below)
        for l in range(len(widths) - 1):
            inputs, outputs = i64(widths[l]), i64(widths[l + 1])
            z = empty((count, int(outputs)), dtype)
            rectify = np.int32(l < len(widths) - 2)
            run(
                "layer_forward", dtype, z.size, jobs, i64(count), dim, i64(at), inputs, outputs, rectify, parameters,
                below, begin, z,
            )  # fmt: skip
            layers.append((i64(at), inputs, outputs, below))
            at, below = at + int(inputs * outputs + outputs), z
        run("softmax_residuals", dtype, count, jobs, i64(count), i64(widths[-1]), labels, *where, below)
        result, slope = empty((int(jobs), int(dim)), dtype), below
        for l, (place, inputs, outputs, below) in reversed(list(enumerate(layers))):
            run(
                "layer_sum", dtype, int(jobs * (inputs * outputs + outputs)), jobs, dim, place, inputs, outputs,
                parameters, below, slope, begin, dtype.type(share), result,
            )  # fmt: skip
            if l > 0:
                lower = empty((count, int(inputs)), dtype)
                run(
                    "layer_backward", dtype, lower.size, jobs, i64(count), dim, place, inputs, outputs, parameters,
                    below, slope, begin, lower,
                )  # fmt: skip
                slope = lower
        out[a:b] = get(result)
        a = b
