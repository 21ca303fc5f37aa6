"""From a policy's answer to the flat list of who takes part, for all replicas at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.old_engine.round import Cohort
from fedsim.rng import Draws


class Roster:
    """What a batched policy may look at while it selects: the population, for `rows` replicas."""

    def __init__(
        self,
        weights: Array,
        round: int,
        rows: int,
        rng: Draws,
        cumulative: Callable[[], Array] | None = None,
        sizes: Array | None = None,
    ) -> None:
        self.weights, self.clients, self.round, self.rows, self._rng = weights, len(weights), round, rows, rng
        self.sizes = sizes
        self._cumulative = cumulative or (lambda: np.cumsum(weights))

    def everybody(self) -> Array:
        return np.broadcast_to(np.arange(self.clients), (self.rows, self.clients))

    def available(self) -> Any:
        return True

    def sample_available(self, size: int) -> Array:
        return np.asarray(self._rng.choice(self.clients, min(size, self.clients)))

    def sample_weighted(self, draws: int) -> Array:
        return by_weight(self._cumulative(), self._rng.uniform(draws))

    def heard(self, ids: npt.ArrayLike) -> Array:
        return self._no_history()

    def last(self, ids: npt.ArrayLike, column: str = "duration_s") -> Array:
        return self._no_history()

    def _no_history(self) -> Array:
        raise InvalidInput(
            "view.heard and view.last know no history where rounds are computed in closed form; set history = True in "
            "the policy's class, and its rounds are run event by event"
        )


def by_weight(cumulative: Array, u: Array) -> Array:
    """The places that uniform numbers fall on where place i has the weight cumulative[i] - cumulative[i - 1]."""
    return np.asarray(np.minimum(np.searchsorted(cumulative, u), len(cumulative) - 1))


def cohort(answer: Array, clients: int) -> Cohort:
    """Sort out (replicas, size) ids, repeats allowed, or a (replicas, clients) mask."""
    answer = np.asarray(answer)
    if answer.ndim != 2 or (answer.size and answer.dtype.kind not in "biu"):
        raise InvalidInput(
            f"select returned an array of {answer.dtype} with shape {answer.shape[1:]}; return a list of client "
            "numbers, or a mask with one truth value per client"
        )
    replicas = len(answer)
    if answer.dtype == bool:
        if answer.shape[1] != clients:
            raise InvalidInput(f"select returned a mask of {answer.shape[1]} clients; there are {clients}")
        row, client = np.nonzero(answer)
        multiplicity = np.ones(len(row), np.int64)
    else:
        if answer.size and (answer.min() < 0 or answer.max() >= clients):
            wrong = answer.min() if answer.min() < 0 else answer.max()
            raise InvalidInput(f"select returned client {wrong}; clients are numbered 0 to {clients - 1}")
        ids = np.sort(answer.astype(np.int64), axis=1)
        first = np.ones(ids.shape, bool)
        first[:, 1:] = ids[:, 1:] != ids[:, :-1]
        row, column = np.nonzero(first)
        client = ids[row, column]
        at = np.flatnonzero(first.ravel())
        multiplicity = np.diff(np.append(at, first.size))
    starts = np.searchsorted(row, np.arange(replicas + 1))
    return Cohort(row, client, multiplicity, starts)
