"""Sums over the replies of a replica, always in client order, compiled."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.elementary import jit


@jit
def _segments(values, weights, starts, out):
    for r in range(out.shape[0]):
        total = out[r]
        total[:] = 0
        for row in range(starts[r], starts[r + 1]):
            w = weights[row]
            for i in range(out.shape[1]):
                total[i] += w * values[row, i]


@jit
def langevin_step(values, weights, starts, theta, centre, precision, drift, rate, gamma, spread, noise, out):
    """out = theta - gamma (drift + sum of w values + precision (theta - centre)) + spread noise, replica by replica.

    The server of the QLSD family where nobody looks between iterations; drift moves on by rate times the plain sum. An
    empty centre or drift is zero, and stays so.
    """
    _segments(values, weights, starts, out)
    cast = out.dtype.type
    total = np.empty_like(out[:1])
    for r in range(out.shape[0]):
        if len(drift):
            _segments(values, np.ones_like(weights), starts[r : r + 2], total)
        for i in range(out.shape[1]):
            away = theta[r, i] if len(centre) == 0 else theta[r, i] - centre[r, i]
            gradient = out[r, i]
            if len(drift):
                gradient = drift[r, i] + gradient
                drift[r, i] += cast(rate) * total[0, i]
            gradient = gradient + precision[r, 0] * away
            out[r, i] = theta[r, i] - cast(gamma) * gradient + cast(spread) * noise[r, i]


@jit
def segment_sum(values, weights, starts):
    """The compiled twin of `reference.segment_sum`: same bits."""
    out = np.empty((len(starts) - 1, values.shape[1]), values.dtype)
    _segments(values, weights.astype(values.dtype), starts, out)
    return out
