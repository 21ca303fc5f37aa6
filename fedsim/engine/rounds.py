"""Rounds as values, which both clocks return: columns of visits, and sums over them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.rules.visits import ARRIVED, CALLED_OFF, DROPPED, LATE

if TYPE_CHECKING:
    from fedsim.engine.system import MessageSizes

CAUSES = ("late_s", "dropped_s", "called_off_s")  # wasted seconds of devices, by outcome
LOST = (LATE, DROPPED, CALLED_OFF)  # in the same order
PER_REPLICA = (  # the columns of a block that have a row for each replica
    "lengths", "stopped_by", "opened_s", "closed_s", "selected", "unselected_bits", "backhaul_bits", "oldest_version",
    "offsets",
)  # fmt: skip


class VisitOutcomes(NamedTuple):
    """How visits ended, one column a field: in a block flat, inside a clock of any shape."""

    client: Array  # int32
    site: Array  # int32
    visit: Array  # int32: how many visits the client had begun before; 0 in synchronous rounds
    version: Array  # int32: the site's aggregations before the visit started: the broadcast that it started from
    multiplicity: Array  # int32
    outcome: Array  # int8: rules.visits.ARRIVED, LATE, CALLED_OFF or DROPPED; 0 is an empty slot
    started_s: Array
    downloaded_s: Array  # nan: not reached
    computed_s: Array  # nan: not reached
    ended_s: Array
    down_bits: Array  # int64: left the server
    up_bits: Array  # int64: left the client
    backhaul_bits: Array  # int64: left the client for other sites (gossip)


DTYPES = ("i4", "i4", "i4", "i4", "i4", "i1", "f8", "f8", "f8", "f8", "i8", "i8", "i8")  # of the columns above


class CloudTimes(NamedTuple):
    """When edges exchanged models with the cloud, (R, n, sites) each; nan where they did not."""

    closed_s: Array  # the edge's own aggregation
    at_cloud_s: Array  # its model reached the cloud, after this round
    from_cloud_s: Array  # the cloud's model reached it, before this round

    def bits(self, sizes: MessageSizes) -> Array:
        """Return the bits between edges and cloud, (R, n); both messages of an edge count in the round that merges."""
        merged = np.count_nonzero(~np.isnan(self.at_cloud_s), axis=2)
        return np.asarray(merged * (sizes.to_cloud + sizes.from_cloud))


class GossipMessages(NamedTuple):
    """The messages that sites sent each other, ordered by replica, round, receiver, sender; and what each site did."""

    offsets: Array  # (R, n + 1): messages of round i are offsets[r, i] : offsets[r, i + 1]
    sender: Array  # int32
    receiver: Array  # int32
    bits: Array  # int64: left the sender
    weight: Array  # of the sender's reply at the receiver
    outcome: Array  # int8: ARRIVED in time, LATE, or DROPPED: it broke
    received: Array  # bool: aggregated by its receiver
    arrived_s: Array  # nan: not in time
    own_weight: Array  # (R, n, sites) of a site's own reply, with the weights of replies that are missing
    aggregated: Array  # (R, n, sites) bool: a site that drops out before it has a reply keeps its model
    ended_s: Array  # (R, n, sites) when a site ended the round: nan after the replica stopped


class Starts(NamedTuple):
    """Visits of asynchronous clients by the round of the version that they started from, in the order of starts."""

    client: Array  # int32
    visit: Array  # int32: how many visits the client had begun before
    started_s: Array
    offsets: Array  # (R, n + 1), as those of a block


@dataclass(frozen=True)
class RoundBlock:
    """n consecutive rounds of some replicas. Visits are ordered by replica, round, site, client, then end.

    A replica's first k rounds are therefore one slice of every column, for any k.
    """

    first_round: int  # counted from 1
    replicas: Array  # (R,) positions 0 ... of the replicas
    lengths: Array  # (R,) rounds of each replica, up to n; fewer where it stopped
    stopped_by: Array  # (R,) rules.closing.RUNNING, or why a replica has no further round
    opened_s: Array  # (R, n)
    closed_s: Array  # (R, n)
    selected: Array  # (R, n) int64: visits that started from the version before the round
    unselected_bits: Array  # (R, n) int64: broadcasts to clients that were not selected
    backhaul_bits: Array  # (R, n) int64: between sites
    oldest_version: Array  # (R, n) int64: no visit in flight after the round started from an older broadcast
    offsets: Array  # (R, n + 1): visits of round i are offsets[r, i] : offsets[r, i + 1]
    visits: VisitOutcomes
    cloud: CloudTimes | None = None  # of tiers
    gossip: GossipMessages | None = None
    starts: Starts | None = None  # of asynchronous clients; None: visits end in the round in which they start
    setup_bits: int = 0  # that all clients together sent before the run's first round, which counts them
    one_timeline: bool = False  # nothing was drawn: the visits of all replicas are the same, and are listed once

    @property
    def rounds(self) -> int:
        """n, the most rounds of a replica."""
        return int(self.closed_s.shape[1])

    @cached_property
    def row_of(self) -> Array:
        """(visits,) r * n + i of the round that a visit ended in; r is 0 where there is one timeline."""
        return self.per_visit(np.arange(self.listed * self.rounds))

    @property
    def listed(self) -> int:
        """Of how many replicas visits are listed."""
        return 1 if self.one_timeline else len(self.replicas)

    @cached_property
    def sizes(self) -> Array:
        """(R, n) visits of every round."""
        return np.diff(self.offsets, axis=1)

    @cached_property
    def all_arrive(self) -> bool:
        """True if every visit arrives, once."""
        v = self.visits
        return bool((v.outcome == ARRIVED).all()) and constant(v.multiplicity) in (0, 1)

    def per_visit(self, values: Array) -> Array:
        """Return a value of every listed round, (listed * n,), for each of its visits."""
        return np.repeat(values, self.sizes[: self.listed].ravel())

    def for_all(self, replicas: Array) -> RoundBlock:
        """Return the block of one replica as that of these, whose timelines are the same."""

        def each(column: Array) -> Array:
            return np.broadcast_to(column, (len(replicas), *column.shape[1:]))

        columns: dict[str, Any] = {name: each(getattr(self, name)) for name in PER_REPLICA}
        cloud = None if self.cloud is None else CloudTimes(*map(each, self.cloud))
        block = replace(self, replicas=replicas, cloud=cloud, one_timeline=True, **columns)
        return block if self.gossip is None else block.by_replica()

    def by_replica(self) -> RoundBlock:
        """Return the block with the visits, and messages, of every replica listed."""
        if not self.one_timeline:
            return self
        times, gossip = len(self.replicas), self.gossip
        every = VisitOutcomes(*(np.tile(column, times) for column in self.visits))
        if gossip is not None:
            gossip = GossipMessages(*(np.tile(column, (times,) + (1,) * (column.ndim - 1)) for column in gossip))
            gossip = gossip._replace(offsets=_one_after_another(gossip.offsets))
        offsets = _one_after_another(self.offsets)
        return replace(self, visits=every, gossip=gossip, offsets=offsets, one_timeline=False)

    def sums(self, column: Array) -> Array:
        """Return the sums of an integer column over the visits of every round, (R, n)."""
        if (value := constant(column)) is not None:
            return self.sizes * value
        total = np.zeros(len(column) + 1, np.int64)
        np.cumsum(column, out=total[1:])
        return np.asarray(np.diff(total[self.offsets], axis=1))

    # --- What counts of a visit: in a star by its outcome, over gossip by those of its messages -----------------------

    @cached_property
    def nothing_wasted(self) -> bool:
        """True if all visits arrived in time; False over gossip, where messages may be wasted in any round."""
        return self.gossip is None and bool((self.visits.outcome == ARRIVED).all())

    @cached_property
    def replied(self) -> Array:
        """(visits,) bool: the reply was aggregated, over gossip by any site."""
        if self.gossip is None:
            return np.asarray(self.visits.outcome == ARRIVED)
        replied = self.gossip.aggregated[self._counted].ravel()  # its own reply
        replied[self.sender_visit[self.gossip.received]] = True
        return replied

    @cached_property
    def late(self) -> Array:
        """(visits,) int64: visits that were cut, over gossip messages that came too late."""
        if self.gossip is None:
            return np.isin(self.visits.outcome, (LATE, CALLED_OFF)).astype(np.int64)
        return self._per_sender(self.gossip.outcome == LATE)

    @cached_property
    def wasted_bits(self) -> Array:
        """(visits,) int64: sent and not aggregated."""
        if self.gossip is None:
            return np.where(self.visits.outcome == ARRIVED, 0, self.visits.up_bits)
        return self._per_sender(np.where(self.gossip.received, 0, self.gossip.bits))

    @cached_property
    def dropped_bits(self) -> Array:
        """(visits,) int64: wasted bits of visits, over gossip of messages, that were not late."""
        if self.gossip is None:
            return np.where(self.visits.outcome == DROPPED, self.visits.up_bits, 0)
        wasted = ~self.gossip.received & (self.gossip.outcome != LATE)
        return self._per_sender(np.where(wasted, self.gossip.bits, 0))

    @cached_property
    def sender_visit(self) -> Array:
        """(messages,) the visit whose reply a message is; every site has one in each round."""
        assert self.gossip is not None
        begin = np.repeat(self.offsets[:, :-1].ravel(), np.diff(self.gossip.offsets, axis=1).ravel())
        return np.asarray(begin + self.gossip.sender)

    @property
    def _counted(self) -> Array:
        """(R, n) bool: the rounds that a replica has."""
        return np.asarray(np.arange(self.rounds) < self.lengths[:, None])

    def _per_sender(self, column: Array) -> Array:
        out = np.zeros(len(self.visits.client), np.int64)
        np.add.at(out, self.sender_visit, column)
        return out

    @cached_property
    def columns(self) -> Arrays:
        """The columns of `rounds`, (R, n) each."""
        v = self.visits
        arrived, dropped = v.outcome == ARRIVED, v.outcome == DROPPED
        lost, no_bits = ~arrived, np.zeros(self.closed_s.shape, np.int64)
        nothing_wasted = self.nothing_wasted
        up = self.sums(v.up_bits)
        if self.first_round == 1:
            up[:, :1] += self.setup_bits
        made: Arrays = {
            "opened_s": self.opened_s, "closed_s": self.closed_s, "selected": self.selected,
            "arrived": self.sums(arrived),
            "dropped": no_bits if nothing_wasted else self.sums(dropped),
            "late": no_bits if nothing_wasted else self.sums(self.late),
            "uplink_bits": up, "downlink_bits": self.sums(v.down_bits) + self.unselected_bits,
            "wasted_bits": no_bits if nothing_wasted else self.sums(self.wasted_bits),
            "dropped_bits": no_bits if nothing_wasted else self.sums(self.dropped_bits),
            "wasted_down_bits": no_bits if nothing_wasted else self.sums(np.where(lost, v.down_bits, 0)),
        }  # fmt: skip
        seconds = self._seconds(lost, nothing_wasted)
        made["wasted_s"] = seconds[CAUSES[0]] + seconds[CAUSES[1]] + seconds[CAUSES[2]]
        return made | seconds | {"backhaul_bits": self.backhaul_bits + self.sums(v.backhaul_bits)}

    def _seconds(self, lost: Array, nothing_wasted: bool) -> Arrays:
        """Return device seconds that were lost, by cause, summed in the order of visits: equal bits on both clocks."""
        if nothing_wasted:
            return dict.fromkeys(CAUSES, np.zeros(self.closed_s.shape))
        at = np.flatnonzero(lost)
        cause = np.zeros(CALLED_OFF + DROPPED + 1, np.int64)
        cause[list(LOST)] = range(len(LOST))
        cell = self.row_of[at] * len(CAUSES) + cause[self.visits.outcome[at]]
        spent = (self.visits.ended_s - self.visits.started_s)[at]
        listed = (self.listed, self.rounds, len(CAUSES))
        totals = np.bincount(cell, spent, minlength=math.prod(listed)).astype(np.float64).reshape(listed)
        totals = np.broadcast_to(totals, (len(self.replicas), *listed[1:]))
        return dict(zip(CAUSES, np.moveaxis(totals, 2, 0), strict=True))


def _one_after_another(offsets: Array) -> Array:
    """Return the offsets of replicas that are listed one after another, from equal ones."""
    return np.asarray(offsets + offsets[:, -1:] * np.arange(len(offsets))[:, None])


def constant(column: Array) -> int | None:
    """Return the number that all rows of an integer column have, or None."""
    if not len(column):
        return 0
    low = column.min()
    return int(low) if low == column.max() else None


def offsets_of(counts: Array) -> Array:
    """Return the offsets (R, n + 1) of rows with these counts (R, n)."""
    starts, (replicas, rounds) = np.concatenate([[0], np.cumsum(counts)]), counts.shape
    return np.asarray(starts[np.arange(replicas)[:, None] * rounds + np.arange(rounds + 1)])


def empty_outcomes(*shape: int) -> VisitOutcomes:
    """Return columns of empty slots."""
    return VisitOutcomes(*(np.zeros(shape, dtype) for dtype in DTYPES))


def ranges(starts: Array, ends: Array) -> Array:
    """Return starts[0] ... ends[0] - 1, starts[1] ... ends[1] - 1, and so on."""
    sizes = ends - starts
    begin = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else np.zeros(0, np.int64)
    return np.asarray(np.repeat(starts - begin, sizes) + np.arange(sizes.sum()))
