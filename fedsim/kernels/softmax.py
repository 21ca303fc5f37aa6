"""Softmax regression for a flat batch of jobs: NumPy's gather, then two BLAS products a job and the rest, compiled.

Both let go of Python's lock, so threads overlap. The products are those of `network_descent`, by the same BLAS. Runs
in float32 have `softmax_float32` instead.

A BLAS call never sees two jobs: what one job gets cannot depend on its neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.elementary import exp32, exp64, jit
from fedsim.kernels.rows import gather

TILE = 1024  # rows gathered at once: a full gradient needs a bounded buffer only


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
    held = np.empty((0 if whole else min(TILE, int(np.diff(start).max(initial=0))), features), theta.dtype)
    for job, c in enumerate(client.tolist()):
        first, last = int(offsets[c]), int(offsets[c + 1])
        chosen = None if whole else rows[start[job] : start[job + 1]] + first
        weights, g = theta[job, :split].reshape(features, classes), out[job]
        product, total = g[:split].reshape(features, classes), g[split:]
        total[:] = 0
        count = last - first if chosen is None else len(chosen)
        for tile in range(0, count, TILE):
            part: Any = slice(first + tile, min(first + tile + TILE, last))
            part = part if chosen is None else chosen[tile : tile + TILE]
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
