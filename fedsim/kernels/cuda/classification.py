"""ReLU networks on the device: `network.cu`, layer by layer, over as many jobs at a time as fit."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cuda.device import Device


def network_gradient(
    device: Device, theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array,
    widths: Array, share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """The twin of `network.network_gradient`."""
    dtype, whole, run, i64 = theta.dtype, len(rows) == 0, device.run, np.int64
    if whole:
        start = np.concatenate([[0], np.cumsum(np.diff(offsets)[client])])
    data, labels, dim = device.table(x, dtype, scale, shift), device.table(y, i64), i64(theta.shape[1])
    a = 0
    while a < len(theta):
        room = device.SCORES // int(widths.sum())
        b = max(a + 1, int(np.searchsorted(start, start[a] + room, side="right")) - 1)
        jobs, count = i64(b - a), int(start[b] - start[a])
        parameters, begin = device.put(theta[a:b], dtype), device.put(start[a : b + 1] - start[a], i64)
        chosen = device.put(rows[:0] if whole else rows[start[a] : start[b]], i64)
        where = device.table(offsets, i64), device.put(client[a:b], i64), chosen, begin, np.int32(whole)
        layers, at = [], 0
        below = device.empty((count, int(widths[0])), dtype)
        run("take_rows", dtype, below.size, jobs, i64(count), i64(widths[0]), data, *where, below)
        for l in range(len(widths) - 1):
            wide, high = i64(widths[l]), i64(widths[l + 1])
            z = device.empty((count, int(high)), dtype)
            rectify = np.int32(l < len(widths) - 2)
            run(
                "layer_forward", dtype, z.size, jobs, i64(count), dim, i64(at), wide, high, rectify, parameters, below,
                begin, z,
            )  # fmt: skip
            layers.append((i64(at), wide, high, below))
            at, below = at + int(wide * high + high), z
        run("softmax_residuals", dtype, count, jobs, i64(count), i64(widths[-1]), labels, *where, below)
        result, slope = device.empty((int(jobs), int(dim)), dtype), below
        for l, (place, wide, high, below) in reversed(list(enumerate(layers))):
            run(
                "layer_sum", dtype, int(jobs * (wide * high + high)), jobs, dim, place, wide, high, parameters, below,
                slope, begin, dtype.type(share), result,
            )  # fmt: skip
            if l > 0:
                lower = device.empty((count, int(wide)), dtype)
                run(
                    "layer_backward", dtype, lower.size, jobs, i64(count), dim, place, wide, high, parameters, below,
                    slope, begin, lower,
                )  # fmt: skip
                slope = lower
        out[a:b] = device.get(result)
        a = b
