"""Softmax regression for a flat batch of jobs: NumPy's gather, then two BLAS products a job and the rest, compiled.

Both let go of Python's lock, so threads overlap. The products are those of `descent`, by the same BLAS. Runs
in float32 have `softmax_float32` instead.

A BLAS call never sees two jobs: what one job gets cannot depend on its neighbours.

Gradients of ReLU networks for a flat batch of jobs: rows gathered for some jobs at a time, the rest compiled.

theta holds, layer by layer, the weights (in, out) row by row and then the biases. A BLAS call never sees two jobs: what
one job gets cannot depend on its neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.elementary import exp32, exp64, jit
from fedsim.kernels.cpu.rows import gather

SOFTMAX_TILE = 1024  # rows gathered at once: a full gradient needs a bounded buffer only


@jit
def _exp64(z):
    for i in range(z.shape[0]):
        z[i] = exp64(z[i])


@jit
def _exp32(z):
    for i in range(z.shape[0]):
        z[i] = exp32(z[i])


@jit
def softmax_rows(z):
    """In place: every row of `z` to probabilities. The exponentials run over the whole tile at once."""
    for r in range(z.shape[0]):
        row = z[r]
        top = row[0]
        for k in range(1, row.shape[0]):
            top = max(top, row[k])
        for k in range(row.shape[0]):
            row[k] -= top
    flat = z.reshape(-1)
    if z.itemsize == 4:
        _exp32(flat.view(np.float32))
    else:
        _exp64(flat.view(np.float64))
    for r in range(z.shape[0]):
        row = z[r]
        total = row[0]
        for k in range(1, row.shape[0]):
            total += row[k]
        for k in range(row.shape[0]):
            row[k] /= total


@jit
def residuals(z, bias, y, total):
    """In place: scores to probabilities less the labels' ones; their sum over rows is added to `total`."""
    for r in range(z.shape[0]):
        for k in range(len(bias)):
            z[r, k] += bias[k]
    softmax_rows(z)
    for r in range(z.shape[0]):
        z[r, y[r]] -= z.dtype.type(1)
        for k in range(len(total)):
            total[k] += z[r, k]


@jit
def _tile(x, y, weights, bias, z, product, total):
    """The gradient of a tile of rows: into `product`, and added to `total`; `z` (rows, classes) is scratch."""
    np.dot(x, weights, z)
    residuals(z, bias, y, total)
    np.dot(x.T, z, product)


def softmax_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """sum over rows of x (p - onehot(y)) and, with a bias, (p - onehot(y)); then share theta per row.

    Rows count as scale * x + shift where these are given.
    """
    features = x.shape[1]
    split = features * classes
    whole = len(rows) == 0
    # One buffer for the rows of all jobs: fresh memory would cost more than the copy.
    held = np.empty((0 if whole else min(SOFTMAX_TILE, int(np.diff(start).max(initial=0))), features), theta.dtype)
    for job, c in enumerate(client.tolist()):
        first, last = int(offsets[c]), int(offsets[c + 1])
        chosen = None if whole else rows[start[job] : start[job + 1]] + first
        weights, g = theta[job, :split].reshape(features, classes), out[job]
        product, total = g[:split].reshape(features, classes), g[split:]
        total[:] = 0
        count = last - first if chosen is None else len(chosen)
        for tile in range(0, count, SOFTMAX_TILE):
            part: Any = slice(first + tile, min(first + tile + SOFTMAX_TILE, last))
            part = part if chosen is None else chosen[tile : tile + SOFTMAX_TILE]
            if scale is None and not whole and x.dtype == theta.dtype:
                xb = np.take(x, part, axis=0, out=held[: len(part)], mode="clip")  # the only mode that copies once
            elif scale is None:
                xb = x[part].astype(theta.dtype, copy=False)
            else:
                xb = gather(x, _numbers(part), theta.dtype, scale, shift)
            z, added = np.empty((len(xb), classes), theta.dtype), product if tile == 0 else np.empty_like(product)
            _tile(xb, y[part], weights, theta[job, split:], z, added, total)
            if tile:
                product += added
        if share:
            g += theta.dtype.type(share * count) * theta[job]


def _numbers(part: Array) -> Array:
    return np.arange(part.start, part.stop) if isinstance(part, slice) else part


TILE = 256  # rows of one job that go through the network together
BLOCK = 256  # rows gathered at once, of one job or several: they stay in the cache


@jit
def _rectify(z, bias):
    for r in range(z.shape[0]):
        row = z[r]
        for k in range(len(bias)):
            row[k] = max(row[k] + bias[k], z.dtype.type(0))


@jit
def _residuals(z, bias, y):
    """In place: scores to probabilities less the labels' ones."""
    for r in range(z.shape[0]):
        row = z[r]
        for k in range(len(bias)):
            row[k] += bias[k]
    softmax_rows(z)
    for r in range(z.shape[0]):
        z[r, y[r]] -= z.dtype.type(1)


@jit
def _column_sums(delta, total, fresh):
    if fresh:
        total[:] = 0
    for r in range(delta.shape[0]):
        row = delta[r]
        for k in range(len(total)):
            total[k] += row[k]


@jit
def _shut(delta, active):
    """Nothing flows back through a unit that was off."""
    for r in range(delta.shape[0]):
        row, on = delta[r], active[r]
        for k in range(delta.shape[1]):
            row[k] = row[k] if on[k] > 0 else delta.dtype.type(0)


@jit
def _backpropagate(theta, x, y, job, begin, fresh, widths, out):
    """Tile t is rows begin[t]:begin[t + 1] of x, of job[t]; a fresh one overwrites what `out` holds, others add."""
    layers, most = len(widths) - 1, 0
    for t in range(len(job)):
        most = max(most, begin[t + 1] - begin[t])
    hidden = np.empty(most * widths[1:].sum(), theta.dtype)
    back = np.empty((2, most * widths[1:].max()), theta.dtype)
    added = np.empty(0 if fresh.all() else (widths[:-1] * widths[1:]).max(), theta.dtype)
    for t in range(len(job)):
        n = begin[t + 1] - begin[t]
        p, g = theta[job[t]], out[job[t]]
        first = x[begin[t] : begin[t + 1]]
        at, room = 0, 0
        below = first
        for l in range(layers):
            wide, high = widths[l], widths[l + 1]
            z = hidden[room : room + n * high].reshape(n, high)
            np.dot(below, p[at : at + wide * high].reshape(wide, high), z)
            at += wide * high
            if l < layers - 1:
                _rectify(z, p[at : at + high])
            else:
                _residuals(z, p[at : at + high], y[begin[t] : begin[t + 1]])
            at += high
            room += n * high
            below = z
        delta = below
        room -= n * widths[layers]
        for l in range(layers - 1, -1, -1):
            wide, high = widths[l], widths[l + 1]
            at -= high
            _column_sums(delta, g[at : at + high], fresh[t])
            at -= wide * high
            if l == 0:
                below = first
            else:
                room -= n * wide
                below = hidden[room : room + n * wide].reshape(n, wide)
            product = g[at : at + wide * high].reshape(wide, high)
            if fresh[t]:
                np.dot(below.T, delta, product)
            else:
                more = added[: wide * high].reshape(wide, high)
                np.dot(below.T, delta, more)
                product += more
            if l > 0:
                lower = back[l % 2][: n * wide].reshape(n, wide)
                np.dot(delta, p[at : at + wide * high].reshape(wide, high).T, lower)
                _shut(lower, below)
                delta = lower


@jit
def _pull(theta, amount, out):
    """out += amount theta, job by job."""
    for j in range(theta.shape[0]):
        t, g = theta[j], out[j]
        for i in range(theta.shape[1]):
            g[i] += amount[j] * t[i]


def network_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, widths: Array,
    share: object, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """sum over rows of the slope of cross-entropy, then share theta per row; widths are (features, ..., classes)."""
    whole = len(rows) == 0
    sizes = np.diff(offsets)[client] if whole else np.diff(start)
    first = offsets[client]
    if not whole and len(rows) <= BLOCK and sizes.min() > 0 and sizes.max() <= TILE:  # one tile a job, one block
        chosen = rows + np.repeat(first, sizes)
        job = np.arange(len(client))
        x, y = gather(x, chosen, theta.dtype, scale, shift), y[chosen]
        _backpropagate(theta, x, y, job, start, np.ones(len(job), np.bool_), widths, out)
    else:
        _in_blocks(theta, x, y, first, rows, sizes, widths, out, scale, shift)
    if share:
        _pull(theta, (share * sizes).astype(theta.dtype), out)


def _in_blocks(
    theta: Array, x: Array, y: Array, first: Array, rows: Array, sizes: Array, widths: Array, out: Array,
    scale: Array | None, shift: Array | None,
) -> None:  # fmt: skip
    """Jobs cut into tiles of at most TILE rows, tiles gathered in blocks of about BLOCK."""
    tiles = -(-sizes // TILE)
    job = np.repeat(np.arange(len(sizes)), tiles)
    ahead = TILE * (np.arange(len(job)) - np.repeat(np.cumsum(tiles) - tiles, tiles))  # rows of the job before the tile
    length = np.minimum(TILE, sizes[job] - ahead)
    begin = np.concatenate([[0], np.cumsum(length)])
    out[sizes == 0] = 0
    a = 0
    while a < len(job):
        b = max(a + 1, int(np.searchsorted(begin, begin[a] + BLOCK, side="right")) - 1)
        place, count = begin[a : b + 1] - begin[a], length[a:b]
        if len(rows):
            chosen = rows[begin[a] : begin[b]] + np.repeat(first[job[a:b]], count)
        else:
            chosen = np.arange(place[-1]) + np.repeat(first[job[a:b]] + ahead[a:b] - place[:-1], count)
        part = gather(x, chosen, theta.dtype, scale, shift)
        _backpropagate(theta, part, y[chosen], job[a:b], place, ahead[a:b] == 0, widths, out)
        a = b
