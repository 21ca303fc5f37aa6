"""How replies become the new model: segments, weights, what a server reads, the merge at the cloud."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.engine.rounds import RoundBlock
from fedsim.engine.sites import Sites
from fedsim.engine.system import System
from fedsim.errors import InvalidInput
from fedsim.protocols import Backend
from fedsim.protocols.policy import Arrived
from fedsim.rng import Draws
from fedsim.runtime.answers import all_locked, locked, weighed


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


def segments_of(
    system: System, active: Array, position: Array, site: Array, client: Array, multiplicity: Array
) -> Segments:  # fmt: skip
    """Return the segments of replies that arrived, which are ordered by replica, site, client."""
    sites, order = system.sites, None
    replica = np.searchsorted(active, position)
    clients: int | Array
    if sites.models == 1:
        segment, p, clients = replica, system.weights[client], system.population
        if sites.count > 1:  # a cloud keeps the only model: sums run in client order, whatever the edge
            order = np.lexsort((client, segment))
    else:
        segment, p, clients = replica * sites.models + site, sites.share(system.weights)[client], sites.size[client]
    if order is not None:
        segment, client, multiplicity, p = segment[order], client[order], multiplicity[order], p[order]
    starts = np.searchsorted(segment, np.arange(len(active) * sites.models + 1))
    arrived = Arrived(locked(p), locked(multiplicity), locked(starts), clients, system.policy)
    weights = weighed(system.algorithm.weigh or system.policy.weigh, arrived)
    weights.flags.writeable = False
    return Segments(
        np.repeat(active, sites.models), np.tile(np.arange(sites.models), len(active)), starts, client, multiplicity,
        np.zeros(len(client), np.int64), weights, order,
    )  # fmt: skip


def neighbours_of(block: RoundBlock, i: int, counted: Array) -> Segments:
    """Return the segments of round i over gossip: a site's own reply and those of neighbours that arrived in time."""
    gossip = block.gossip
    assert gossip is not None
    sites = gossip.aggregated.shape[2]
    aggregated = np.flatnonzero(gossip.aggregated[counted, i].ravel())  # segments: place in counted * sites + site
    begin, end = gossip.offsets[counted, i], gossip.offsets[counted, i + 1]
    at = np.concatenate([np.arange(a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True)])
    place = np.repeat(np.arange(len(counted)), end - begin)[gossip.received[at]]
    at = at[gossip.received[at]]
    segment = np.concatenate([place * sites + gossip.receiver[at], aggregated])
    client = np.concatenate([gossip.sender[at].astype(np.int64), aggregated % sites])
    weights = np.concatenate([gossip.weight[at], gossip.own_weight[counted, i].ravel()[aggregated]])
    by_client = np.lexsort((client, segment))
    segment, client, weights = segment[by_client], client[by_client], weights[by_client]
    weights.flags.writeable = False
    first = block.offsets[counted, i]
    replied = np.concatenate([block.replied[a : a + sites] for a in first.tolist()])
    order = (np.cumsum(replied) - 1)[segment // sites * sites + client]
    starts = np.append(np.searchsorted(segment, aggregated), len(segment))
    nothing = np.zeros(len(client), np.int64)
    return Segments(
        block.replicas[counted][aggregated // sites], aggregated % sites, starts, client, nothing + 1, nothing,
        weights, order, np.flatnonzero(client == segment % sites),
    )  # fmt: skip


def average(theta: Array, sites: Sites, backend: Backend) -> Array:
    """Return every replica's average, (replicas, d), of its models, which stand one after another."""
    weights = np.tile(sites.weights, len(theta) // sites.models)
    return np.asarray(backend.segment_sum(theta, weights, np.arange(0, len(theta) + 1, sites.models)))


def merge_at_cloud(
    state: Arrays, rows: Array, sites: Sites, merge: Callable[[Arrays, Array], Arrays] | None, backend: Backend
) -> None:
    """Give all edges of a replica one state, in place: the average, or what the algorithm's `merge` returns."""
    if merge is None:
        state["theta"][rows] = np.repeat(average(state["theta"][rows], sites, backend), sites.models, axis=0)
        return
    for of_one in rows.reshape(-1, sites.models):
        merged = merge(all_locked({n: s[of_one] for n, s in state.items()}), locked(sites.weights))
        for name, value in merged.items():
            state[name][of_one] = value


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
        own, here, s = slice(*self.starts[segment : segment + 2].tolist()), slice(segment, segment + 1), self._segments
        starts = np.array([0, own.stop - own.start])
        values = {n: v[own] for n, v in self._values.items()}
        of_site = None if s.own is None else s.own[here] - own.start
        one = Segments(
            s.position[here], s.site[here], starts, s.client[own], s.multiplicity[own], s.staleness[own],
            s.weights[own], None, of_site,
        )  # fmt: skip
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
        empty = self._segments.sizes == 0
        if empty.any() and name in self._state:
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
