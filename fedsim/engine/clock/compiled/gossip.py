"""The compiled clock of sites that gossip: columns in, blocks of rounds out; `kernels/clock/gossip_loop` is its loop.

Rows of rounds that some site has not ended are part of the state. Memory grows when the loop asks for it. Where a
message of the short path meets the one before it, the loop simulates from the start and continues.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.clock.compiled import SAVED, CompiledClock
from fedsim.engine.clock.compiled.reader import new_out
from fedsim.engine.clock.compiled.site_tables import most_in_flight, new_ends, new_gossip_state
from fedsim.engine.clock.compiled.state_arrays import bytes_of, doubled
from fedsim.engine.clock.compiled.tables import PartColumns, RouteNumbers, gossip_tables
from fedsim.engine.clock.gossip_rows import (
    UNSENT,
    UNUSED,
    GossipColumns,
    backhaul_of,
    empty_columns,
    messages_of,
    too_far_apart,
)
from fedsim.engine.rounds import DTYPES, RoundBlock, VisitOutcomes, offsets_of
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.kernels import KernelState
from fedsim.kernels.clock.gossip_state import MESSAGE_ROW, SITE_ROW, Ends, GossipState
from fedsim.kernels.clock.state import DONE, NEEDS_GROWTH, Links
from fedsim.rules.closing import RUNNING


class CompiledGossip(CompiledClock):
    """Blocks of rounds of sites that gossip. Nothing is carried over between blocks but the state."""

    def __init__(self, system: System, sizes: MessageSizes, parts: PartColumns, path: str) -> None:
        assert system.gossip is not None
        self.system, self.sizes, self.gossip, self.path, self.rounds = system, sizes, system.gossip, path, 0
        self.parts, self.numbers, self.asks_bits = parts, RouteNumbers(parts.routes), False
        self.of_gossip = gossip_tables(system, sizes, parts, self.numbers)
        self.flows = most_in_flight(self.of_gossip)
        self.before, self.carried = None, new_out(0, 0)
        self.start()

    def new_state(self) -> GossipState | Ends:
        """Return the state at time 0."""
        new, tables, replicas = new_gossip_state, self.of_gossip, self.system.replicas
        return new_ends(tables, replicas) if self.path == "short" else new(tables, replicas, self.new_links())

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        first, self.rounds = self.rounds + 1, self.rounds + rounds
        saves = self.saves and self.bytes <= SAVED
        self.before = (first - 1, deepcopy(self.now), self.carried) if saves else None
        if isinstance(self.now, Ends):
            block = self.short_block(self.now, first, active, rounds)
            return await self.from_the_start(active, first - 1, rounds) if block is None else block
        self.now = more_rows(self.system, self.now, rounds + 2)
        while (status := self.advance_sites(active)) == NEEDS_GROWTH:
            self.make_room(self.now)
        if status != DONE:
            await self.refuse(active)
        replica = self.now.replica[active]
        lengths = np.clip(replica["closed_rounds"] - first + 1, 0, rounds)
        stopped_by = np.where(lengths < rounds, replica["stopped_by"], RUNNING)
        rows = self.now.site_rows[active, :rounds], self.now.message_rows[active, :rounds]
        block = self.block(first, active, lengths, stopped_by, *rows)
        self.remove_rows(self.now, rounds)
        return block

    def short_block(self, now: Ends, first: int, active: Array, rounds: int) -> RoundBlock | None:
        """Return the rounds of a block; None: messages meet, and only the loop can serve it."""
        from fedsim.kernels.clock.uncontended_gossip import uncontended_gossip

        rows = fresh_rows(self.system, first, rounds)
        if uncontended_gossip(self.of_gossip, now, *rows, active, first) != DONE:
            return None
        going = np.zeros(len(active), np.int64)
        return self.block(first, active, going + rounds, going + RUNNING, rows[0][active], rows[1][active])

    def advance_sites(self, active: Array) -> int:
        """Run the kernel up to the present round; return why it ended."""
        from fedsim.kernels.clock.gossip_loop import advance_gossip

        return int(advance_gossip(self.of_gossip, self.now, active, self.rounds))

    def found(self) -> KernelState:
        """Return where the machine code of this clock is."""
        from fedsim.kernels.cache import kernel_state
        from fedsim.kernels.clock.gossip_loop import advance_gossip
        from fedsim.kernels.clock.uncontended_gossip import uncontended_gossip

        if isinstance(self.now, Ends):
            rows = fresh_rows(self.system, 1, 1)
            return kernel_state(uncontended_gossip, self.of_gossip, self.now, *rows, np.arange(1), 1)
        return kernel_state(advance_gossip, self.of_gossip, self.now, np.arange(1), self.rounds)

    def make_room(self, now: GossipState) -> None:
        """Make room for twice as many rows, messages in flight, flows and events, where there is too little."""
        degree, replica, rows = self.of_gossip.degree, now.replica, now.site_rows.shape[1]
        if (replica["newest"] + 2 - replica["first_round"]).max() > rows:
            now = more_rows(self.system, now, 2 * rows)
        if now.messages.shape[1] - replica["in_flight"].max() < degree:
            now = now._replace(messages=doubled(now.messages))
        if isinstance(now.links, Links) and now.links.flows.shape[1] - replica["flows"].max() < degree:
            links = now.links
            now = now._replace(links=links._replace(flows=doubled(links.flows), starting=doubled(links.starting)))
        if (now.events.shape[1] - replica["events"] < 4 * degree + 8 + replica["flows"]).any():
            now = now._replace(events=doubled(now.events))
        self.now, self.bytes = now, bytes_of(now)

    def remove_rows(self, now: GossipState, rounds: int) -> None:
        """Keep the rows of rounds after the block."""
        now.replica["first_round"] += rounds
        sites, messages = (rows[:, rounds:].copy() for rows in (now.site_rows, now.message_rows))
        self.now = now._replace(site_rows=sites, message_rows=messages)

    def under_way(self, position: int) -> list[int]:
        behind = self.now.sites["ended"][position] <= self.now.replica["closed_rounds"][position]
        return list(np.flatnonzero(behind).tolist())

    def too_far_apart(self, position: int) -> InvalidInput:
        closed = int(self.now.replica["closed_rounds"][position])
        return too_far_apart(int(self.now.sites["ended"][position].max()) - closed)

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


# --- Rows -------------------------------------------------------------------------------------------------------------


def more_rows(system: System, state: GossipState, rows: int) -> GossipState:
    """Return the state with room for at least this many rounds from its first one on."""
    first, have = int(state.replica["first_round"][0]), state.site_rows.shape[1]
    if rows <= have:
        return state
    sites, messages = fresh_rows(system, first + have, rows - have)
    return state._replace(
        site_rows=np.concatenate([state.site_rows, sites], axis=1),
        message_rows=np.concatenate([state.message_rows, messages], axis=1),
    )


def fresh_rows(system: System, first: int, rounds: int) -> tuple[Array, Array]:
    """Return rows of rounds that no site has begun, (R, rounds, sites | messages): which messages they ask for."""
    gossip, constant, replicas = system.gossip, system.mixing is not None, system.replicas.tolist()
    assert gossip is not None
    drawn = not constant and gossip.drawn
    sites = np.zeros((len(replicas), rounds, gossip.sites), SITE_ROW)
    messages = np.zeros((len(replicas), rounds, len(gossip.sender)), MESSAGE_ROW)
    messages["bits"], messages["arrived_s"] = UNUSED, np.nan
    for k in range(1 if constant else rounds):
        for r, replica in enumerate(replicas if drawn else replicas[:1]):
            here = slice(r, r + 1) if drawn else slice(None), slice(None) if constant else slice(k, k + 1)
            mixing = system.mixing or gossip.at(system.setting.seed, replica, first - 1 + k)
            messages["bits"][(*here, mixing.message)] = UNSENT
            sites["expected"][here] = np.bincount(gossip.receiver[mixing.message], minlength=gossip.sites)
    sites["outstanding"] = sites["expected"]
    return sites, messages
