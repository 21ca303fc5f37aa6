"""QLSD's messages on the device; arguments as in `cpu.qlsd`.

All numbers of a message stay on the device from the choice of rows to the count of bits. The jobs go in parts that fit
on the device; the result of a job does not depend on other jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.qlsd import PLAIN, SINGLE, minibatch, wire_form
from fedsim.kernels.cpu.qsgd import FIXED
from fedsim.kernels.cuda import device
from fedsim.kernels.cuda.device import empty, get, put, run, table
from fedsim.kernels.cuda.draws import choose_rows_on_device

__all__ = ["gaussian_messages", "logistic_messages", "parts", "wire_form"]

Results = tuple[Array, Array, Array]
Gradients = Callable[[slice, Any, Any, Any], None]  # jobs, theta, control; the result is written to the last


def gaussian_messages(
    theta: Array, x: Array, offsets: Array, sums: Array, precision: Array, client: Array,
    rows: Array | None, key: Array | None, terms: tuple[Any, ...], wire: tuple[Any, ...],
) -> Results:  # fmt: skip
    """Return (sent, bits, memory) for gradients that are sums of P (theta - x_row)."""
    d, dtype = theta.shape[1], theta.dtype
    controlled = terms[0] is not None
    rows, key = minibatch(offsets, rows, None if controlled else key)
    size = rows[client]

    def gradients(part: slice, theta: Any, control: Any, v: Any) -> None:
        jobs, clients, total = len(v), put(client[part], np.int64), empty(v.shape, dtype)
        scale = np.ones(jobs)
        if len(key):
            chosen, start, scale = _rows(offsets, client[part], size[part], key[part])
            run(
                "gaussian_total", dtype, jobs * d,
                np.int64(jobs), np.int64(d), theta, table(x, dtype), table(offsets, np.int64), clients,
                chosen, start, total,
            )  # fmt: skip
        else:
            run(
                "gaussian_all_rows", dtype, jobs * d,
                np.int64(jobs), np.int64(d), theta, control, np.int32(controlled), table(sums, dtype),
                table(offsets, np.int64), clients, total,
            )  # fmt: skip
        run(
            "gaussian_gradient", dtype, jobs * d,
            np.int64(jobs), np.int64(d), total, table(precision, dtype), np.int32(len(precision) == 1),
            np.int32(precision.ndim == 2), clients, put(scale, dtype), v,
        )  # fmt: skip

    return _messages(theta, size if len(key) else np.zeros_like(client), terms, wire, gradients)


def logistic_messages(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None,
    key: Array | None, terms: tuple[Any, ...], wire: tuple[Any, ...],
) -> Results:  # fmt: skip
    """Return (sent, bits, memory) for sums of (1 / (1 + exp(-x_row theta)) - y_row) x_row."""
    d, dtype = theta.shape[1], theta.dtype
    controlled = terms[0] is not None
    rows, key = minibatch(offsets, rows, key)
    size = rows[client]

    def gradients(part: slice, theta: Any, control: Any, v: Any) -> None:
        jobs, count = len(v), int(size[part].sum())
        chosen, start, scale = _rows(offsets, client[part], size[part], key[part])
        where = (
            table(offsets, np.int64), put(client[part], np.int64), chosen, start,
            np.int32(len(key) == 0),
        )  # fmt: skip
        residual, data = empty(count, dtype), table(x, dtype)
        run(
            "logistic_residuals", dtype, count,
            np.int64(jobs), np.int64(count), np.int64(d), theta, control, np.int32(controlled), data,
            table(y, dtype), *where, residual,
        )  # fmt: skip
        run(
            "logistic_gradient", dtype, jobs * d,
            np.int64(jobs), np.int64(d), data, *where, residual, put(scale, dtype), v,
        )  # fmt: skip

    return _messages(theta, size, terms, wire, gradients)


def _rows(offsets: Array, client: Array, size: Array, key: Array) -> tuple[Any, Any, Array]:
    """Return the chosen rows (none without a key), where each job's rows begin, and n / m."""
    population = np.diff(offsets)[client]
    start = np.concatenate([[0], np.cumsum(size)])
    chosen = choose_rows_on_device(key, population, start, 0) if len(key) else empty(0, np.int64)
    return chosen, put(start, np.int64), population / size


def _messages(
    theta: Array, size: Array, terms: tuple[Any, ...], wire: tuple[Any, ...], gradients: Gradients
) -> Results:
    """Return (sent, bits, memory) of all jobs; `size` is the number of rows of each job."""
    control, anchor, memory, rate = terms
    coins, *form = wire
    (jobs, d), dtype = theta.shape, theta.dtype
    sent, bits = np.empty((jobs, d), dtype), np.empty(jobs, np.int64)
    updated = np.empty((0 if memory is None else jobs, d), dtype)
    nothing = empty((0, d), dtype)
    for part in parts(size + d, device.SCORES):
        at, centre, base, e = (nothing if t is None else put(t[part], dtype) for t in (theta, control, anchor, memory))
        count = at.size
        v = empty(at.shape, dtype)
        gradients(part, at, centre, v)
        run(
            "add_terms", dtype, 0 if anchor is None and memory is None else count,
            np.int64(count), base, np.int32(anchor is not None), e, np.int32(memory is not None), v,
        )  # fmt: skip
        arrived, bits[part] = _sent(v, coins[part], *form)
        sent[part] = get(arrived)
        if memory is not None:
            new = empty(at.shape, dtype)
            run("update_memory", dtype, count, np.int64(count), e, dtype.type(rate), arrived, new)
            updated[part] = get(new)
    return sent, bits, updated


def _sent(v: Any, coins: Array, levels: int, lengths: Array, form: int) -> tuple[Any, Any]:
    """Return the decoded messages of `v`, on the device, and their bits."""
    (jobs, d), dtype = v.shape, v.dtype
    if form == PLAIN:
        return v, 8 * d * dtype.itemsize
    if form == SINGLE:
        run("to_single", dtype, v.size, np.int64(v.size), v)
        return v, 32 * d
    column, norm, bits = empty((jobs, 8), np.float64), empty(jobs, dtype), empty(jobs, np.int64)
    shape = np.int64(jobs), np.int64(d)
    run("squares", dtype, jobs * 8, *shape, v, column)
    run("norms", dtype, jobs, *shape, v, column, np.int64(32 + d * int(lengths[0])), norm, bits)
    counted = form != FIXED
    sizes, arrived = empty((d if counted else 0, jobs), np.uint32), empty(v.shape, dtype)
    run(
        "round_levels", dtype, jobs * -(-d // 4),
        *shape, v, norm, put(coins, np.uint32), np.int32(levels), np.int32(counted), sizes, arrived,
    )  # fmt: skip
    if counted:
        run("elias_bits", dtype, jobs, *shape, sizes, table(lengths, np.int32), np.int32(form), bits)
    return arrived, get(bits)


def parts(size: Array, most: int) -> Iterator[slice]:
    """Yield slices of consecutive jobs that need at most `most` numbers together; at least one job each."""
    end = np.cumsum(size)
    a = 0
    while a < len(size):
        b = max(a + 1, int(np.searchsorted(end, end[a] - size[a] + most, side="right")))
        yield slice(a, b)
        a = b
