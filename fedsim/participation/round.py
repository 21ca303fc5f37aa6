"""What a policy sees of a round, and what it is told of its replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.arrays import Array


@dataclass(frozen=True)
class Arrived:
    """The replies that a round folds: one row each, sorted by replica, then client."""

    p: Array  # (m,) the clients' weights p_c
    multiplicity: Array  # (m,) how often each was drawn
    starts: Array  # (replicas + 1,) replica r owns rows starts[r]:starts[r + 1]
    clients: int  # of the whole population
    policy: Any = None  # the one that selected them, for algorithms that weigh by scheme

    def normalised(self, a: Array) -> Array:
        """`a` divided by its sum over the replica's rows, summed in client order."""
        totals = np.zeros(len(self.starts) - 1)
        row = np.repeat(np.arange(len(totals)), np.diff(self.starts))
        np.add.at(totals, row, a)  # unbuffered, hence sequential
        return np.asarray(a / totals[row])

    @property
    def counts(self) -> Array:
        """How many of its own replica arrived, per row."""
        count = np.diff(self.starts)
        return np.repeat(count, count)


@dataclass(frozen=True)
class Heard:
    """When the server hears of each visit of a round, for all replicas at once: what `closing` looks at."""

    opened_s: Array  # (replicas,)
    row: Array  # (m,) the visit's replica
    ends_s: Array  # (m,) its arrival, or its loss
    dropped: Array  # bool (m,)
    tie: Callable[[], Array]  # (m,) orders visits that end at the same instant; drawn only if asked for

    def last_s(self) -> Array:
        """When nothing is outstanding any more, (replicas,)."""
        closed = self.opened_s.copy()
        np.maximum.at(closed, self.row, self.ends_s)
        return closed

    def rank(self) -> Array:
        """0 for a replica's first arrival, 1 for the next, ...; dropped visits come last. (m,)"""
        order = self._order()
        begin = np.searchsorted(self.row, np.arange(len(self.opened_s)))  # rows are sorted by replica
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - begin[self.row]
        return rank

    def _order(self) -> Array:
        """By replica and arrival; the drawn order is asked for only where two arrive together."""
        at = np.where(self.dropped, np.inf, self.ends_s)
        order = np.lexsort((at, self.row))
        then = at[order]
        together = (then[1:] == then[:-1]) & (self.row[1:] == self.row[:-1]) & (then[1:] < np.inf)
        return np.lexsort((self.tie(), at, self.row)) if together.any() else order


# --- Methods that several policies share ------------------------------------------------------------
