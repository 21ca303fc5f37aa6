"""Sums over the replies of a replica and over the rows of a client, in NumPy."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.protocols import ProblemLike, Rows, as_problem, member


def segment_sum(values: Array, weights: Array, starts: Array) -> Array:
    """Sum weights[i] * values[i] over starts[r] <= i < starts[r + 1], in that order, into row r."""
    out = np.zeros((len(starts) - 1, values.shape[1]), values.dtype)
    weighted = np.asarray(weights, values.dtype)[:, None] * values
    for r in range(len(out)):
        for i in range(starts[r], starts[r + 1]):
            out[r] += weighted[i]
    return out


def gradients(problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array:
    """Return the clients' sum gradients, one job after the other, by `problem.gradient`."""
    out, gradient = np.empty_like(theta), member(problem, "gradient") or as_problem(problem).gradient
    for i, c in enumerate(clients):
        chosen = None if rows is None else rows[0][rows[1][i] : rows[1][i + 1]]
        out[i] = gradient(theta[i], int(c), chosen)
    return out
