"""Small data sets of clients that differ: rows of regressions, applicants for credit."""

from __future__ import annotations

import numpy as np

DIM = 3
START = np.array([1.0, -1.0, 0.5])


def client_data(sizes, seed=4):
    """Rows (X, y) whose scale and coefficients differ from client to client."""
    rng = np.random.default_rng(seed)
    data = []
    for n in sizes:
        x = rng.normal(size=(n, DIM)) * rng.uniform(0.4, 1.6, DIM)
        data.append((x, x @ rng.normal(size=DIM) + 0.3 * rng.normal(size=n)))
    return data


def applicants(clients=4, dim=5):
    generator = np.random.default_rng(2)
    truth, data = generator.normal(size=dim), []
    for n in (30, 40, 50, 60)[:clients]:
        x = np.column_stack([generator.normal(size=(n, dim - 1)), np.ones(n)])
        data.append((x, (generator.uniform(size=n) < 1 / (1 + np.exp(-x @ truth))).astype(float)))
    return data
