"""The compiled clock: columns in, blocks of rounds out, for parts that have columns. The loops are in `kernels/clock`.

    tables        the scenario as the loops read it; routes by number
    site_tables   sites and cohorts; the state at time 0
    reader        what the loops list, as blocks
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock.compiled.reader import block_of, ordered
from fedsim.engine.clock.compiled.site_tables import longer, new_out, new_scratch, new_state
from fedsim.engine.clock.compiled.tables import Parts, RouteNumbers, tables_of
from fedsim.engine.rounds import RoundBlock
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.kernels.clock.state import (
    DONE, MOST_AHEAD, NEEDS_GROWTH, NEVER_CLOSES, OVER, TOO_LATE, Links, Out, Outcomes, PrivateLinks, State,
)  # fmt: skip
from fedsim.rules.closing import RUNNING

SAVED = 64e6  # bytes of state in a checkpoint; a larger one is simulated again from the start
LARGEST = 2e9  # bytes of state in memory
MOST_VISITS = 4_000_000  # that a list has room for at first


def compiled_clock(system: System, sizes: MessageSizes, path: str | None = None) -> CompiledClock | str:
    """Return a clock, or the reason why the compiled clock cannot serve a scenario."""
    parts = Parts(system, sizes)
    if parts.missing:
        return parts.missing
    clock = CompiledClock(system, sizes, parts)
    if clock.bytes > LARGEST:
        return f"its state would take {clock.bytes / 1e9:.1f} GB"
    return clock


class CompiledClock:
    """Blocks of rounds from a compiled event loop."""

    name, path = "compiled", "loop"

    def __init__(self, system: System, sizes: MessageSizes, parts: Parts) -> None:
        assert parts.policy is not None and parts.devices is not None
        self.system, self.sizes, self.rounds = system, sizes, 0
        self.numbers = RouteNumbers(parts.routes)
        self.tables = tables_of(system, sizes, parts.policy, parts.devices, self.numbers)
        self.scratch = new_scratch(self.tables)
        self.flows = 2 * int(self.tables.slots[-1]) + 4 * system.sites.count + 8
        self.flows += system.population if system.broadcasts_to_all else 0
        self.shared = parts.routes is not None
        self.now, self.carried = self.new_state(), new_out(0, 0)
        self.before: tuple[int, State, Out] | None = None

    def new_state(self) -> State:
        """Return the state at time 0."""
        R = len(self.system.replicas)
        links = self.numbers.new_links(R, self.flows) if self.shared else PrivateLinks(np.zeros(0))
        return new_state(self.tables, self.system.replicas, links)

    @property
    def bytes(self) -> int:
        """The size of the state."""
        return sum(array.nbytes for array in (*self.now[:-1], *self.now.links))

    # --- Blocks -----------------------------------------------------------------------------------------------------

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        first, self.rounds = self.rounds + 1, self.rounds + rounds
        self.before = (first - 1, copied(self.now), self.carried) if self.bytes <= SAVED else None
        sites, slots = self.system.sites.count, int(self.tables.slots[-1])
        visits = min(len(active) * rounds * slots, MOST_VISITS) + slots
        held, listed = (int(self.carried.counts[name][0]) for name in ("visits", "segments"))
        out = longer(self.carried, held + visits, listed + (len(active) * rounds + 1) * sites)
        while (status := self.advance(active, out)) == NEEDS_GROWTH:
            out = self.grow(out, slots, sites)
        if status != DONE:
            self.refuse(active)
        closed = self.now.replica["closed_rounds"][active] - first + 1
        lengths = np.clip(closed, 0, rounds)
        stopped_by = np.where(lengths < rounds, self.now.replica["stopped_by"][active], RUNNING)
        self.carried = later(out, active[stopped_by == RUNNING], self.rounds)
        return block_of(
            first, active, rounds, lengths, stopped_by, out, sites, self.system.sites.every, self.sizes
        )  # fmt: skip

    def advance(self, active: Array, out: Out) -> int:
        from fedsim.kernels.clock.loops import advance

        return int(advance(self.tables, self.now, self.scratch, out, active, self.rounds))

    def grow(self, out: Out, slots: int, sites: int) -> Out:
        """Make room for twice as many visits, or flows, as there is room for."""
        visits, segments = len(out.visits.client), len(out.segments)
        counts = out.counts[0]
        if counts["visits"] + slots > visits or counts["segments"] + sites > segments:
            return longer(out, 2 * visits, 2 * segments)
        links = self.now.links
        assert isinstance(links, Links)
        links = links._replace(flows=doubled(links.flows), starting=doubled(links.starting))
        self.now = self.now._replace(events=doubled(self.now.events), links=links)
        return out

    def refuse(self, active: Array) -> None:
        """Raise what made the loop stop."""
        replica = self.now.replica
        position = int(active[np.argmax(replica["status"][active] != DONE)])
        status, now_s = int(replica["status"][position]), float(replica["now_s"][position])
        if status == TOO_LATE:
            self.system.online_s(position, np.arange(self.system.population), now_s)  # refuses
            raise InvalidInput(f"the clock is at {now_s:g} s, too late for the periods of the devices; set a budget")
        if status == NEVER_CLOSES:
            visits = self.now.visits[position]
            clients = sorted(visits["client"][visits["phase"] != OVER].tolist())
            raise InvalidInput(
                f"round {int(replica['closed_rounds'][position]) + 1} never closes: clients such as "
                f"{', '.join(map(str, clients[:3]))} are still under way and nothing more will happen; raise the "
                "bandwidths, or close with a deadline"
            )
        raise InvalidInput(
            f"an edge is {MOST_AHEAD:,} rounds ahead of another, which may never catch up; merge more often"
        )

    # --- Checkpoints ------------------------------------------------------------------------------------------------

    def state(self) -> Arrays:
        if self.before is None:
            return {}
        rounds, now, carried = self.before
        saved = {"rounds": np.array(rounds), "flows": np.array(self.flows)}
        saved |= {f"now.{name}": array for name, array in zip(State._fields[:-1], now[:-1], strict=True)}
        saved |= {f"links.{name}": array for name, array in zip(now.links._fields, now.links, strict=True)}
        saved |= {"carried.counts": carried.counts, "carried.segments": carried.segments}
        return saved | {f"carried.{name}": array for name, array in carried.visits._asdict().items()}

    async def resume(self, rounds: int, active: Array, saved: Arrays) -> None:
        """Continue from the saved state, or from the start if it was too large to save."""
        if saved:
            links = type(self.now.links)(*(saved[f"links.{name}"] for name in self.now.links._fields))
            self.now = State(*(saved[f"now.{name}"] for name in State._fields[:-1]), links)
            visits = Outcomes(*(saved[f"carried.{name}"] for name in Outcomes._fields))
            self.carried, self.rounds = Out(saved["carried.counts"], saved["carried.segments"], visits), 0
            self.rounds = int(saved["rounds"])
        if rounds > self.rounds:
            await self.next(active, rounds - self.rounds)

    async def close(self) -> None:
        """Nothing is held."""


def later(out: Out, running: Array, rounds: int) -> Out:
    """Return the visits of rounds after these, which edges that are ahead have closed."""
    segments = out.segments[: int(out.counts["segments"][0])]
    segments = segments[(segments["round"] > rounds) & np.isin(segments["position"], running)]
    visits = ordered(out.visits, segments["begin"], segments["visits"])
    kept = new_out(0, 0)._replace(segments=segments, visits=Outcomes(*(column.copy() for column in visits)))
    kept.counts["visits"], kept.counts["segments"] = len(visits.client), len(segments)
    segments["begin"] = np.cumsum(segments["visits"]) - segments["visits"]
    return kept


def copied(state: State) -> State:
    links = type(state.links)(*(array.copy() for array in state.links))
    return State(*(array.copy() for array in state[:-1]), links)


def doubled(array: Array) -> Array:
    return np.concatenate([array, np.zeros_like(array)], axis=1)
