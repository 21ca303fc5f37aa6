# mypy: allow-untyped-defs, disable-error-code="import-untyped,attr-defined,untyped-decorator"
"""Rows out of a table of data, as the numbers that a model sees: gathered and converted in one go.

Jobs gathered by client: its rows are fetched once, and its jobs' random words fill the lanes together.

Functions take whole groups of jobs: an array handed to a function costs two atomic operations, which is nothing
for a group and more than the sums themselves for a job.
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

KEPT = 2**22  # bytes of a buffer that a thread keeps
STRIP = 16  # rows copied at once, before they are converted
_own = threading.local()


@jit
def _convert(x, rows, scale, shift, strip, out):
    for begin in range(0, len(rows), len(strip)):
        end = min(begin + len(strip), len(rows))
        for r in range(begin, end):  # copied first, nothing else: many rows are then on their way from memory at once
            source, held = x[rows[r]], strip[r - begin]
            for i in range(len(scale)):
                held[i] = source[i]
        for r in range(begin, end):
            held, row = strip[r - begin], out[r]
            for i in range(len(scale)):
                row[i] = held[i]  # into the precision of the run first: a product of mixed types would be a double
            for i in range(len(scale)):
                row[i] = row[i] * scale[i] + shift[i]


@jit
def fetch(x, y, first, rows, begin, n, scale, shift, out, labels):
    """n of a client's rows and labels, from rows[begin] on or, where none are chosen, from its row `begin` on.

    They become numbers of the precision of `out` and are scaled then, as by `gather`; an empty scale: as they are.
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
    """scale * x[rows] + shift, column by column; without a scale the rows themselves.

    It stands in a buffer of the thread's own and holds until the next call: fresh memory would cost as much again.
    """
    if scale is None or shift is None:
        return np.asarray(x[rows], dtype)
    out = _buffer(len(rows), x.shape[1], dtype)
    strip = np.empty((STRIP, x.shape[1]), x.dtype)
    _convert(x, rows, scale.astype(dtype, copy=False), shift.astype(dtype, copy=False), strip, out)
    return out


def _buffer(rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
    size = rows * columns * dtype.itemsize
    if size > KEPT:
        return np.empty((rows, columns), dtype)
    if "bytes" not in vars(_own) or len(_own.bytes) < size:
        _own.bytes = np.empty(size, np.uint8)
    return np.asarray(_own.bytes[:size].view(dtype).reshape(rows, columns))


LANES = 64  # jobs of a group,
WORDS = 8192  # as long as the swaps they make stay in the first-level cache;
SPAN = 16  # a loop over lanes has no remainder


def by_client(client: Array, clients: int) -> Array:
    """The jobs in the order of their clients."""
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
    """Room for groups of these clients: lanes, swaps to make, places, and choices (lanes, most rows)."""
    most, largest = 0, 0
    for c in client:
        most = max(most, rows[c])
        largest = max(largest, offsets[c + 1] - offsets[c])
    lanes = max(SPAN, min(LANES, WORDS // (most + 5) // SPAN * SPAN))
    targets = np.zeros((most + 5, lanes), np.uint32)  # the last four rows are for the keys
    return lanes, targets, np.arange(largest), np.empty((lanes, most), np.int64)


@inline
def group(client, order, begin, lanes):
    """Where the jobs of order[begin]'s client end, or `lanes` of them."""
    c, end = client[order[begin]], begin
    while end < len(order) and end - begin < lanes and client[order[end]] == c:
        end += 1
    return end


@jit
def choose_group(key, order, begin, end, population, size, targets, place, chosen):
    """Choices of `size` different rows, as `draws.choose` makes them: chosen[j, r] for job order[begin + j].

    `place` is 0, 1, 2, ... before and after.
    """
    k = len(targets) - 4
    for j in range(end - begin):
        for i in range(4):
            targets[k + i, j] = key[order[begin + j], i]
    n = (end - begin + SPAN - 1) // SPAN * SPAN  # lanes that belong to no job hold rubbish, and nobody reads it
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
