"""Gamma variates, as the shares of a Dirichlet law need them, from keyed draws and exactly rounded arithmetic."""

from __future__ import annotations

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.rng.elementary import log64


def log_gamma_draws(key: Array, shape: Array) -> Array:
    """The logarithm of one Gamma(shape, 1) variate per key: Marsaglia and Tsang (2000), retried until accepted.

    A shape below 1 goes through G(a) = G(a + 1) U^(1/a), in logarithms, so that no share underflows.
    """
    lifted = shape + 1.0  # above 1 always, so that one rule does for all
    d = lifted - 1 / 3
    c = 1 / np.sqrt(9 * d)
    out = np.full(len(key), np.nan)
    waiting, step = np.arange(len(key)), 0
    while len(waiting):
        x = rng.normal(key[waiting], 1, 0, call=2 * step + 1)[:, 0]
        u = rng.uniform(key[waiting], 2, 2 * step + 2)[:, 0]
        v = 1 + c[waiting] * x
        v = v * v * v
        right = 0.5 * x * x + d[waiting] * (1 - v + log64(np.where(v > 0, v, 1.0)))
        good = (v > 0) & (log64(u) < right)
        at = waiting[good]
        out[at] = log64(d[at]) + log64(v[good])
        waiting, step = waiting[~good], step + 1
    return np.asarray(out + log64(rng.uniform(key, 2, 0)[:, 0]) / shape)
