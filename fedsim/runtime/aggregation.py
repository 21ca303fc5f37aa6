"""Aggregation: the replies that each model aggregates, their weights, and the `replies` of a server."""

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
from fedsim.protocols import Algorithm, Backend, Policy, Received
from fedsim.rng import Draws, Stream
from fedsim.runtime.jobs import Setting
from fedsim.runtime.validation import all_locked, locked, weighed


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


class Weighing:
    """The weights of replies: those that the policy declares, or an own `weigh` of the policy or of the algorithm."""

    def __init__(
        self, policy: Policy, algorithm: Algorithm, p: Array, clients: Array | None, models: int, sites: int
    ) -> None:
        """`p` and `clients`, (clients,): p_c among those that share a client's model, and how many (None: all)."""
        self._policy, self._weigh = policy, algorithm.weigh or policy.weigh
        self._owner = type((algorithm if algorithm.weigh else policy).wrapped).__name__
        self._p, self._clients, self._models = p, clients, models
        self._by_client = models < sites  # a cloud keeps the only model: sums run in client order, whatever the edge

    def segments(
        self, active: Array, position: Array, site: Array, client: Array, multiplicity: Array,
        staleness: Array | None = None,
    ) -> Segments:  # fmt: skip
        """Return the segments of replies that arrived, which are ordered by replica, site, client."""
        segment, order = np.searchsorted(active, position), None
        if self._models > 1:
            segment = segment * self._models + site
        elif self._by_client:
            order = np.lexsort((client, segment))
            segment, client, multiplicity = segment[order], client[order], multiplicity[order]
        starts = np.searchsorted(segment, np.arange(len(active) * self._models + 1))
        weights = self.weights(client, multiplicity, starts)
        weights.flags.writeable = False
        position, site = np.repeat(active, self._models), np.tile(np.arange(self._models), len(active))
        staleness = np.zeros(len(client), np.int64) if staleness is None else staleness
        return Segments(position, site, starts, client, multiplicity, staleness, weights, order)

    def weights(self, client: Array, multiplicity: Array, starts: Array) -> Array:
        """Return the weights of replies by segment; an own `weigh` is checked."""
        p, clients = self._p[client], len(self._p) if self._clients is None else self._clients[client]
        declared = declared_weights(self._policy.weighting, p, multiplicity, starts, clients)
        if self._weigh is None:
            return declared
        p, multiplicity, starts, declared = (locked(array) for array in (p, multiplicity, starts, declared))
        return weighed(self._owner, self._weigh, Received(p, multiplicity, starts, clients, self._policy, declared))


def declared_weights(
    weighting: str | None, p: Array, multiplicity: Array, starts: Array, clients: int | Array
) -> Array:
    """Return the weights that a policy declares, by segment; sums run in client order. `clients`: see `Received`."""
    count = np.diff(starts)
    segment = np.repeat(np.arange(len(count)), count)
    received = count[segment]
    if weighting is None or weighting == "uniform":
        return np.asarray(1.0 / received)
    if weighting == "scaled":
        return np.asarray(p * clients / received)
    complete = received == clients if weighting == "p" else np.zeros(len(p), bool)
    if complete.all():
        return p
    shares = multiplicity if weighting == "multiplicity" else p
    return np.where(complete, p, shares / np.bincount(segment, shares, len(count))[segment])


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
            unchanged = self._state[name][None] if self._single else self._state[name]
            out = np.where(empty[:, None], unchanged, out[None] if self._single else out)
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


# --- Models of several sites ----------------------------------------------------------------------------------------


def average(theta: Array, weights: Array, backend: Backend) -> Array:
    """Return every replica's average, (replicas, d), of its models, which are consecutive rows."""
    models = len(weights)
    every = np.tile(weights, len(theta) // models)
    return np.asarray(backend.segment_sum(theta, every, np.arange(0, len(theta) + 1, models)))


def merge_at_cloud(
    state: Arrays, rows: Array, weights: Array, merge: Callable[[Arrays, Array], Arrays] | None, backend: Backend
) -> None:
    """Give all edges of a replica one state, in place: the average, or what the algorithm's `merge` returns."""
    if merge is None:
        state["theta"][rows] = np.repeat(average(state["theta"][rows], weights, backend), len(weights), axis=0)
        return
    for of_one in rows.reshape(-1, len(weights)):
        merged = merge(all_locked({n: s[of_one] for n, s in state.items()}), locked(weights))
        for name, value in merged.items():
            state[name][of_one] = value
