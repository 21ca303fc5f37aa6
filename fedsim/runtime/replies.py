"""What a server reads: replies by segment, sums over them in client order, and draws of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.protocols import Backend
from fedsim.rng import Draws, Stream
from fedsim.runtime.answers import locked
from fedsim.runtime.jobs import Setting


@dataclass(frozen=True)
class Segments:
    """Which replies each model of each replica aggregates: ordered by replica, then site, then client."""

    position: Array  # (segments,) of the replica
    site: Array  # (segments,)
    starts: Array  # (segments + 1,) segment s aggregates the replies starts[s] : starts[s + 1]
    client: Array  # (k,)
    multiplicity: Array  # (k,)
    staleness: Array  # (k,)
    weights: Array  # (k,) of `replies.mean`
    order: Array | None = None  # (k,) places among the replies as they came; None: as they came
    own: Array | None = None  # (segments,) over gossip, which of the k is the site's own reply

    @cached_property
    def sizes(self) -> Array:
        return np.diff(self.starts)

    @cached_property
    def any_empty(self) -> bool:
        return bool((self.sizes == 0).any())

    def consecutive(self, low: int, high: int) -> Segments:
        """Return segments low ... high - 1."""
        begin, end, own = self.starts[low], self.starts[high], slice(low, high)
        rows = slice(begin, end)
        out = Segments(
            self.position[own], self.site[own], self.starts[low : high + 1] - begin, self.client[rows],
            self.multiplicity[rows], self.staleness[rows], self.weights[rows], None,
            None if self.own is None else self.own[own] - begin,
        )  # fmt: skip
        out.__dict__["sizes"] = self.sizes[own]
        return out

    def chosen(self, which: Array) -> Segments:
        """Return the segments that are marked, (segments,) bool."""
        rows = np.repeat(which, self.sizes)
        return Segments(
            self.position[which], self.site[which], np.concatenate([[0], np.cumsum(self.sizes[which])]),
            self.client[rows], self.multiplicity[rows], self.staleness[rows], self.weights[rows],
        )  # fmt: skip


class SegmentReplies:
    """What `server` reads, see `protocols.Replies`: the replies of one segment, or of many stacked."""

    def __init__(
        self, values: Mapping[str, Array], segments: Segments, round: int, state: Arrays, backend: Backend,
        single: bool = False,
    ) -> None:  # fmt: skip
        self.clients, self.multiplicity, self.starts = segments.client, segments.multiplicity, segments.starts
        self.staleness, self.weights, self.round = segments.staleness, segments.weights, round
        self._values, self._segments, self._state = values, segments, state
        self._backend, self._single = backend, single

    def of(self, segment: int, state: Arrays) -> SegmentReplies:
        """Return one segment's replies, without a leading axis."""
        own, one = slice(*self.starts[segment : segment + 2]), self._segments.consecutive(segment, segment + 1)
        values = {n: v[own] for n, v in self._values.items()}
        return SegmentReplies(values, one, self.round, state, self._backend, single=True)

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, name: str) -> Array:
        return locked(self._named(name))

    def _named(self, name: str) -> Array:
        if name not in self._values:
            raise InvalidInput(f"replies[{name!r}]: the clients' replies hold {', '.join(self._values) or 'nothing'}")
        return self._values[name]

    @property
    def count(self) -> int | Array:
        """How many arrived: a number, or (segments, 1)."""
        return int(self._segments.sizes[0]) if self._single else self._segments.sizes[:, None]

    def mean(self, name: str) -> Array:
        """Return the weighted mean; of no reply the state's own value, or zero where the state has none."""
        out = self.weighted(name, self.weights)
        if self._segments.any_empty and name in self._state:
            empty = self._segments.sizes == 0
            kept = self._state[name][None] if self._single else self._state[name]
            out = np.where(empty[:, None], kept, out[None] if self._single else out)
            out = out[0] if self._single else out
        return out

    def own(self, name: str) -> Array:
        """Return the reply of the site's own client."""
        if self._segments.own is None:
            raise InvalidInput(f"replies.own({name!r}): only over gossip does a site have a client of its own")
        values = self._named(name)[self._segments.own]
        return locked(values[0] if self._single else values)

    def sum(self, name: str) -> Array:
        """Return the plain sum."""
        return self.weighted(name, np.ones(len(self.clients)))

    def weighted(self, name: str, weights: Array) -> Array:
        """Return a sum with any weights, one per reply, in client order."""
        values = np.ascontiguousarray(self._named(name))
        flat = values.reshape(len(values), math.prod(values.shape[1:]))
        out = self._backend.segment_sum(flat, weights, self.starts).reshape(-1, *values.shape[1:])
        return np.asarray(out[0] if self._single else out)


class ServerDraws:
    """A server's `rng`. Its key is made when it first draws; most servers never do."""

    def __init__(self, make: Callable[[], Draws]) -> None:
        self._make = make

    @cached_property
    def _draws(self) -> Draws:
        return self._make()

    def uniform(self, lanes: int | None = None) -> Any:
        return self._draws.uniform(lanes)

    def normal(self, lanes: int | None = None, dtype: npt.DTypeLike = np.float64) -> Any:
        return self._draws.normal(lanes, dtype)

    def integers(self, below: npt.ArrayLike, lanes: int | None = None) -> Any:
        return self._draws.integers(below, lanes)

    def choice(self, population: int, size: int) -> Any:
        return self._draws.choice(population, size)


def server_draws(setting: Setting, replica: Array, site: Array, round: int, single: bool = False) -> ServerDraws:
    """Return the draws of the servers of these replicas and sites in a round, counted from 0."""

    def make() -> Draws:
        key = setting.backend.keys(setting.seed, Stream.SERVER, replica=replica, client=site, round=round)
        return Draws(key, single, setting.backend)

    return ServerDraws(make)
