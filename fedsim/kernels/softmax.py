"""Softmax regression for a flat batch of jobs: two BLAS products a job, the rest compiled around them.

A BLAS call never sees two jobs: what one job gets cannot depend on its neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.kernels.elementary import exp32, exp64, jit

Array = npt.NDArray[Any]
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
def softmax_gradient(theta, x, y, offsets, client, rows, start, classes, bias, share, out):
    """sum over rows of x (p - onehot(y)) and, with a bias, (p - onehot(y)); then share theta per row."""
    features = x.shape[1]
    split = features * classes
    whole = len(rows) == 0
    widest = 0
    for job in range(theta.shape[0]):
        begin, end = offsets[client[job]], offsets[client[job] + 1]
        widest = max(widest, end - begin if whole else start[job + 1] - start[job])
    gathered = np.empty((min(TILE, widest), features), theta.dtype)
    scores = np.empty((min(TILE, widest), classes), theta.dtype)
    product = np.empty((features, classes), theta.dtype)
    for job in range(theta.shape[0]):
        begin, end = offsets[client[job]], offsets[client[job] + 1]
        first, last = (0, end - begin) if whole else (start[job], start[job + 1])
        weights = theta[job, :split].reshape(features, classes)
        g = out[job]
        count = theta.dtype.type(last - first)
        for i in range(g.shape[0]):
            g[i] = share * count * theta[job, i]
        for tile in range(first, last, TILE):
            n = min(TILE, last - tile)
            for r in range(n):
                gathered[r] = x[begin + (tile + r if whole else rows[tile + r])]
            xb, z = gathered[:n], scores[:n]
            np.dot(xb, weights, z)
            if bias:
                for r in range(n):
                    for k in range(classes):
                        z[r, k] += theta[job, split + k]
            softmax_rows(z)
            for r in range(n):
                z[r, y[begin + (tile + r if whole else rows[tile + r])]] -= theta.dtype.type(1)
            np.dot(xb.T, z, product)
            flat = product.reshape(-1)
            for i in range(split):
                g[i] += flat[i]
            if bias:
                for r in range(n):
                    for k in range(classes):
                        g[split + k] += z[r, k]
