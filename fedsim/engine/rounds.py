"""What a clock returns: rounds as values. Columns and sums over them; nothing here depends on which clock made them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.rules.visits import ARRIVED, CALLED_OFF, DROPPED, LATE

CAUSES = ("late_s", "dropped_s", "called_off_s")  # seconds of devices that were spent for nothing, by outcome
LOST = (LATE, DROPPED, CALLED_OFF)  # in the same order
INTEGERS = (
    "selected", "arrived", "dropped", "late", "uplink_bits", "downlink_bits", "wasted_bits", "dropped_bits",
    "wasted_down_bits", "backhaul_bits",
)  # fmt: skip


class Cohort(NamedTuple):
    """The clients selected for one round of a site, in client order, and what was drawn for their visits."""

    client: Array  # (m,) int64
    multiplicity: Array  # (m,) int64: how often the policy drew it
    compute_s: Array  # (m,)
    drop: Array  # (m,) rules.visits.NO_DROP, ...
    fraction: Array  # (m,): how far into that phase
    tie: Array  # (m,) int64: order among events of the same instant


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

    site_closed_s: Array  # the edge's own aggregation
    at_cloud_s: Array  # its model reached the cloud, after this round
    from_cloud_s: Array  # the cloud's model reached it, before this round


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
    starts: Starts | None = None  # of asynchronous clients; None: visits end in the round in which they start
    setup_bits: int = 0  # that all clients together sent before the run's first round, which counts them

    @property
    def rounds(self) -> int:
        """n, the most rounds of a replica."""
        return int(self.closed_s.shape[1])

    @cached_property
    def row_of(self) -> Array:
        """(visits,) r * n + i of the round that a visit ended in."""
        return np.repeat(np.arange(self.closed_s.size), np.diff(self.offsets, axis=1).ravel())

    def sums(self, column: Array) -> Array:
        """Return the sums of an integer column over the visits of every round, (R, n)."""
        total = np.zeros(len(column) + 1, np.int64)
        np.cumsum(column, out=total[1:])
        return np.asarray(np.diff(total[self.offsets], axis=1))

    @cached_property
    def columns(self) -> Arrays:
        """The columns of `rounds`, (R, n) each."""
        v = self.visits
        arrived, dropped = v.outcome == ARRIVED, v.outcome == DROPPED
        lost, no_bits = ~arrived, np.zeros(self.closed_s.shape, np.int64)
        smooth = not lost.any()
        up = self.sums(v.up_bits)
        if self.first_round == 1:
            up[:, 0] += self.setup_bits
        made: Arrays = {
            "opened_s": self.opened_s, "closed_s": self.closed_s, "selected": self.selected,
            "arrived": self.sums(arrived),
            "dropped": no_bits if smooth else self.sums(dropped),
            "late": no_bits if smooth else self.sums(lost & ~dropped),
            "uplink_bits": up, "downlink_bits": self.sums(v.down_bits) + self.unselected_bits,
            "wasted_bits": no_bits if smooth else self.sums(np.where(lost, v.up_bits, 0)),
            "dropped_bits": no_bits if smooth else self.sums(np.where(dropped, v.up_bits, 0)),
            "wasted_down_bits": no_bits if smooth else self.sums(np.where(lost, v.down_bits, 0)),
        }  # fmt: skip
        seconds = self._seconds(lost)
        made["wasted_s"] = seconds[CAUSES[0]] + seconds[CAUSES[1]] + seconds[CAUSES[2]]
        return made | seconds | {"backhaul_bits": self.backhaul_bits + self.sums(v.backhaul_bits)}

    def _seconds(self, lost: Array) -> Arrays:
        """Return device seconds that were lost, by cause; summed visit after visit, so that clocks round alike."""
        if not lost.any():
            return dict.fromkeys(CAUSES, np.zeros(self.closed_s.shape))
        at = np.flatnonzero(lost)
        cause = np.zeros(CALLED_OFF + DROPPED + 1, np.int64)
        cause[list(LOST)] = range(len(LOST))
        cell = self.row_of[at] * len(CAUSES) + cause[self.visits.outcome[at]]
        spent = (self.visits.ended_s - self.visits.started_s)[at]
        totals = np.bincount(cell, spent, minlength=self.closed_s.size * len(CAUSES))
        return dict(zip(CAUSES, np.moveaxis(totals.reshape(*self.closed_s.shape, len(CAUSES)), 2, 0), strict=True))


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
