"""The compiled clock of sites that gossip: columns in, blocks of rounds out; `kernels/clock/gossip_loop` is its loop.

Rows of rounds that some site has not ended are part of the state. Memory grows when the loop asks for it. Where a
message of the short path meets the one before it, the loop simulates from the start and continues.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock.compiled.gossip_tables import (
    fresh_rows,
    gossip_tables,
    more_rows,
    new_ends,
    new_gossip_state,
)
from fedsim.engine.clock.compiled.saved import copied, doubled, filled, flat
from fedsim.engine.clock.compiled.tables import PartColumns, RouteNumbers
from fedsim.engine.clock.gossip_rows import GossipColumns, backhaul_of, empty_columns, messages_of, too_far_ahead
from fedsim.engine.rounds import DTYPES, RoundBlock, VisitOutcomes, offsets_of
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.kernels.clock.gossip_state import Ends, GossipState
from fedsim.kernels.clock.state import DONE, NEEDS_GROWTH, NEVER_CLOSES, TOO_LATE, Links
from fedsim.kernels.found import Found
from fedsim.rules.closing import RUNNING

SAVED = 64e6  # bytes of state in a checkpoint; a larger one is simulated again from the start


class CompiledGossip:
    """Blocks of rounds of sites that gossip."""

    name = "compiled"

    def __init__(self, system: System, sizes: MessageSizes, parts: PartColumns, path: str) -> None:
        assert system.gossip is not None
        self.system, self.sizes, self.gossip, self.path, self.rounds = system, sizes, system.gossip, path, 0
        self.numbers, self.shared = RouteNumbers(parts.routes), parts.routes is not None
        self.tables = gossip_tables(system, sizes, parts, self.numbers)
        self.now: GossipState | Ends = new_ends(system, self.tables) if path == "short" else self.new_state()
        self.before: tuple[int, GossipState | Ends] | None = None

    def new_state(self) -> GossipState:
        """Return the state of the loop at time 0."""
        return new_gossip_state(self.system, self.tables, self.numbers, self.shared)

    @property
    def bytes(self) -> int:
        """The size of the state."""
        return sum(array.nbytes for array in flat(self.now).values())

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        first, self.rounds = self.rounds + 1, self.rounds + rounds
        self.before = (first - 1, copied(self.now)) if self.bytes <= SAVED else None
        if isinstance(self.now, Ends):
            block = self.short_block(self.now, first, active, rounds)
            if block is not None:
                return block
            self.path, self.now, self.rounds = "loop", self.new_state(), 0
            await self.resume(first - 1, active, {})
            return await self.next(active, rounds)
        self.now = more_rows(self.system, self.now, rounds + 2)
        while (status := self.advance(active)) == NEEDS_GROWTH:
            self.grow(self.now)
        if status != DONE:
            self.refuse(self.now, active)
        replica = self.now.replica[active]
        lengths = np.clip(replica["closed_rounds"] - first + 1, 0, rounds)
        stopped_by = np.where(lengths < rounds, replica["stopped_by"], RUNNING)
        rows = self.now.site_rows[active, :rounds], self.now.message_rows[active, :rounds]
        block = self.block(first, active, lengths, stopped_by, *rows)
        self.forget(self.now, rounds)
        return block

    def short_block(self, now: Ends, first: int, active: Array, rounds: int) -> RoundBlock | None:
        """Return the rounds of a block; None: messages meet, and only the loop can tell."""
        from fedsim.kernels.clock.uncontended_gossip import uncontended_gossip

        rows = fresh_rows(self.system, first, rounds)
        if uncontended_gossip(self.tables, now, *rows, active, first) != DONE:
            return None
        going = np.zeros(len(active), np.int64)
        return self.block(first, active, going + rounds, going + RUNNING, rows[0][active], rows[1][active])

    def advance(self, active: Array) -> int:
        """Run the kernel up to the present round; return why it ended."""
        from fedsim.kernels.clock.gossip_loop import advance_gossip

        return int(advance_gossip(self.tables, self.now, active, self.rounds))

    def found(self) -> Found:
        """Return where the machine code of this clock is."""
        from fedsim.kernels.cache import find
        from fedsim.kernels.clock.gossip_loop import advance_gossip
        from fedsim.kernels.clock.uncontended_gossip import uncontended_gossip

        if isinstance(self.now, Ends):
            rows = fresh_rows(self.system, 1, 1)
            return find(uncontended_gossip, self.tables, self.now, *rows, np.arange(1), 1)
        return find(advance_gossip, self.tables, self.now, np.arange(1), self.rounds)

    def grow(self, now: GossipState) -> None:
        """Make room for twice as many rows, messages in flight, flows and events, where there is too little."""
        degree, replica, rows = self.tables.degree, now.replica, now.site_rows.shape[1]
        if (replica["newest"] + 2 - replica["first_round"]).max() > rows:
            now = more_rows(self.system, now, 2 * rows)
        if now.messages.shape[1] - replica["in_flight"].max() < degree:
            now = now._replace(messages=doubled(now.messages))
        if isinstance(now.links, Links) and now.links.flows.shape[1] - replica["flows"].max() < degree:
            links = now.links
            now = now._replace(links=links._replace(flows=doubled(links.flows), starting=doubled(links.starting)))
        if (now.events.shape[1] - replica["events"] < 4 * degree + 8 + replica["flows"]).any():
            now = now._replace(events=doubled(now.events))
        self.now = now

    def forget(self, now: GossipState, rounds: int) -> None:
        """Keep the rows of rounds after the block."""
        now.replica["first_round"] += rounds
        sites, messages = (rows[:, rounds:].copy() for rows in (now.site_rows, now.message_rows))
        self.now = now._replace(site_rows=sites, message_rows=messages)

    def refuse(self, now: GossipState, active: Array) -> None:
        """Raise what made the loop stop."""
        replica = now.replica
        position = int(active[np.argmax(replica["status"][active] != DONE)])
        status, now_s = int(replica["status"][position]), float(replica["now_s"][position])
        closed = int(replica["closed_rounds"][position])
        if status == TOO_LATE:
            self.system.online_s(position, np.arange(self.system.population), now_s)  # refuses
            raise InvalidInput(f"the clock is at {now_s:g} s, too late for the periods of the devices; set a budget")
        if status == NEVER_CLOSES:
            sites = np.flatnonzero(now.sites["ended"][position] <= closed).tolist()
            raise InvalidInput(
                f"round {closed + 1} never closes: clients such as {', '.join(map(str, sites[:3]))} are still under "
                "way and nothing more will happen; raise the bandwidths, or close with a deadline"
            )
        raise too_far_ahead(int(now.sites["ended"][position].max()) - closed)

    # --- Blocks -----------------------------------------------------------------------------------------------------

    def block(
        self, first: int, active: Array, lengths: Array, stopped_by: Array, site_rows: Array, message_rows: Array
    ) -> RoundBlock:  # fmt: skip
        """Return the rows of a block, (active, rounds, sites | messages)."""
        rounds = site_rows.shape[1]
        counted = np.arange(rounds) < lengths[:, None]
        columns = empty_columns(self.gossip, len(active), rounds)
        for name, column in zip(GossipColumns._fields, columns, strict=True):
            rows = site_rows if name in ("aggregated", "ended_s") else message_rows
            column[counted] = rows[name][counted]
        ended, opened = site_rows["ended_s"], site_rows["opened_s"]
        counts = counted * self.gossip.sites
        shape = (len(active), rounds)
        nothing = np.zeros(shape, np.int64)
        return RoundBlock(
            first, active, lengths, stopped_by, np.where(counted, opened.min(axis=2), np.inf),
            np.where(counted, ended.max(axis=2), -np.inf), counts, nothing, nothing,
            np.broadcast_to(first + np.arange(rounds), shape), offsets_of(counts),
            self.visits(first, site_rows, counted, backhaul_of(self.gossip, columns)), None,
            messages_of(self.system, first, columns),
        )  # fmt: skip

    def visits(self, first: int, rows: Array, counted: Array, backhaul_bits: Array) -> VisitOutcomes:
        """Return the visits of clients to their own sites."""
        client = np.broadcast_to(np.arange(self.gossip.sites), rows.shape)
        version = np.broadcast_to((first - 1 + np.arange(rows.shape[1]))[:, None], rows.shape)
        nothing = np.zeros(rows.shape, np.int64)
        started_s, computed_s, worked_until_s = (rows[n] for n in ("opened_s", "computed_s", "worked_until_s"))
        columns = (
            client, client, nothing, version, nothing + 1, rows["outcome"], started_s, started_s, computed_s,
            worked_until_s, nothing, nothing, backhaul_bits,
        )  # fmt: skip
        return VisitOutcomes(*(c[counted].ravel().astype(d) for c, d in zip(columns, DTYPES, strict=True)))

    # --- Checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> Arrays:
        if self.before is None:
            return {}
        rounds, now = self.before
        return {f"now.{name}": array for name, array in flat(now).items()} | {"rounds": np.array(rounds)}

    async def resume(self, rounds: int, active: Array, saved: Arrays) -> None:
        """Continue from the saved state, or from the start if it was too large to save."""
        if saved:
            if isinstance(self.now, Ends) and "now.ended_s" not in saved:  # the loop had taken over
                self.path, self.now = "loop", self.new_state()
            self.now, self.rounds = copied(filled(self.now, saved, "now")), int(saved["rounds"])
        if rounds > self.rounds:
            await self.next(active, rounds - self.rounds)

    async def close(self) -> None:
        """Nothing is held."""
