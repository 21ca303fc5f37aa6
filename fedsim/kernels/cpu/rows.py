"""Rows of data and groups of jobs, compiled.

Rows are gathered and converted to the precision of the run in one pass. Jobs are grouped by client, so that its rows
are read once and the random words of its jobs fill the lanes. Functions take groups of jobs, since passing an array to
a function costs two atomic operations, more than the sums of one job.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import inline, jit
from fedsim.kernels.cpu.draws import below
from fedsim.kernels.cpu.elementary import u32
from fedsim.kernels.cpu.lanes import philox

BUFFER = 2**22  # bytes at most of a thread's buffer
STRIP = 16  # rows copied at once, before they are converted
_thread = threading.local()


@jit
def _convert(x, rows, scale, shift, strip, out):
    for begin in range(0, len(rows), len(strip)):
        end = min(begin + len(strip), len(rows))
        for r in range(begin, end):  # copies only, so that the processor fetches many rows at once
            source, copy = x[rows[r]], strip[r - begin]
            for i in range(len(scale)):
                copy[i] = source[i]
        for r in range(begin, end):
            copy, row = strip[r - begin], out[r]
            for i in range(len(scale)):
                row[i] = copy[i]  # converted first: a product of mixed types would be a double
            for i in range(len(scale)):
                row[i] = row[i] * scale[i] + shift[i]


@jit
def fetch(x, y, first, rows, begin, n, scale, shift, out, labels):
    """Copy n of a client's rows and labels, from rows[begin] on or, if `rows` is empty, from its row `begin` on.

    They are converted to the precision of `out` and then scaled as by `gather`; an empty scale leaves them unchanged.
    """
    for r in range(n):
        at = first + (rows[begin + r] if len(rows) else begin + r)
        labels[r] = y[at]
        source, row = x[at], out[r]
        for i in range(x.shape[1]):
            row[i] = source[i]
        for i in range(len(scale)):
            row[i] = row[i] * scale[i] + shift[i]


def gather(x: Array, rows: Array, dtype: np.dtype[Any], scale: Array | None, shift: Array | None) -> Array:
    """Return scale * x[rows] + shift, column by column; without a scale the rows themselves.

    The result is in a buffer of the thread and is valid until the next call: new memory would double the time.
    """
    if scale is None or shift is None:
        return np.asarray(x[rows], dtype)
    out = _buffer(len(rows), x.shape[1], dtype)
    strip = np.empty((STRIP, x.shape[1]), x.dtype)
    _convert(x, rows, scale.astype(dtype, copy=False), shift.astype(dtype, copy=False), strip, out)
    return out


def _buffer(rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
    size = rows * columns * dtype.itemsize
    if size > BUFFER:
        return np.empty((rows, columns), dtype)
    if "bytes" not in vars(_thread) or len(_thread.bytes) < size:
        _thread.bytes = np.empty(size, np.uint8)
    return np.asarray(_thread.bytes[:size].view(dtype).reshape(rows, columns))


LANES = 64  # jobs of a group at most
WORDS = 8192  # of a group's swaps at most, which fit in the first-level cache
SPAN = 16  # lanes are a multiple of it, so that a loop over them has no remainder


def by_client(client: Array, clients: int) -> Array:
    """Return the jobs in the order of their clients."""
    if clients > 4 * len(client):
        return np.argsort(client, kind="stable")
    order = np.empty(len(client), np.int64)
    _sort(client, np.zeros(clients + 1, np.int64), order)
    return order


@jit
def _sort(client, place, order):
    for c in client:
        place[c + 1] += 1
    for c in range(1, len(place)):
        place[c] += place[c - 1]
    for job in range(len(client)):
        order[place[client[job]]] = job
        place[client[job]] += 1


@jit
def scratch(client, offsets, rows):
    """Allocate for groups of these clients: lanes, swaps, places, and choices (lanes, most rows)."""
    most, largest = 0, 0
    for c in client:
        most = max(most, rows[c])
        largest = max(largest, offsets[c + 1] - offsets[c])
    lanes = max(SPAN, min(LANES, WORDS // (most + 5) // SPAN * SPAN))
    targets = np.zeros((most + 5, lanes), np.uint32)  # the last four rows are for the keys
    return lanes, targets, np.arange(largest), np.empty((lanes, most), np.int64)


@inline
def group(client, order, begin, lanes):
    """Return the end of the jobs of order[begin]'s client, or of `lanes` of them."""
    c, end = client[order[begin]], begin
    while end < len(order) and end - begin < lanes and client[order[end]] == c:
        end += 1
    return end


@jit
def choose_group(key, order, begin, end, population, size, targets, place, chosen):
    """Choose `size` different rows as `draws.choose` does: chosen[j, r] for job order[begin + j].

    `place` is 0, 1, 2, ... before and after.
    """
    k = len(targets) - 4
    for j in range(end - begin):
        for i in range(4):
            targets[k + i, j] = key[order[begin + j], i]
    n = (end - begin + SPAN - 1) // SPAN * SPAN  # lanes without a job are computed and not read
    for r in range(0, size, 2):
        for j in range(n):
            k0, k1, k2, k3 = targets[k, j], targets[k + 1, j], targets[k + 2, j], targets[k + 3, j]
            w0, w1, w2, w3 = philox(u32(r // 2), u32(0), k2, k3, k0, k1)
            targets[r, j] = u32(r + below(w0, w1, population - r))
            targets[r + 1, j] = u32(r + 1 + below(w2, w3, population - r - 1))
    for j in range(end - begin):
        for r in range(size):
            target = targets[r, j]
            drawn = place[target]
            place[target] = place[r]
            place[r] = drawn
            chosen[j, r] = drawn
        for r in range(size):
            place[chosen[j, r]] = chosen[j, r]
            place[r] = r
