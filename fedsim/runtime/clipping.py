"""Sums of gradients of which every row's own is bounded, as differential privacy asks for."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.protocols import Backend, Clips, ProblemLike, Rows

CLIPPED = 2**24  # numbers in the gradients of single rows that are held at once


def clipped_gradients(
    problem: ProblemLike, theta: Array, clients: Array, rows: Rows, clip: float, backend: Backend
) -> Array:
    """Sums of per-row gradients, each scaled down to norm `clip`; a problem may bring its own, faster `clipped`."""
    if isinstance(problem, Clips):
        return np.asarray(problem.clipped(theta, clients, rows, clip))
    if rows is None:
        sizes = problem.sizes[clients]
        rows = (np.concatenate([np.arange(n) for n in sizes]), np.concatenate([[0], np.cumsum(sizes)]))
    chosen, start = rows
    out = np.empty_like(theta)
    a = 0
    while a < len(clients):  # as many jobs as their rows' own gradients may take room
        b = max(a + 1, int(np.searchsorted(start, start[a] + CLIPPED // theta.shape[1], side="right")) - 1)
        part, begin = chosen[start[a] : start[b]], start[a : b + 1] - start[a]
        owner = np.repeat(np.arange(a, b), np.diff(begin))
        each = backend.gradients(problem, theta[owner], clients[owner], (part, np.arange(len(part) + 1)))
        norms = np.sqrt((each * each).sum(axis=1))
        scale = np.where(norms > clip, clip / np.maximum(norms, np.finfo(norms.dtype).tiny), 1.0)
        out[a:b] = backend.segment_sum(each, scale, begin)
        a = b
    return out
