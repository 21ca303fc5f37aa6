"""QLSD's messages on a CUDA device: `qlsd.cu`, launched through the backend `device` (kernels/cuda.py).

`kernels/qlsd.py` says what the arguments are. All numbers of a message stay on the device from the choice of rows to
the count of bits; as many jobs go at a time as fit, and what a job yields does not depend on the jobs beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.qlsd import PLAIN, SINGLE, minibatch
from fedsim.kernels.cpu.qsgd import FIXED
from fedsim.kernels.cuda.device import Device

Results = tuple[Array, Array, Array]
Gradients = Callable[[slice, Any, Any, Any], None]  # of these jobs, from theta and control into the last one


def gaussian_messages(
    device: Device, theta: Array, x: Array, offsets: Array, sums: Array, precision: Array, client: Array,
    rows: Array | None, key: Array | None, terms: tuple[Any, ...], wire: tuple[Any, ...],
) -> Results:  # fmt: skip
    """The twin of `qlsd.gaussian_messages`: same arguments after the device."""
    d, dtype = theta.shape[1], theta.dtype
    controlled = terms[0] is not None
    rows, key = minibatch(offsets, rows, None if controlled else key)
    size = rows[client]

    def gradients(part: slice, theta: Any, control: Any, v: Any) -> None:
        jobs, clients, total = len(v), device.put(client[part], np.int64), device.empty(v.shape, dtype)
        scale = np.ones(jobs)
        if len(key):
            chosen, start, scale = _rows(device, offsets, client[part], size[part], key[part])
            device.run(
                "gaussian_total", dtype, jobs * d,
                np.int64(jobs), np.int64(d), theta, device.table(x, dtype), device.table(offsets, np.int64), clients,
                chosen, start, total,
            )  # fmt: skip
        else:
            device.run(
                "gaussian_whole", dtype, jobs * d,
                np.int64(jobs), np.int64(d), theta, control, np.int32(controlled), device.table(sums, dtype),
                device.table(offsets, np.int64), clients, total,
            )  # fmt: skip
        device.run(
            "gaussian_gradient", dtype, jobs * d,
            np.int64(jobs), np.int64(d), total, device.table(precision, dtype), np.int32(len(precision) == 1),
            np.int32(precision.ndim == 2), clients, device.put(scale, dtype), v,
        )  # fmt: skip

    return _messages(device, theta, size if len(key) else np.zeros_like(client), terms, wire, gradients)


def logistic_messages(
    device: Device, theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None,
    key: Array | None, terms: tuple[Any, ...], wire: tuple[Any, ...],
) -> Results:  # fmt: skip
    """The twin of `qlsd_logistic.logistic_messages`: same arguments after the device."""
    d, dtype = theta.shape[1], theta.dtype
    controlled = terms[0] is not None
    rows, key = minibatch(offsets, rows, key)
    size = rows[client]

    def gradients(part: slice, theta: Any, control: Any, v: Any) -> None:
        jobs, count = len(v), int(size[part].sum())
        chosen, start, scale = _rows(device, offsets, client[part], size[part], key[part])
        where = (
            device.table(offsets, np.int64), device.put(client[part], np.int64), chosen, start,
            np.int32(len(key) == 0),
        )  # fmt: skip
        residual, table = device.empty(count, dtype), device.table(x, dtype)
        device.run(
            "logistic_residuals", dtype, count,
            np.int64(jobs), np.int64(count), np.int64(d), theta, control, np.int32(controlled), table,
            device.table(y, dtype), *where, residual,
        )  # fmt: skip
        device.run(
            "logistic_gradient", dtype, jobs * d,
            np.int64(jobs), np.int64(d), table, *where, residual, device.put(scale, dtype), v,
        )  # fmt: skip

    return _messages(device, theta, size, terms, wire, gradients)


def _rows(device: Device, offsets: Array, client: Array, size: Array, key: Array) -> tuple[Any, Any, Array]:
    """The rows that jobs choose, none without a key; where each job's begin; and n / m."""
    population = np.diff(offsets)[client]
    start = np.concatenate([[0], np.cumsum(size)])
    chosen = device.chosen(key, population, start, 0) if len(key) else device.empty(0, np.int64)
    return chosen, device.put(start, np.int64), population / size


def _messages(
    device: Device, theta: Array, size: Array, terms: tuple[Any, ...], wire: tuple[Any, ...], gradients: Gradients
) -> Results:
    """(sent, bits, kept) of all jobs; `size` is how many rows each of them looks at."""
    control, anchor, memory, rate = terms
    coins, *form = wire
    (jobs, d), dtype = theta.shape, theta.dtype
    sent, bits = np.empty((jobs, d), dtype), np.empty(jobs, np.int64)
    kept = np.empty((0 if memory is None else jobs, d), dtype)
    nothing = device.empty((0, d), dtype)
    for part in turns(size + d, device.SCORES):
        at, centre, base, e = (
            nothing if t is None else device.put(t[part], dtype) for t in (theta, control, anchor, memory)
        )
        count = at.size
        v = device.empty(at.shape, dtype)
        gradients(part, at, centre, v)
        device.run(
            "add_terms", dtype, 0 if anchor is None and memory is None else count,
            np.int64(count), base, np.int32(anchor is not None), e, np.int32(memory is not None), v,
        )  # fmt: skip
        arrived, bits[part] = _sent(device, v, coins[part], *form)
        sent[part] = device.get(arrived)
        if memory is not None:
            new = device.empty(at.shape, dtype)
            device.run("remember", dtype, count, np.int64(count), e, dtype.type(rate), arrived, new)
            kept[part] = device.get(new)
    return sent, bits, kept


def _sent(device: Device, v: Any, coins: Array, levels: int, lengths: Array, form: int) -> tuple[Any, Any]:
    """What arrives of `v`, on the device, and its bits."""
    (jobs, d), dtype = v.shape, v.dtype
    if form == PLAIN:
        return v, 8 * d * dtype.itemsize
    if form == SINGLE:
        device.run("to_single", dtype, v.size, np.int64(v.size), v)
        return v, 32 * d
    column, norm, bits = device.empty((jobs, 8), np.float64), device.empty(jobs, dtype), device.empty(jobs, np.int64)
    shape = np.int64(jobs), np.int64(d)
    device.run("squares", dtype, jobs * 8, *shape, v, column)
    device.run("norms", dtype, jobs, *shape, v, column, np.int64(32 + d * int(lengths[0])), norm, bits)
    counted = form != FIXED
    sizes, arrived = device.empty((d if counted else 0, jobs), np.uint32), device.empty(v.shape, dtype)
    device.run(
        "round_levels", dtype, jobs * -(-d // 4),
        *shape, v, norm, device.put(coins, np.uint32), np.int32(levels), np.int32(counted), sizes, arrived,
    )  # fmt: skip
    if counted:
        device.run("elias_bits", dtype, jobs, *shape, sizes, device.table(lengths, np.int32), np.int32(form), bits)
    return arrived, device.get(bits)


def turns(size: Array, most: int) -> Iterator[slice]:
    """Jobs one after the other, as many at a time as need no more than `most` numbers; at least one."""
    end = np.cumsum(size)
    a = 0
    while a < len(size):
        b = max(a + 1, int(np.searchsorted(end, end[a] - size[a] + most, side="right")))
        yield slice(a, b)
        a = b
