"""The gradients that QLSD's clients compress in plain NumPy: the oracle of `kernels/qlsd.py`, same arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.kernels import reference

Array = npt.NDArray[Any]


def gaussian_gradients(
    theta: Array, control: Array | None, x: Array, offsets: Array, sums: Array, precision: Array, client: Array,
    rows: Array | None, key: Array | None,
) -> Array:  # fmt: skip
    """(n / m) sum of P (theta - x_row), less the same at the control point."""
    out = np.empty_like(theta)
    for job, c in enumerate(client):
        p = precision[c if len(precision) > 1 else 0]
        own = x[offsets[c] : offsets[c + 1]]
        chosen = _chosen(own, c, job, rows, key)

        def gradient(t: Array, p: Array = p, chosen: Array = chosen) -> Array:
            total = len(chosen) * t - chosen.sum(axis=0)
            return np.asarray(p * total if p.ndim == 1 else p @ total)

        out[job] = len(own) / len(chosen) * (gradient(theta[job]) - (0 if control is None else gradient(control[job])))
    return out


def logistic_gradients(
    theta: Array, control: Array | None, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None,
    key: Array | None,
) -> Array:  # fmt: skip
    """(n / m) sum of (p(x_row theta) - y_row) x_row, less the same at the control point."""
    out = np.empty_like(theta)
    data = np.column_stack([x, y])
    for job, c in enumerate(client):
        own = data[offsets[c] : offsets[c + 1]]
        chosen = _chosen(own, c, job, rows, key)

        def gradient(t: Array, chosen: Array = chosen) -> Array:
            z, labels = chosen[:, :-1], chosen[:, -1]
            return np.asarray(z.T @ (1 / (1 + reference.exp(-(z @ t))) - labels))

        out[job] = len(own) / len(chosen) * (gradient(theta[job]) - (0 if control is None else gradient(control[job])))
    return out


def _chosen(own: Array, client: Any, job: int, rows: Array | None, key: Array | None) -> Array:
    if rows is None or key is None:
        return own
    return np.asarray(own[rng.choice(key[job : job + 1], len(own), int(rows[client]))[0]])
