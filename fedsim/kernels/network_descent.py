# mypy: allow-untyped-defs
"""Local gradient descent on ReLU networks: all steps of a job before the next job, so that its parameters stay cached.

The bits are those of the same steps taken one at a time: the same rows, products and roundings.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.draws import choose_rows
from fedsim.kernels.elementary import jit
from fedsim.kernels.network import TILE, _backpropagate
from fedsim.kernels.rows import fetch

__all__ = ["TILE", "descend", "step"]


@jit
def step(theta, gradient, pull, up, eta):
    """theta -= eta (up (gradient + pull theta)), each product rounded by itself."""
    if pull != 0:
        for i in range(len(theta)):
            gradient[i] += pull * theta[i]
    for i in range(len(theta)):
        theta[i] -= up * gradient[i] * eta


@jit
def descend(theta, x, y, offsets, client, key, sizes, counts, widths, scale, shift, pull, up, eta, delta):
    """delta (jobs, d): how far theta comes in len(eta) steps; `eta` (steps, jobs) multiplies gradients scaled `up`."""
    most = counts.max()
    rows, labels = np.empty(most, np.int64), np.empty(most, np.int64)
    fetched = np.empty((most, x.shape[1]), theta.dtype)
    both = np.empty((2, theta.shape[1]), theta.dtype)
    own, gradient = both[:1], both[1:]
    job, begin, fresh = np.zeros(1, np.int64), np.zeros(2, np.int64), np.ones(1, np.bool_)
    for j in range(len(client)):
        n, first = counts[j], offsets[client[j]]
        begin[1] = n
        own[0] = theta[j]
        for k in range(len(eta)):
            choose_rows(key[j : j + 1], sizes[j : j + 1], begin, k, rows[:n])
            fetch(x, y, first, rows, 0, n, scale, shift, fetched, labels)
            _backpropagate(own, fetched[:n], labels[:n], job, begin, fresh, widths, gradient)
            step(own[0], gradient[0], pull[j], up[j], eta[k, j])
        for i in range(theta.shape[1]):
            delta[j, i] = own[0, i] - theta[j, i]
