"""Rounds that the compiled clock has made ahead of the learning, of all replicas, in the order of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.kernels.old_clock.state import GONE, NOTES, REFER
from fedsim.old_engine.replica_clock import ClockColumns, ReplicaClock
from fedsim.old_engine.round import Cohort, Ended, Round, Stopped, Stretch, Visits, columns

if TYPE_CHECKING:
    from fedsim.old_engine.tiers_arrays import TiersClock


class MadeRounds:
    """Rounds `first` on of some replicas, of each as many as its clock has made, in the order of rounds."""

    def __init__(self, first: int, replicas: Array, made: Array, status: Array) -> None:
        self.first, self.replicas, self._made, self._status = first, replicas, made, status
        self.count = int(made.max(initial=0))
        self.common = int(made.min()) if len(replicas) else 0  # so many, every replica has
        rounds = np.concatenate([np.arange(n) for n in made])
        self._order = np.argsort(rounds, kind="stable")  # by round, then replica
        self._round_of = rounds[self._order]
        self._pairs = np.searchsorted(self._round_of, np.arange(self.count + 1))  # where each round's replicas begin
        self._position = np.repeat(replicas, made)[self._order]

    def over(self, number: int, active: Array) -> tuple[Array, Array]:
        """The active replicas that have no such round, and those of which the reference has to be asked."""
        here = np.searchsorted(self.replicas, active)
        ends = self._made[here] == number - self.first
        return active[ends & (self._status[here] == GONE)], active[ends & (self._status[here] == REFER)]

    def has(self, number: int, active: Array) -> bool:
        """Whether the round of all these replicas is here, or known not to be."""
        if not self.first <= number or not np.isin(active, self.replicas).all():
            return False
        here = np.searchsorted(self.replicas, active)
        return bool(((self._made[here] > number - self.first) | (self._status[here] >= GONE)).all())


class CompiledRounds(MadeRounds):
    """What the clocks of some replicas have written: rounds `first` on, each replica as many as it has."""

    def __init__(
        self,
        first: int,
        active: Array,
        clocks: Sequence[ReplicaClock | TiersClock],
        status: Array,
        copy_bits: int,
        between: Callable[[Array], Array] | None = None,
    ) -> None:
        """`between`: bits between sites, of rounds by number; where there are several sites their notes are apart."""
        asynchronous = bool(clocks[0].said("asynchronous"))
        rounds, ended = zip(*(k.made() for k in clocks), strict=True)
        super().__init__(first, active, np.array([len(r) for r in rounds], np.int64), status)
        order = self._order
        every = _rows(rounds, order)
        sizes = np.concatenate([np.diff(r["end"], prepend=0) for r in rounds])
        begins = np.concatenate([[0], np.cumsum(sizes)])[:-1][order]
        sizes = sizes[order]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.repeat(begins - self._starts[:-1], sizes) + np.arange(self._starts[-1])
        v = _rows(ended, rows)
        arrived, late = v["arrived"], v["late"]
        self._times, self.number = v["times"], v["number"]
        self._version = v["version"] if asynchronous else None
        self._ended = Ended(
            np.ascontiguousarray(v["client"]), arrived, ~arrived & ~late, late, late & ~v["uploading"],
            np.ascontiguousarray(v["sent"]), np.ascontiguousarray(v["came_down"]), np.ascontiguousarray(v["spent_s"]),
        )  # fmt: skip
        copies = every["copied"] * copy_bits
        opened, closed, selected = (np.ascontiguousarray(every[n]) for n in ("opened", "closed", "selected"))
        backhaul = 0 if between is None else between(self._round_of + first)
        self._columns = columns(opened, closed, selected, self._starts, self._ended, copies, backhaul)
        self._begun: tuple[Array, Array] | None = None  # clients whose visits set out, and where each row's begin
        if asynchronous:  # a download counts when it ends, in which round ever its visit does
            self._columns["downlink_bits"] = every["came_down"] + copies
            self._begun = self._set_out(clocks, ended)
        if clocks[0].said("traced") and between is None:
            self._ordered_notes(clocks, rounds, order)

    def round(self, number: int, active: Array, stopped: Stopped) -> tuple[Round, Array]:
        """Round `number` of these replicas, and the visit numbers of its rows."""
        k = number - self.first
        low, high = self._pairs[k], self._pairs[k + 1]
        a, b = self._starts[low], self._starts[high]
        starts = self._starts[low : high + 1] - a
        visits = self._ended.part(slice(a, b))
        row = np.repeat(np.arange(high - low), np.diff(starts))
        who = Cohort(row, visits.client, self._times[a:b], starts)
        started = number if self._version is None else self._version[a:b]
        made = {name: column[low:high] for name, column in self._columns.items()}
        selected = None
        if self._begun is not None:
            client, starts = self._begun[0], self._begun[1][low : high + 1]
            client, starts = client[starts[0] : starts[-1]], starts - starts[0]
            selected = Cohort(
                np.repeat(np.arange(high - low), np.diff(starts)), client, np.ones(len(client), np.int64), starts
            )
        round = Round(number, self._position[low:high], who, visits, made, started, stopped, selected=selected)
        visit = self.number[a:b]
        if len(active) < high - low:
            kept = np.isin(round.active, active)
            round, visit = round.among(kept), visit[kept[row]]
            round = replace(round, replica=..., visit=...)
        return round, visit

    def stretch(self, number: int, active: Array, count: int, learnt: bool) -> Stretch:
        """So many rounds, which all these replicas have; where they are learnt, with whose visits they were."""
        k = number - self.first
        low, high = self._pairs[k], self._pairs[k + count]
        a, b = self._starts[low], self._starts[high]
        kept = np.isin(self._position[low:high], active)
        shape = count, len(active)
        made = {name: column[low:high][kept].reshape(shape) for name, column in self._columns.items()}
        sizes = np.diff(self._starts[low : high + 1])
        rows = np.repeat(kept, sizes)
        version = None if self._version is None else self._version[a:b][rows]
        ends = np.cumsum(np.add.reduceat(np.where(kept, sizes, 0), self._pairs[k : k + count] - low))
        selected = None
        if self._begun is not None:
            client, starts = self._begun[0], self._begun[1][low : high + 1]
            begun = np.diff(starts)
            own = client[starts[0] : starts[-1]][np.repeat(kept, begun)]
            last = np.cumsum(np.add.reduceat(np.where(kept, begun, 0), self._pairs[k : k + count] - low))
            selected = own, last
        visits = Visits(self._ended.part(slice(a, b)).part(rows), ends, version, selected=selected)
        who = None
        if learnt:
            sizes = sizes[kept]
            row, starts = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([[0], np.cumsum(sizes)])
            who = Cohort(row, visits.ended.client, self._times[a:b][rows], starts)
        return Stretch(number, active, made, 0, visits=visits, who=who)

    def _set_out(self, clocks: Sequence[ReplicaClock | TiersClock], ended: Sequence[Array]) -> tuple[Array, Array]:
        """The clients whose visits set out in each row: those that ended, here or later, and those in flight."""
        place = np.empty(len(self._order), np.int64)
        place[self._order] = np.arange(len(self._order))
        clients, rows, before = [], [], 0
        for clock, own, made in zip(clocks, ended, self._made.tolist(), strict=True):
            assert isinstance(clock, ReplicaClock)
            client, version = (
                np.concatenate([own[n], more])
                for n, more in zip(("client", "version"), clock.unfinished(), strict=True)
            )
            here = (version >= self.first) & (version < self.first + made)
            clients.append(client[here])
            rows.append(place[before + version[here] - self.first])
            before += made
        row, client = np.concatenate(rows), np.concatenate(clients)
        order = np.argsort(row, kind="stable")
        return client[order], np.searchsorted(row[order], np.arange(len(self._order) + 1))

    def trace(self, number: int, count: int, active: Array, replicas: Array) -> Arrays:
        """The events of so many rounds of these replicas: in each, of all openings, then of everybody's further way."""
        a, b = self._note_ends[[number - self.first, number - self.first + count]]
        kept = np.flatnonzero(np.isin(self._notes["replica"][a:b], active)) + a
        out = {name: column[kept] for name, column in self._notes.items()}
        return out | {"replica": replicas[out["replica"]]}

    def _ordered_notes(self, clocks: Sequence[ClockColumns], rounds: Sequence[Array], order: Array) -> None:
        pages = [k.written("notes", "notes") for k in clocks]
        offsets = np.concatenate([[0], np.cumsum([len(page) for page in pages])])[:-1]
        opening = [r["begun_notes"] + at for r, at in zip(rounds, offsets, strict=True)]
        end = [r["end_notes"] + at for r, at in zip(rounds, offsets, strict=True)]
        begin = [np.concatenate([[at], e])[:-1] for e, at in zip(end, offsets, strict=True)]
        low = np.concatenate([np.concatenate(begin)[order], np.concatenate(opening)[order]])
        high = np.concatenate([np.concatenate(opening)[order], np.concatenate(end)[order]])
        pairs = np.arange(len(order))
        number = self._round_of
        halves = np.lexsort((np.tile(pairs, 2), np.repeat([0, 1], len(pairs)), np.tile(number, 2)))
        low, sizes, pair = low[halves], (high - low)[halves], np.tile(pairs, 2)[halves]
        ends = np.cumsum(sizes)
        n = _rows(pages, np.repeat(low - (ends - sizes), sizes) + np.arange(ends[-1] if len(ends) else 0))
        self._note_ends = np.concatenate([[0], ends])[2 * self._pairs]
        self._notes = {
            "replica": np.repeat(self._position[pair], sizes), "round": n["round"] + 1,
            "time_s": np.ascontiguousarray(n["time"]), "client": np.ascontiguousarray(n["client"]),
            "event": np.array(NOTES, object)[n["what"]], "bits": np.ascontiguousarray(n["bits"]),
        }  # fmt: skip


def _rows(pages: Sequence[Array], rows: Array) -> Array:
    """These rows of all pages together; as plain bytes, which NumPy moves faster than records."""
    kind = pages[0].dtype
    whole = np.concatenate([page.view(np.uint8) for page in pages]).view(np.dtype((np.void, kind.itemsize)))
    return np.asarray(whole[rows].view(kind))
