"""Softmax regression in float32: gradients and whole descents of a flat batch of jobs, compiled from end to end.

Rows are fetched a tile at a time, and weights are held class by class, as `narrow_products` wants them. What a job gets
depends on nothing but its own rows, in their order. (float64 goes through BLAS: `classification` and `descent`.)
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cpu.classification import residuals
from fedsim.kernels.cpu.descent import step
from fedsim.kernels.cpu.draws import choose_rows
from fedsim.kernels.cpu.elementary import f32, jit
from fedsim.kernels.cpu.narrow_products import add_slopes, scores
from fedsim.kernels.cpu.rows import fetch
from fedsim.kernels.cpu.vectors import aligned

TILE = 64  # rows at a time: they stay in the cache, and bits do not depend on it


@jit
def _gradient(x, y, first, rows, n, weights, bias, scale, shift, fetched, labels, z, slopes, total):
    """Of the rows chosen, or of the client's first n where none are: into `slopes` and `total`."""
    slopes[:] = 0
    total[:] = 0
    classes = len(weights)
    for begin in range(0, n, TILE):
        size = min(TILE, n - begin)
        fetch(x, y, first, rows, begin, size, scale, shift, fetched, labels)
        tile = z[: size * classes].reshape(size, classes)
        scores(fetched, size, weights, tile)
        residuals(tile, bias, labels, total)
        add_slopes(fetched, size, tile, slopes)


@jit
def _class_by_class(theta, weights, bias):
    """theta, the weights (features, classes) and then the biases, as the descent holds it."""
    classes = len(weights)
    split = len(theta) - len(bias)
    weights[:, split // classes :] = 0  # a job before that went astray may have left NaN there
    for k in range(split // classes):
        for c in range(classes):
            weights[c, k] = theta[k * classes + c]
    for c in range(len(bias)):
        bias[c] = theta[split + c]


@jit
def _feature_by_feature(weights, bias, out):
    classes = len(weights)
    split = len(out) - len(bias)
    for k in range(split // classes):
        for c in range(classes):
            out[k * classes + c] = weights[c, k]
    for c in range(len(bias)):
        out[split + c] = bias[c]


@jit
def _rooms(classes, bias, features, most):
    """Weights, biases, slopes and their sums, and what a tile of at most `most` rows needs."""
    n, biases = min(TILE, most), classes if bias else 0
    return (
        aligned(classes, features), np.empty(biases, np.float32),
        aligned(classes, features), np.empty(biases, np.float32),
        aligned(n, features), np.empty(n, np.int64), np.empty(n * classes, np.float32),
    )  # fmt: skip


@jit
def softmax_gradient(theta, x, y, offsets, client, rows, start, classes, bias, share, out, scale, shift):
    """The twin of `softmax.softmax_gradient`; an empty scale leaves rows as they are."""
    most = 0
    for job in range(len(client)):
        c = client[job]
        most = max(most, start[job + 1] - start[job] if len(rows) else offsets[c + 1] - offsets[c])
    weights, biases, slopes, total, fetched, labels, z = _rooms(classes, bias, x.shape[1], most)
    for job in range(len(client)):
        first, n = offsets[client[job]], offsets[client[job] + 1] - offsets[client[job]]
        chosen = rows
        if len(rows):
            chosen = rows[start[job] : start[job + 1]]
            n = len(chosen)
        own, g = theta[job], out[job]
        _class_by_class(own, weights, biases)
        _gradient(x, y, first, chosen, n, weights, biases, scale, shift, fetched, labels, z, slopes, total)
        _feature_by_feature(slopes, total, g)
        if share != 0:
            pull = f32(share * n)
            for i in range(len(g)):
                g[i] += pull * own[i]


@jit
def descend(theta, x, y, offsets, client, key, sizes, counts, classes, bias, scale, shift, pull, up, eta, delta):
    """delta (jobs, d): how far theta comes in len(eta) steps; `eta` (steps, jobs) multiplies gradients scaled `up`."""
    most = counts.max()
    weights, biases, slopes, total, fetched, labels, z = _rooms(classes, bias, x.shape[1], most)
    rows, begin = np.empty(most, np.int64), np.zeros(2, np.int64)
    for j in range(len(client)):
        n, first = counts[j], offsets[client[j]]
        begin[1] = n
        _class_by_class(theta[j], weights, biases)
        for k in range(len(eta)):
            choose_rows(key[j : j + 1], sizes[j : j + 1], begin, k, rows[:n])
            _gradient(x, y, first, rows[:n], n, weights, biases, scale, shift, fetched, labels, z, slopes, total)
            step(weights.reshape(-1), slopes.reshape(-1), pull[j], up[j], eta[k, j])
            step(biases, total, pull[j], up[j], eta[k, j])
        _feature_by_feature(weights, biases, delta[j])
        for i in range(theta.shape[1]):
            delta[j, i] -= theta[j, i]
