"""Sums over the replies of a replica, always in client order, compiled."""

from __future__ import annotations

from typing import Any

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


def segment_sum(values: Any, weights: Any, starts: Any) -> Any:
    """The compiled twin of `reference.segment_sum`: same bits."""
    out = np.empty((len(starts) - 1, values.shape[1]), values.dtype)
    _segments(np.ascontiguousarray(values), np.asarray(weights, values.dtype), starts, out)
    return out
