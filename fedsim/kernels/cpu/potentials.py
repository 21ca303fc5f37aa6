"""Sums of losses over rows of data, for a flat batch of jobs, compiled; rows as in `gradients`."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cpu.elementary import exp64, jit, log64

TILE = 64  # rows whose linear predictors are held at once


@jit
def logistic_potentials(theta, x, y, offsets, client, rows, start, share, out):
    """sum over rows of log(1 + exp(-+ x theta)), minus for y = 1, plus the rows' share of the prior, in float64."""
    z, whole = np.empty(TILE), len(rows) == 0
    for job in range(len(theta)):
        t, begin = theta[job], offsets[client[job]]
        first, last = (0, offsets[client[job] + 1] - begin) if whole else (start[job], start[job + 1])
        total = 0.0
        for i in range(len(t)):
            total += t[i] * t[i]
        total *= share * (last - first) / 2
        for tile in range(first, last, TILE):
            n = min(TILE, last - tile)
            for r in range(n):
                at = begin + (tile + r if whole else rows[tile + r])
                row, score = x[at], 0.0
                for i in range(len(t)):
                    score += row[i] * t[i]
                z[r] = score if y[at] == 0 else -score
            for r in range(n):
                total += max(z[r], 0.0) + log64(1.0 + exp64(-abs(z[r])))
        out[job] = total
