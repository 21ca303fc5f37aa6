"""What the server sees of a closed round: the replies that arrived, sorted by client, of one replica or of many."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Replies:
    """`replies[name]` is (m, d); `mean` and `sum` give (d,), or (replicas, d) where the server is batched.

    A mean over nobody is the state's value of that name (an averaging server keeps its model), or zero where the
    state has none (a mean of updates). `fs.explain("replies")` has it in one table.
    """

    def __init__(
        self, values: dict[str, Array], clients: Array, multiplicity: Array, staleness: Array, weights: Array,
        starts: Array, round: int, state: dict[str, Array], population: int, backend: Any, single: bool,
    ) -> None:  # fmt: skip
        self.clients, self.multiplicity, self.staleness, self.weights = clients, multiplicity, staleness, weights
        self.starts, self.round, self.population = starts, round, population
        self._values, self._state, self._backend, self._single = values, state, backend, single

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, name: str) -> Array:
        return self._values[name]

    @property
    def count(self) -> Any:
        """How many arrived: a number, or (replicas, 1)."""
        count = np.diff(self.starts)
        return int(count[0]) if self._single else count[:, None]

    def mean(self, name: str) -> Array:
        """The policy's weighted mean."""
        out = self.weighted(name, self.weights)
        empty = np.diff(self.starts) == 0
        if empty.any() and name in self._state:
            kept = self._state[name][None] if self._single else self._state[name]
            out = np.where(empty[:, None], kept, out[None] if self._single else out)
            out = out[0] if self._single else out
        return out

    def sum(self, name: str) -> Array:
        """The plain sum."""
        return self.weighted(name, np.ones(len(self.clients)))

    def weighted(self, name: str, weights: Array) -> Array:
        """A sum with any weights, one per reply, in client order."""
        values = self._values[name]
        flat = values.reshape(len(values), math.prod(values.shape[1:]))
        out = self._backend.segment_sum(flat, weights, self.starts).reshape(-1, *values.shape[1:])
        return np.asarray(out[0] if self._single else out)
