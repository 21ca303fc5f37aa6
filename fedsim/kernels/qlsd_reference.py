"""QLSD's messages in plain NumPy: short, slow, and the oracle of `kernels/qlsd.py` and `qlsd_logistic.py`.

The arguments are theirs, but that `quantise(values, coins)` of a codec stands for the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.kernels import reference

Results = tuple[Array, Array, Array | None]
Quantise = Callable[[Array, Array], tuple[Array, Array]]


def gaussian_messages(
    theta: Array, x: Array, offsets: Array, precision: Array, client: Array, rows: Array | None,
    key: Array | None, terms: tuple[Any, ...], coins: Array, quantise: Quantise,
) -> Results:  # fmt: skip
    """Gradients are sums of P (theta - x_row)."""

    def gradient(t: Array, c: int, chosen: Array) -> Array:
        p = precision[c if len(precision) > 1 else 0]
        total = len(chosen) * t - x[chosen].sum(axis=0)
        return np.asarray(p * total if p.ndim == 1 else p @ total)

    return _messages(gradient, theta, offsets, client, rows, key, terms, coins, quantise)


def logistic_messages(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None, key: Array | None,
    terms: tuple[Any, ...], coins: Array, quantise: Quantise,
) -> Results:  # fmt: skip
    """Gradients are sums of (1 / (1 + exp(-x_row theta)) - y_row) x_row."""

    def gradient(t: Array, c: int, chosen: Array) -> Array:
        return np.asarray(x[chosen].T @ (1 / (1 + reference.exp(-(x[chosen] @ t))) - y[chosen]))

    return _messages(gradient, theta, offsets, client, rows, key, terms, coins, quantise)


def _messages(
    gradient: Callable[[Array, int, Array], Array], theta: Array, offsets: Array, client: Array,
    rows: Array | None, key: Array | None, terms: tuple[Any, ...], coins: Array, quantise: Quantise,
) -> Results:  # fmt: skip
    control, anchor, memory, rate = terms
    v = np.empty_like(theta)
    for job, c in enumerate(client.tolist()):
        n = int(offsets[c + 1] - offsets[c])
        chosen = offsets[c] + np.arange(n)
        if rows is not None and key is not None:
            chosen = offsets[c] + rng.choice(key[job : job + 1], n, int(rows[c]))[0]
        v[job] = gradient(theta[job], c, chosen) - (0 if control is None else gradient(control[job], c, chosen))
        v[job] *= n / len(chosen)
    v = v if anchor is None else v + anchor
    v = v if memory is None else v - memory
    sent, bits = quantise(v, coins)
    return sent, bits, None if memory is None else memory + rate * sent
