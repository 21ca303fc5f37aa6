"""Products of rows with a matrix of few columns, in float32: a handful of classes, many features.

BLAS packs its operands and computes in blocks that a narrow matrix does not fill. Here every sum stays in a register
from its first term to its last: lane l of a score adds up features l, l + LANES, ...; a weight's slope adds up rows, in
their order. So bits depend neither on the machine nor on how rows are cut into tiles.

`x` is (rows, features) and `weights` is (classes, features), features a multiple of LANES.
"""

from __future__ import annotations

from fedsim.kernels.cpu.elementary import f32, jit
from fedsim.kernels.cpu.vectors import LANES, everywhere, load, multiply_add, store, totals


@jit
def scores(x, n, weights, z):
    """z[r, c] = sum over k of x[r, k] weights[c, k], of n rows."""
    classes = weights.shape[0]
    for r in range(0, n - 3, 4):
        for c in range(0, classes - 1, 2):
            _scores_of_four_and_two(x, r, weights, c, z)
        if classes % 2:
            _scores_of_four(x, r, weights, classes - 1, z)
    for r in range(n - n % 4, n):
        for c in range(classes):
            sums = everywhere(f32(0))
            for k in range(0, x.shape[1], LANES):
                sums = multiply_add(load(x, r, k), load(weights, c, k), sums)
            z[r, c] = totals(sums, sums, sums, sums)[0]


@jit
def _scores_of_four_and_two(x, r, weights, c, z):
    """Rows r to r + 3, classes c and c + 1: eight sums hide each other's latency and share what they load."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = everywhere(f32(0))
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
    a0 = a1 = a2 = a3 = everywhere(f32(0))
    for k in range(0, x.shape[1], LANES):
        a = load(weights, c, k)
        a0, a1 = multiply_add(load(x, r, k), a, a0), multiply_add(load(x, r + 1, k), a, a1)
        a2, a3 = multiply_add(load(x, r + 2, k), a, a2), multiply_add(load(x, r + 3, k), a, a3)
    z[r, c], z[r + 1, c], z[r + 2, c], z[r + 3, c] = totals(a0, a1, a2, a3)


@jit
def add_slopes(x, n, z, slopes):
    """slopes[c, k] += sum over the first n rows of z[r, c] x[r, k]."""
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
    """Classes c to c + 4, two vectors of features: ten sums."""
    h = k + LANES
    a0, a1, a2 = load(slopes, c, k), load(slopes, c + 1, k), load(slopes, c + 2, k)
    a3, a4 = load(slopes, c + 3, k), load(slopes, c + 4, k)
    b0, b1, b2 = load(slopes, c, h), load(slopes, c + 1, h), load(slopes, c + 2, h)
    b3, b4 = load(slopes, c + 3, h), load(slopes, c + 4, h)
    for r in range(n):
        a, b = load(x, r, k), load(x, r, h)
        z0, z1, z2 = everywhere(z[r, c]), everywhere(z[r, c + 1]), everywhere(z[r, c + 2])
        z3, z4 = everywhere(z[r, c + 3]), everywhere(z[r, c + 4])
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
    sums = load(slopes, c, k)
    for r in range(n):
        sums = multiply_add(everywhere(z[r, c]), load(x, r, k), sums)
    store(slopes, c, k, sums)
