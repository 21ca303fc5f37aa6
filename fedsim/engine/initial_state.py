"""State before the first round: that of the servers, and the memory of all clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.protocols import Algorithm, Problem, ProblemLike

LARGEST = 8_000_000_000  # bytes


def first_states(algorithm: Algorithm, problem: ProblemLike, starts: Array, timing_only: bool) -> tuple[Arrays, Arrays]:
    """Return the state of the first replica, and those of all replicas stacked, from their starts (replicas, d).

    Where all start at one point, `init` is called once: it may be expensive (a minimiser to be checked). With
    `timing_only` one row stands for all replicas.
    """
    first = {n: np.asarray(s) for n, s in algorithm.init(problem, np.array(starts[0])).items()}
    if timing_only or starts.strides[0] == 0 or (starts == starts[0]).all():
        count = 1 if timing_only else len(starts)
        return first, {n: np.repeat(s[None], count, 0) for n, s in first.items()}
    others = [algorithm.init(problem, np.array(start)) for start in starts[1:]]
    return first, {n: np.stack([s, *(np.asarray(other[n]) for other in others)]) for n, s in first.items()}


def first_memory(algorithm: Algorithm, problem: Problem, replicas: int, dtype: np.dtype[Any]) -> Arrays:
    """Return the memory of all clients, (replicas, clients, ...) per name."""
    rows = algorithm.memory(problem.wrapped)
    out = {}
    for name, row in rows.items():
        row = np.asarray(row, dtype)
        size = replicas * problem.clients * row.nbytes
        if size > LARGEST:
            raise InvalidInput(
                f"{type(algorithm.wrapped).__name__} remembers {size / 1e9:.0f} GB for {problem.clients:,} clients in "
                f"{replicas} replicas; run fewer replicas at a time, such as replicas=range(0, 1)"
            )
        out[name] = np.zeros((replicas, problem.clients, *row.shape), dtype)  # pages come on use
        if row.any():
            out[name][:] = row
    return out
