"""QLSD's messages in NumPy; arguments as in `cpu.qlsd`, except that a wire is keys and `quantise(values, keys)`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.kernels.reference import qsgd
from fedsim.protocols import Quantise, Terms, Wire
from fedsim.rng.elementary import exp

Results = tuple[Array, Array, Array]


def wire_form(d: int, dtype: str | None, levels: int | None, code: str | None, form: str | None) -> tuple[Quantise]:
    """Return a codec by its fields; None for fields that it does not have."""

    def plain(values: Array, keys: Array) -> tuple[Array, Array]:
        sent = values.astype(dtype or values.dtype)
        return sent.astype(values.dtype), np.full(len(values), 8 * sent.itemsize * d)

    def quantised(values: Array, keys: Array) -> tuple[Array, Array]:
        assert levels is not None
        return qsgd.quantise(values, keys, levels, code, form or "auto")

    return (plain if levels is None else quantised,)


def gaussian_messages(
    theta: Array, x: Array, offsets: Array, sums: Array, precision: Array, client: Array, rows: Array | None,
    key: Array | None, terms: Terms, wire: Wire,
) -> Results:  # fmt: skip
    """Return (sent, bits, memory) for gradients that are sums of P (theta - x_row)."""

    def gradient(t: Array, c: int, chosen: Array) -> Array:
        p = precision[c if len(precision) > 1 else 0]
        total = len(chosen) * t - x[chosen].sum(axis=0)
        return np.asarray(p * total if p.ndim == 1 else p @ total)

    return _messages(gradient, theta, offsets, client, rows, key, terms, wire)


def logistic_messages(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None, key: Array | None,
    terms: Terms, wire: Wire,
) -> Results:  # fmt: skip
    """Return (sent, bits, memory) for sums of (1 / (1 + exp(-x_row theta)) - y_row) x_row."""

    def gradient(t: Array, c: int, chosen: Array) -> Array:
        return np.asarray(x[chosen].T @ (1 / (1 + exp(-(x[chosen] @ t))) - y[chosen]))

    return _messages(gradient, theta, offsets, client, rows, key, terms, wire)


def _messages(
    gradient: Callable[[Array, int, Array], Array], theta: Array, offsets: Array, client: Array,
    rows: Array | None, key: Array | None, terms: Terms, wire: Wire,
) -> Results:  # fmt: skip
    (control, anchor, memory, rate), (coins, quantise) = terms, wire
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
    return sent, bits, theta[:0] if memory is None else memory + rate * sent
