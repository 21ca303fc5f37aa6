"""Softmax regression in float32: gradients and local descents of a flat batch of jobs, without BLAS.

BLAS packs its operands and computes in blocks that a matrix with few columns does not fill: on 784 features and 10
classes it takes twice as long. Here every sum stays in a register from its first term to its last: lane l of a score
adds features l, l + LANES, ...; a slope adds rows in their order. So bits depend neither on the machine nor on TILE.

Rows `x` are (rows, features) and `weights` (classes, features), features a multiple of LANES.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cache import jit
from fedsim.kernels.cpu.elementary import f32, residuals
from fedsim.kernels.cpu.rows import fetch
from fedsim.kernels.intrinsics import LANES, aligned, broadcast, load, multiply_add, store, totals

TILE = 64  # rows at a time, which fit in the cache; bits do not depend on it


@jit
def scores(x, n, weights, z):
    """Set z[r, c] = sum over k of x[r, k] weights[c, k] for the first n rows."""
    classes = weights.shape[0]
    for r in range(0, n - 3, 4):
        for c in range(0, classes - 1, 2):
            _scores_of_four_and_two(x, r, weights, c, z)
        if classes % 2:
            _scores_of_four(x, r, weights, classes - 1, z)
    for r in range(n - n % 4, n):
        for c in range(classes):
            sums = broadcast(f32(0))
            for k in range(0, x.shape[1], LANES):
                sums = multiply_add(load(x, r, k), load(weights, c, k), sums)
            z[r, c] = totals(sums, sums, sums, sums)[0]


@jit
def _scores_of_four_and_two(x, r, weights, c, z):
    """Compute the scores of rows r to r + 3 in classes c and c + 1: eight sums overlap and share their loads."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = broadcast(f32(0))
    for k in range(0, x.shape[1], LANES):
        a, b = load(weights, c, k), load(weights, c + 1, k)
        x0, x1, x2, x3 = load(x, r, k), load(x, r + 1, k), load(x, r + 2, k), load(x, r + 3, k)
        a0, b0 = multiply_add(x0, a, a0), multiply_add(x0, b, b0)
        a1, b1 = multiply_add(x1, a, a1), multiply_add(x1, b, b1)
        a2, b2 = multiply_add(x2, a, a2), multiply_add(x2, b, b2)
        a3, b3 = multiply_add(x3, a, a3), multiply_add(x3, b, b3)
    z[r, c], z[r + 1, c], z[r + 2, c], z[r + 3, c] = totals(a0, a1, a2, a3)
    c += 1
    z[r, c], z[r + 1, c], z[r + 2, c], z[r + 3, c] = totals(b0, b1, b2, b3)


@jit
def _scores_of_four(x, r, weights, c, z):
    """Compute the scores of rows r to r + 3 in class c."""
    a0 = a1 = a2 = a3 = broadcast(f32(0))
    for k in range(0, x.shape[1], LANES):
        a = load(weights, c, k)
        a0, a1 = multiply_add(load(x, r, k), a, a0), multiply_add(load(x, r + 1, k), a, a1)
        a2, a3 = multiply_add(load(x, r + 2, k), a, a2), multiply_add(load(x, r + 3, k), a, a3)
    z[r, c], z[r + 1, c], z[r + 2, c], z[r + 3, c] = totals(a0, a1, a2, a3)


@jit
def add_slopes(x, n, z, slopes):
    """Add to slopes[c, k] the sum over the first n rows of z[r, c] x[r, k]."""
    classes, features = slopes.shape
    for k in range(0, features - LANES, 2 * LANES):
        for c in range(0, classes - 4, 5):
            _slopes_of_five_and_two(x, n, z, slopes, c, k)
        for c in range(classes - classes % 5, classes):
            _slopes_of_one(x, n, z, slopes, c, k)
            _slopes_of_one(x, n, z, slopes, c, k + LANES)
    if features // LANES % 2:
        for c in range(classes):
            _slopes_of_one(x, n, z, slopes, c, features - LANES)


@jit
def _slopes_of_five_and_two(x, n, z, slopes, c, k):
    """Add the slopes of classes c to c + 4 for two vectors of features: ten sums."""
    h = k + LANES
    a0, a1, a2 = load(slopes, c, k), load(slopes, c + 1, k), load(slopes, c + 2, k)
    a3, a4 = load(slopes, c + 3, k), load(slopes, c + 4, k)
    b0, b1, b2 = load(slopes, c, h), load(slopes, c + 1, h), load(slopes, c + 2, h)
    b3, b4 = load(slopes, c + 3, h), load(slopes, c + 4, h)
    for r in range(n):
        a, b = load(x, r, k), load(x, r, h)
        z0, z1, z2 = broadcast(z[r, c]), broadcast(z[r, c + 1]), broadcast(z[r, c + 2])
        z3, z4 = broadcast(z[r, c + 3]), broadcast(z[r, c + 4])
        a0, b0 = multiply_add(z0, a, a0), multiply_add(z0, b, b0)
        a1, b1 = multiply_add(z1, a, a1), multiply_add(z1, b, b1)
        a2, b2 = multiply_add(z2, a, a2), multiply_add(z2, b, b2)
        a3, b3 = multiply_add(z3, a, a3), multiply_add(z3, b, b3)
        a4, b4 = multiply_add(z4, a, a4), multiply_add(z4, b, b4)
    store(slopes, c, k, a0)
    store(slopes, c + 1, k, a1)
    store(slopes, c + 2, k, a2)
    store(slopes, c + 3, k, a3)
    store(slopes, c + 4, k, a4)
    store(slopes, c, h, b0)
    store(slopes, c + 1, h, b1)
    store(slopes, c + 2, h, b2)
    store(slopes, c + 3, h, b3)
    store(slopes, c + 4, h, b4)


@jit
def _slopes_of_one(x, n, z, slopes, c, k):
    """Add the slopes of class c for one vector of features."""
    sums = load(slopes, c, k)
    for r in range(n):
        sums = multiply_add(broadcast(z[r, c]), load(x, r, k), sums)
    store(slopes, c, k, sums)


@jit
def row_gradient(x, y, first, rows, n, weights, bias, scale, shift, fetched, labels, z, slopes, total):
    """Compute the gradient over the chosen rows, or the client's first n if none: into `slopes` and `total`."""
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
def to_class_rows(theta, weights, bias):
    """Split theta, weights (features, classes) and then biases, into weights (classes, features) and biases."""
    classes = len(weights)
    split = len(theta) - len(bias)
    weights[:, split // classes :] = 0  # an earlier job that diverged may have left NaN there
    for k in range(split // classes):
        for c in range(classes):
            weights[c, k] = theta[k * classes + c]
    for c in range(len(bias)):
        bias[c] = theta[split + c]


@jit
def from_class_rows(weights, bias, out):
    """Join weights (classes, features) and biases into parameters as theta has them."""
    classes = len(weights)
    split = len(out) - len(bias)
    for k in range(split // classes):
        for c in range(classes):
            out[k * classes + c] = weights[c, k]
    for c in range(len(bias)):
        out[split + c] = bias[c]


@jit
def buffers(classes, bias, features, most):
    """Allocate weights, biases, slopes, their sums, and the rows, labels and scores of a tile of up to `most` rows."""
    n, biases = min(TILE, most), classes if bias else 0
    return (
        aligned(classes, features), np.empty(biases, np.float32),
        aligned(classes, features), np.empty(biases, np.float32),
        aligned(n, features), np.empty(n, np.int64), np.empty(n * classes, np.float32),
    )  # fmt: skip


@jit
def softmax_gradient(theta, x, y, offsets, client, rows, start, classes, bias, share, out, scale, shift):
    """Compute `classification.softmax_gradient` in float32; an empty scale leaves rows unchanged."""
    most = 0
    for job in range(len(client)):
        c = client[job]
        most = max(most, start[job + 1] - start[job] if len(rows) else offsets[c + 1] - offsets[c])
    weights, biases, slopes, total, fetched, labels, z = buffers(classes, bias, x.shape[1], most)
    for job in range(len(client)):
        first, n = offsets[client[job]], offsets[client[job] + 1] - offsets[client[job]]
        chosen = rows
        if len(rows):
            chosen = rows[start[job] : start[job + 1]]
            n = len(chosen)
        parameters, g = theta[job], out[job]
        to_class_rows(parameters, weights, biases)
        row_gradient(x, y, first, chosen, n, weights, biases, scale, shift, fetched, labels, z, slopes, total)
        from_class_rows(slopes, total, g)
        if share != 0:
            ridge = f32(share * n)
            for i in range(len(g)):
                g[i] += ridge * parameters[i]
