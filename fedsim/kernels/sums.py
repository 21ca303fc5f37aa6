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
def langevin_step(values, weights, starts, theta, precision, gamma, spread, noise, out):
    """QLSD's server: out = theta - gamma (sum of w values + precision theta) + spread noise, replica by replica."""
    _segments(values, weights, starts, out)
    cast = out.dtype.type
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            gradient = out[r, i] + precision[r, 0] * theta[r, i]
            out[r, i] = theta[r, i] - cast(gamma) * gradient + cast(spread) * noise[r, i]


@jit
def segment_sum(values, weights, starts):
    """The compiled twin of `reference.segment_sum`: same bits."""
    out = np.empty((len(starts) - 1, values.shape[1]), values.dtype)
    _segments(values, weights.astype(values.dtype), starts, out)
    return out
