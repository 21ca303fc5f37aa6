"""Gradients of softmax regression and of ReLU networks for a flat batch of jobs: BLAS products, the rest compiled.

Softmax regression in float32 is in `classification_float32`. A BLAS call never contains two jobs, so the result of a
job does not depend on other jobs. `descent` computes the same products by the same BLAS.

The parameters of a network are, layer by layer, the weights (in, out) row by row and then the biases.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import jit
from fedsim.kernels.cpu import classification_float32
from fedsim.kernels.cpu.elementary import residuals, softmax_rows
from fedsim.kernels.cpu.rows import gather

SOFTMAX_TILE = 1024  # rows gathered at once: a full gradient needs a bounded buffer only


@jit
def _tile(x, y, weights, bias, z, product, total):
    """Compute the gradient of a tile of rows into `product` and add to `total`; `z` (rows, classes) is scratch."""
    np.dot(x, weights, z)
    residuals(z, bias, y, total)
    np.dot(x.T, z, product)


def softmax_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """Sum x (p - onehot(y)) and, with a bias, (p - onehot(y)) over rows, plus share theta for each row, into `out`.

    With scale and shift a row is scale * x + shift.
    """
    if theta.dtype == np.float32:
        _check_rows(offsets, client, rows, start)
        none = np.zeros(0, np.float32)
        columns = (none, none) if scale is None or shift is None else (scale, shift)
        classification_float32.softmax_gradient(
            theta, x, y, offsets, client, rows, start, classes, bias, share, out, *columns
        )
        return
    features = x.shape[1]
    split = features * classes
    all_rows = len(rows) == 0
    # One buffer for the rows of all jobs: new memory would cost more than the copy.
    buffer = np.empty((0 if all_rows else min(SOFTMAX_TILE, int(np.diff(start).max(initial=0))), features), theta.dtype)
    for job, c in enumerate(client.tolist()):
        first, last = int(offsets[c]), int(offsets[c + 1])
        chosen = None if all_rows else rows[start[job] : start[job + 1]] + first
        weights, g = theta[job, :split].reshape(features, classes), out[job]
        product, total = g[:split].reshape(features, classes), g[split:]
        total[:] = 0
        count = last - first if chosen is None else len(chosen)
        for tile in range(0, count, SOFTMAX_TILE):
            part: Any = slice(first + tile, min(first + tile + SOFTMAX_TILE, last))
            part = part if chosen is None else chosen[tile : tile + SOFTMAX_TILE]
            if scale is None and not all_rows and x.dtype == theta.dtype:
                xb = np.take(x, part, axis=0, out=buffer[: len(part)], mode="clip")  # the only mode that copies once
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


def _check_rows(offsets: Array, client: Array, rows: Array, start: Array) -> None:
    if len(rows) and (
        rows.min() < 0 or (rows >= np.repeat(offsets[client + 1] - offsets[client], np.diff(start))).any()
    ):
        raise IndexError("a minibatch names a row that its client does not have")


def _numbers(part: Array) -> Array:
    return np.arange(part.start, part.stop) if isinstance(part, slice) else part


TILE = 256  # rows of one job that pass through the network together
BLOCK = 256  # rows gathered at once, of one job or several, which fit in the cache


@jit
def _rectify(z, bias):
    for r in range(z.shape[0]):
        row = z[r]
        for k in range(len(bias)):
            row[k] = max(row[k] + bias[k], z.dtype.type(0))


@jit
def _residuals(z, bias, y):
    """Convert scores to probabilities minus the one-hot labels, in place."""
    for r in range(z.shape[0]):
        row = z[r]
        for k in range(len(bias)):
            row[k] += bias[k]
    softmax_rows(z)
    for r in range(z.shape[0]):
        z[r, y[r]] -= z.dtype.type(1)


@jit
def _column_sums(delta, total, first_tile):
    if first_tile:
        total[:] = 0
    for r in range(delta.shape[0]):
        row = delta[r]
        for k in range(len(total)):
            total[k] += row[k]


@jit
def _mask_inactive(delta, active):
    """Set the slopes of inactive units to zero."""
    for r in range(delta.shape[0]):
        row, unit = delta[r], active[r]
        for k in range(delta.shape[1]):
            row[k] = row[k] if unit[k] > 0 else delta.dtype.type(0)


@jit
def backpropagate(theta, x, y, job, begin, first_tile, widths, out):
    """Compute gradients tile by tile: tile t is rows begin[t]:begin[t + 1] of x, of job[t].

    The first tile of a job overwrites `out`; the others add to it.
    """
    layers, most = len(widths) - 1, 0
    for t in range(len(job)):
        most = max(most, begin[t + 1] - begin[t])
    hidden = np.empty(most * widths[1:].sum(), theta.dtype)
    back = np.empty((2, most * widths[1:].max()), theta.dtype)
    added = np.empty(0 if first_tile.all() else (widths[:-1] * widths[1:]).max(), theta.dtype)
    for t in range(len(job)):
        n = begin[t + 1] - begin[t]
        p, g = theta[job[t]], out[job[t]]
        first = x[begin[t] : begin[t + 1]]
        at, used = 0, 0
        below = first
        for l in range(layers):
            inputs, outputs = widths[l], widths[l + 1]
            z = hidden[used : used + n * outputs].reshape(n, outputs)
            np.dot(below, p[at : at + inputs * outputs].reshape(inputs, outputs), z)
            at += inputs * outputs
            if l < layers - 1:
                _rectify(z, p[at : at + outputs])
            else:
                _residuals(z, p[at : at + outputs], y[begin[t] : begin[t + 1]])
            at += outputs
            used += n * outputs
            below = z
        delta = below
        used -= n * widths[layers]
        for l in range(layers - 1, -1, -1):
            inputs, outputs = widths[l], widths[l + 1]
            at -= outputs
            _column_sums(delta, g[at : at + outputs], first_tile[t])
            at -= inputs * outputs
            if l == 0:
                below = first
            else:
                used -= n * inputs
                below = hidden[used : used + n * inputs].reshape(n, inputs)
            product = g[at : at + inputs * outputs].reshape(inputs, outputs)
            if first_tile[t]:
                np.dot(below.T, delta, product)
            else:
                more = added[: inputs * outputs].reshape(inputs, outputs)
                np.dot(below.T, delta, more)
                product += more
            if l > 0:
                lower = back[l % 2][: n * inputs].reshape(n, inputs)
                np.dot(delta, p[at : at + inputs * outputs].reshape(inputs, outputs).T, lower)
                _mask_inactive(lower, below)
                delta = lower


@jit
def _add_ridge(theta, amount, out):
    """Add amount theta to `out`, job by job."""
    for j in range(theta.shape[0]):
        t, g = theta[j], out[j]
        for i in range(theta.shape[1]):
            g[i] += amount[j] * t[i]


def network_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, widths: Array,
    share: object, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    """Sum the slopes of cross-entropy over rows, plus share theta for each row; widths are (features, ..., classes)."""
    all_rows = len(rows) == 0
    sizes = np.diff(offsets)[client] if all_rows else np.diff(start)
    first = offsets[client]
    if not all_rows and len(rows) <= BLOCK and sizes.min() > 0 and sizes.max() <= TILE:  # one tile a job, one block
        chosen = rows + np.repeat(first, sizes)
        job = np.arange(len(client))
        x, y = gather(x, chosen, theta.dtype, scale, shift), y[chosen]
        backpropagate(theta, x, y, job, start, np.ones(len(job), np.bool_), widths, out)
    else:
        _in_blocks(theta, x, y, first, rows, sizes, widths, out, scale, shift)
    if share:
        _add_ridge(theta, (share * sizes).astype(theta.dtype), out)


def _in_blocks(
    theta: Array, x: Array, y: Array, first: Array, rows: Array, sizes: Array, widths: Array, out: Array,
    scale: Array | None, shift: Array | None,
) -> None:  # fmt: skip
    """Split jobs into tiles of at most TILE rows and gather tiles in blocks of about BLOCK rows."""
    tiles = -(-sizes // TILE)
    job = np.repeat(np.arange(len(sizes)), tiles)
    before = TILE * (
        np.arange(len(job)) - np.repeat(np.cumsum(tiles) - tiles, tiles)
    )  # rows of the job before the tile
    length = np.minimum(TILE, sizes[job] - before)
    begin = np.concatenate([[0], np.cumsum(length)])
    out[sizes == 0] = 0
    a = 0
    while a < len(job):
        b = max(a + 1, int(np.searchsorted(begin, begin[a] + BLOCK, side="right")) - 1)
        place, count = begin[a : b + 1] - begin[a], length[a:b]
        if len(rows):
            chosen = rows[begin[a] : begin[b]] + np.repeat(first[job[a:b]], count)
        else:
            chosen = np.arange(place[-1]) + np.repeat(first[job[a:b]] + before[a:b] - place[:-1], count)
        part = gather(x, chosen, theta.dtype, scale, shift)
        backpropagate(theta, part, y[chosen], job[a:b], place, before[a:b] == 0, widths, out)
        a = b
