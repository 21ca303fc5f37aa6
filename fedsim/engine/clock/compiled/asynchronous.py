"""The compiled clock of asynchronous clients: its state at time 0, and its lists as blocks."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.clock.compiled import SAVED, CompiledClock
from fedsim.engine.clock.compiled.site_tables import new_state
from fedsim.engine.rounds import RoundBlock, Starts, VisitOutcomes, offsets_of, ranges
from fedsim.kernels import KernelState
from fedsim.kernels.clock.state import (
    AGGREGATION,
    DONE,
    EVENT,
    FLIGHT,
    LISTED,
    NEEDS_GROWTH,
    OUTCOME_DTYPES,
    SERVER,
    Aggregations,
    AsynchronousState,
    Outcomes,
    Tables,
)
from fedsim.rules.closing import OPENING, RUNNING, rank


class AsynchronousClock(CompiledClock):
    """Blocks of rounds from the compiled loop of asynchronous clients. Nothing is carried over between blocks."""

    def new_state(self) -> AsynchronousState:
        return new_asynchronous_state(self.tables, self.system.replicas, self.new_links())

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        first, self.rounds = self.rounds + 1, self.rounds + rounds
        saves = self.saves and self.bytes <= SAVED
        self.before = (first - 1, deepcopy(self.now), self.carried) if saves else None
        places = self.now.visits.shape[1]
        visits = len(active) * rounds * self.tables.replies + places
        out = new_aggregations(2 * visits, 2 * visits + places, len(active) * rounds + 1)
        while (status := self.advance(active, out)) == NEEDS_GROWTH:
            out = self.grow(out, places, 1)
        if status != DONE:
            await self.refuse(active)
        closed, reasons = self.now.replica["closed_rounds"][active], self.now.replica["stopped_by"][active]
        lengths = np.clip(closed - first + 1, 0, rounds)
        return block_of(
            first, active, rounds, lengths, np.where(lengths < rounds, reasons, RUNNING), out, self.sizes.broadcast
        )

    def found(self) -> KernelState:
        from fedsim.kernels.cache import kernel_state
        from fedsim.kernels.clock.loops import advance_clients

        return kernel_state(
            advance_clients, self.tables, self.now, new_aggregations(0, 0, 0), np.arange(1), self.rounds
        )

    def advance(self, active: Array, out: Any) -> int:
        from fedsim.kernels.clock.loops import advance_clients

        return int(advance_clients(self.tables, self.now, out, active, self.rounds))

    def grow(self, out: Any, slots: int, sites: int) -> Any:
        counts = out.counts[0]
        visits, starts, segments = len(out.version), len(out.started_s), len(out.segments)
        if counts["visits"] == visits or counts["starts"] + slots > starts or counts["segments"] == segments:
            return longer(out, 2 * visits + 1, 2 * starts + slots, 2 * segments + 1)
        self.grow_links()
        return out


def new_asynchronous_state(tables: Tables, replicas: Array, links: Any) -> AsynchronousState:
    """Return the state before the first event: all clients are idle, and about to start."""
    base, (R, n) = new_state(tables, replicas, links), (len(replicas), len(tables.client))
    places = base.visits.shape[1]
    server, openings = np.zeros(R, SERVER), 1 if tables.size else n
    server["pending"], server["oldest"], server["newest"], server["opens_s"] = 1, -1, -1, np.inf
    server["free"], server["idle"] = places, n if tables.size else 0
    events = np.zeros((R, base.events.shape[1]), EVENT)
    events["rank"][:, :openings] = [rank(OPENING, 0, client) for client in range(openings)]  # as a heap already
    events["at"][:, :openings] = np.arange(openings)
    base.replica["events"] = openings
    return AsynchronousState(
        base.replica, events, base.sites, base.visits, base.clients, base.links, server,
        np.zeros((R, places), FLIGHT), np.tile(np.arange(places)[::-1], (R, 1)), np.zeros((R, n), np.int32),
        np.tile(np.arange(n, dtype=np.int32), (R, 1)),
    )  # fmt: skip


# --- Lists of what has ended and started ------------------------------------------------------------------------------


def new_aggregations(visits: int, starts: int, segments: int) -> Aggregations:
    """Return empty lists of these lengths."""
    ended = Outcomes(*(np.empty(visits, dtype) for dtype in OUTCOME_DTYPES))
    version, visit = np.empty((2, visits), np.int32)
    return Aggregations(
        np.zeros(1, LISTED), np.zeros(segments, AGGREGATION), ended, version, visit,
        np.empty(starts, np.int32), np.empty(starts, np.int32), np.empty(starts),
    )  # fmt: skip


def longer(out: Aggregations, visits: int, starts: int, segments: int) -> Aggregations:
    """Return the same lists, longer."""
    new, held = new_aggregations(visits, starts, segments), out.counts[0]
    new.counts[:], new.segments[: held["segments"]] = out.counts, out.segments[: held["segments"]]
    for names, length in (
        (("version", "visit"), held["visits"]),
        (("start_client", "start_visit", "started_s"), held["starts"]),
    ):
        for name in names:
            getattr(new, name)[:length] = getattr(out, name)[:length]
    for column, values in zip(new.visits, out.visits, strict=True):
        column[: held["visits"]] = values[: held["visits"]]
    return new


def block_of(
    first: int, active: Array, rounds: int, lengths: Array, stopped_by: Array, out: Aggregations, broadcast_bits: int
) -> RoundBlock:  # fmt: skip
    """Return the rounds of a block; its segments are in the order of replicas and rounds."""
    segments, shape = out.segments[: out.counts[0]["segments"]], (len(active), rounds)
    segments = segments[np.lexsort((segments["round"], segments["position"]))]
    at = np.searchsorted(active, segments["position"]) * rounds + segments["round"] - first

    def per_round(values: Array, missing: Array | float) -> Array:
        filled = np.empty(shape, values.dtype)
        filled[:] = missing
        filled.reshape(-1)[at] = values
        return filled

    counts, begun = segments["ends"] - segments["visits"], segments["last_start"] - segments["starts"]
    row, ended = np.repeat(at, counts), ranges(segments["visits"], segments["ends"])
    ended = ended[np.lexsort((out.visits.client[ended], row))]  # those of one client as they ended
    v, of_round, started = out.visits, per_round(begun, 0), ranges(segments["starts"], segments["last_start"])
    nothing = np.zeros(len(ended), np.int64)
    columns = Outcomes(*(column[ended] for column in v))
    return RoundBlock(
        first, active, lengths, stopped_by, per_round(segments["opened_s"], np.inf),
        per_round(segments["closed_s"], -np.inf), of_round, per_round(segments["unselected"], 0) * broadcast_bits,
        np.zeros(shape, np.int64), per_round(segments["oldest"], first + np.arange(rounds)),
        offsets_of(per_round(counts, 0)),
        VisitOutcomes(
            columns.client, nothing.astype(np.int32), out.visit[ended], out.version[ended], *columns[1:], nothing
        ),
        starts=Starts(
            out.start_client[started], out.start_visit[started], out.started_s[started], offsets_of(of_round)
        ),
    )  # fmt: skip
