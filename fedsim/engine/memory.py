"""What clients remember from visit to visit, held by the driver: a row per replica and client."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Arrays
from fedsim.errors import InvalidInput
from fedsim.protocols import Algorithm, Problem

LARGEST = 8_000_000_000  # bytes


def memory_of(algorithm: Algorithm, problem: Problem, replicas: int, dtype: np.dtype[Any]) -> Arrays:
    """Everybody's memory before the first round, (replicas, clients, ...) per name."""
    rows = algorithm.memory(problem.own)
    out = {}
    for name, row in rows.items():
        row = np.asarray(row, dtype)
        size = replicas * problem.clients * row.nbytes
        if size > LARGEST:
            raise InvalidInput(
                f"{type(algorithm.own).__name__} remembers {size / 1e9:.0f} GB for {problem.clients:,} clients in "
                f"{replicas} replicas; run fewer replicas at a time, such as replicas=range(0, 1)"
            )
        out[name] = np.zeros((replicas, problem.clients, *row.shape), dtype)  # pages come on use
        if row.any():
            out[name][:] = row
    return out
