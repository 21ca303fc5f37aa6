"""The compiled clock: columns in, blocks of rounds out, for parts that have columns. The loops are in `kernels/clock`.

    paths         loop or short path
    tables        the scenario as the loops read it; routes by number
    site_tables   sites and cohorts; the state at time 0
    own_parts     users' batched parts on the short path
    reader        what the loops list, as blocks
    state_arrays  the state of a loop as named arrays: checkpoints, growth
    asynchronous  the clock of asynchronous clients
    gossip        the clock of sites without a server

A checkpoint holds the state before the latest block, unless it is large.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock import Learning
from fedsim.engine.clock.compiled.reader import block_of, later, longer, new_out
from fedsim.engine.clock.compiled.site_tables import new_cohort, new_openings, new_scratch, new_state
from fedsim.engine.clock.compiled.state_arrays import bytes_of, doubled, filled, flat
from fedsim.engine.clock.compiled.tables import PartColumns, RouteNumbers, tables_of
from fedsim.engine.rounds import RoundBlock
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.kernels import KernelState
from fedsim.kernels.clock.state import (
    DONE,
    NEEDS_GROWTH,
    NEEDS_LOOP,
    NEVER_CLOSES,
    OVER,
    TOO_LATE,
    Links,
    Openings,
    Out,
    PrivateLinks,
    State,
)
from fedsim.rules.closing import MOST_APART, OUT_OF_TIME, RUNNING
from fedsim.rules.selection import BERNOULLI

SAVED = 64e6  # bytes of state in a checkpoint; a larger one is simulated again from the start
MOST_VISITS = 4_000_000  # that a list has room for at first


class CompiledClock:
    """Blocks of rounds from a compiled event loop, or from the short path, which needs none."""

    name = "compiled"
    saves = True  # whether the run has checkpoints

    def __init__(
        self, system: System, sizes: MessageSizes, parts: PartColumns, path: str, learning: Learning | None = None
    ) -> None:
        assert parts.policy is not None
        assert parts.devices is not None
        self.system, self.sizes, self.parts, self.path, self.rounds = system, sizes, parts, path, 0
        self.learning, self.asks_bits = learning, sizes.depend_on_values
        self.numbers = RouteNumbers(parts.routes)
        self.tables = tables_of(system, sizes, parts.policy, parts.devices, self.numbers)
        self.scratch, self.cohort = new_scratch(self.tables), new_cohort(self.tables)
        self.flows = 2 * int(self.tables.slots[-1]) + 4 * system.sites.count + 8
        self.flows += system.population if system.broadcasts_to_all else 0
        self.carried = new_out(0, 0)
        self.before: tuple[int, Any, Any] | None = None  # rounds, state, what was carried over
        self.start()

    def start(self) -> None:
        """Go to time 0."""
        self.now: Any = self.new_state()
        self.bytes = bytes_of(self.now)

    def new_state(self) -> Any:
        """Return the state at time 0: a State, of the short path Openings."""
        if self.path == "short":
            return new_openings(self.tables, self.system.replicas)
        return new_state(self.tables, self.system.replicas, self.new_links())

    def new_links(self) -> Links | PrivateLinks:
        """Return links without flows."""
        shared = self.parts.routes is not None
        return self.numbers.new_links(len(self.system.replicas), self.flows) if shared else PrivateLinks(np.zeros(0))

    # --- Blocks -----------------------------------------------------------------------------------------------------

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        before, block = self.rounds, await self._next(active, rounds)
        return await self.from_the_start(active, before, rounds) if block is None else block

    async def from_the_start(self, active: Array, before: int, rounds: int) -> RoundBlock:
        """Return the next rounds after those before, with flows: two messages of the short path meet on a link."""
        self.path, self.rounds, self.carried = "loop", 0, new_out(0, 0)
        self.start()
        if before:
            await self.next(active, before)
        return await self.next(active, rounds)

    async def _next(self, active: Array, rounds: int) -> RoundBlock | None:
        """Return the next rounds; None where the short path turns out not to serve them."""
        first, self.rounds = self.rounds + 1, self.rounds + rounds
        saves = self.saves and self.bytes <= SAVED
        self.before = (first - 1, deepcopy(self.now), self.carried) if saves else None
        sites, slots = self.system.sites.count, int(self.tables.slots[-1])
        visits = len(active) * rounds * slots + slots
        visits = visits if self.tables.selection != BERNOULLI else min(visits, MOST_VISITS + slots)
        held, listed = (int(self.carried.counts[name][0]) for name in ("visits", "segments"))
        out = longer(self.carried, held + visits, listed + (len(active) * rounds + 1) * sites)
        if self.asks_bits:
            await self._ask(active, out)
        while (status := self.advance(active, out)) == NEEDS_GROWTH:
            out = self.grow(out, slots, sites)
        if status == NEEDS_LOOP:
            return None
        if status != DONE:
            await self.refuse(active)
        if isinstance(self.now, State):
            closed, reasons = self.now.replica["closed_rounds"][active], self.now.replica["stopped_by"][active]
        else:
            closed, reasons = self.now.closed_rounds[active], np.full(len(active), OUT_OF_TIME)
        lengths = np.clip(closed - first + 1, 0, rounds)
        stopped_by = np.where(lengths < rounds, reasons, RUNNING)
        if self.path == "loop":  # on the short path no edge is ahead
            self.carried = later(out, active[stopped_by == RUNNING], self.rounds)
        has_cloud = self.system.sites.every > 0
        return block_of(first, active, rounds, lengths, stopped_by, out, sites, has_cloud, self.sizes)

    async def _ask(self, active: Array, out: Out) -> None:
        """Have the replies of the next round computed, for their bits."""
        from fedsim.kernels.clock.uncontended import next_cohorts

        assert self.learning is not None
        m = int(next_cohorts(self.tables, self.now, self.scratch, out, active))
        position, client = out.visits.multiplicity[:m].astype(np.int64), out.visits.client[:m].astype(np.int64)
        self.cohort = self.cohort._replace(
            bits=await self.learning.bits(position, client, np.zeros_like(client), self.rounds)
        )

    def found(self) -> KernelState:
        """Return where the machine code of this clock is."""
        from fedsim.kernels.cache import kernel_state
        from fedsim.kernels.clock.loops import advance
        from fedsim.kernels.clock.uncontended import uncontended_rounds

        active = np.arange(1)
        if isinstance(self.now, State):
            return kernel_state(advance, self.tables, self.now, self.scratch, self.carried, active, self.rounds)
        return kernel_state(
            uncontended_rounds, self.tables, self.now, self.scratch, self.cohort, self.carried, active, self.rounds
        )

    def advance(self, active: Array, out: Out) -> int:
        """Run the kernel up to the present round; return why it ended."""
        if isinstance(self.now, State):
            from fedsim.kernels.clock.loops import advance

            return int(advance(self.tables, self.now, self.scratch, out, active, self.rounds))
        from fedsim.kernels.clock.uncontended import uncontended_rounds

        return int(uncontended_rounds(self.tables, self.now, self.scratch, self.cohort, out, active, self.rounds))

    def grow(self, out: Out, slots: int, sites: int) -> Out:
        """Make room for twice as many visits, or flows, as there is room for."""
        visits, segments = len(out.visits.client), len(out.segments)
        counts = out.counts[0]
        if counts["visits"] + slots > visits or counts["segments"] + sites > segments:
            return longer(out, 2 * visits, 2 * segments)
        self.grow_links()
        return out

    def grow_links(self) -> None:
        """Make room for twice as many flows."""
        assert not isinstance(self.now, Openings)
        links = self.now.links
        assert isinstance(links, Links)
        links = links._replace(flows=doubled(links.flows), starting=doubled(links.starting))
        self.now = self.now._replace(events=doubled(self.now.events), links=links)
        self.bytes = bytes_of(self.now)

    async def refuse(self, active: Array) -> None:
        """Raise what made the loop stop."""
        if isinstance(self.now, Openings):
            await CompiledClock(self.system, self.sizes, self.parts, "loop").next(active, self.rounds)
        assert not isinstance(self.now, Openings)
        replica = self.now.replica
        position = int(active[np.argmax(replica["status"][active] != DONE)])
        status, now_s = int(replica["status"][position]), float(replica["now_s"][position])
        if status == TOO_LATE:
            self.system.online_s(position, np.arange(self.system.population), now_s)  # refuses
            raise InvalidInput(f"the clock is at {now_s:g} s, too late for the periods of the devices; set a budget")
        if status == NEVER_CLOSES:
            raise InvalidInput(
                f"round {int(replica['closed_rounds'][position]) + 1} never closes: clients such as "
                f"{', '.join(map(str, self.under_way(position)[:3]))} are still under way and nothing more will "
                "happen; raise the bandwidths, or close with a deadline"
            )
        raise self.too_far_apart(position)

    def under_way(self, position: int) -> list[int]:
        """Return the clients whose visits are in flight."""
        visits = self.now.visits[position]
        return sorted(visits["client"][visits["phase"] != OVER].tolist())

    def too_far_apart(self, position: int) -> InvalidInput:
        """Return the refusal of sites that run away from each other."""
        return InvalidInput(
            f"an edge is {MOST_APART:,} rounds ahead of another, which may never catch up; merge more often"
        )

    # --- Checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> Arrays:
        if self.before is None:
            return {}
        rounds, now, carried = self.before
        if self.asks_bits:  # a block has one round, whose replies are not computed again
            rounds, now, carried = self.rounds, self.now, self.carried
        parts = {"now": flat(now), "carried": flat(carried)}
        saved = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return saved | {"rounds": np.array(rounds), "loop": np.array(self.path == "loop")}

    async def resume(self, rounds: int, active: Array, saved: Arrays) -> None:
        """Continue from the saved state, or from the start if it was too large to save."""
        if saved:
            self.path = "loop" if saved["loop"] else self.path
            self.now = deepcopy(filled(self.new_state(), saved, "now"))
            self.carried, self.rounds = filled(self.carried, saved, "carried"), int(saved["rounds"])
            self.bytes = bytes_of(self.now)
        if rounds > self.rounds:
            await self.next(active, rounds - self.rounds)

    async def close(self) -> None:
        """Nothing is held."""
