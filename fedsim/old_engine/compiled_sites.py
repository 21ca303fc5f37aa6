"""Several sites on the compiled clock, as a driver: time runs ahead of the learning, as in `compiled_clock`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock.choose import FORCED
from fedsim.exchanges import Gossip
from fedsim.kernels.found import Found
from fedsim.old_engine.clock_arrays import LARGEST, parts_of
from fedsim.old_engine.clock_choice import expected_visits, is_worth_it
from fedsim.old_engine.clocks_ahead import ClocksAhead, Kind
from fedsim.old_engine.compiled_gossip_rounds import CompiledGossipRounds
from fedsim.old_engine.compiled_tiers_rounds import CompiledTiersRounds
from fedsim.old_engine.gossip_arrays import GossipArrays, GossipClock, gossip_parts, where_gossip_is_compiled
from fedsim.old_engine.gossip_events import GossipEvents
from fedsim.old_engine.round import Round, Stopped, Stretch, nobody
from fedsim.old_engine.round_by_round import RoundByRound
from fedsim.old_engine.tiers import Tiers
from fedsim.old_engine.tiers_arrays import TiersArrays, TiersClock, where_tiers_are_compiled
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run


def gossip_by_events(run: Run) -> CompiledSites[GossipClock] | GossipEvents:
    """Sites that gossip: compiled where that serves and is worth it (`clock_choice`), else on SimPy."""
    wanted, exchange = FORCED.get(), run.world.scenario.exchange
    assert isinstance(exchange, Gossip)
    parts = None if wanted is False else gossip_parts(run)
    if parts is None:
        return GossipEvents(run)
    arrays, replicas = GossipArrays(run, exchange, parts), len(run.world.replicas)
    each, bits = arrays.sites + arrays.messages, int(arrays.bits[1] or 0)
    messages = expected_visits(run.world.budget, each, replicas, 0, 0, bits)
    if not _chosen(wanted, arrays.bytes_each * replicas, messages, "gossip", where_gossip_is_compiled):
        return GossipEvents(run)
    clocks = ClocksAhead(run, arrays.begin, arrays.bytes_each)
    return CompiledSites(run, clocks, each, partial(CompiledGossipRounds, exchange), GossipEvents)


def tiers_by_events(run: Run) -> CompiledSites[TiersClock] | Tiers:
    """Edges under a cloud, likewise."""
    wanted = FORCED.get()
    parts = None if wanted is False else parts_of(run)
    if parts is None:
        return Tiers(run)
    arrays, replicas = TiersArrays(run, parts), len(run.world.replicas)
    visits = expected_visits(run.world.budget, arrays.slots, replicas, int(arrays.bits[1] or 0), arrays.down_bits)
    kind = "alone" if parts[-1] is None else "shared"
    if not _chosen(wanted, arrays.bytes_each * replicas, visits, kind, where_tiers_are_compiled):
        return Tiers(run)
    clocks = ClocksAhead(run, arrays.begin, arrays.bytes_each)
    return CompiledSites(run, clocks, arrays.slots, partial(CompiledTiersRounds, arrays), Tiers)


def _chosen(wanted: bool | None, size: float, visits: float, kind: str, found: Callable[[], Found]) -> bool:
    return size <= LARGEST and (wanted or is_worth_it(visits, kind, found))


class RoundsAhead(Protocol):
    """Rounds that clocks have made ahead of the learning."""

    first: int
    common: int  # so many, every replica has

    def over(self, number: int, active: Array) -> tuple[Array, Array]: ...
    def has(self, number: int, active: Array) -> bool: ...
    def round(self, number: int, active: Array, stopped: Stopped) -> Round: ...
    def stretch(self, number: int, active: Array, count: int) -> Stretch: ...
    def trace(self, number: int, count: int, active: Array, replicas: Array) -> Arrays: ...


class CompiledSites(RoundByRound, Generic[Kind]):
    """A `Driver`: a round is every site's. `each` is about how many visits or messages it has."""

    def __init__(
        self,
        run: Run,
        clocks: ClocksAhead[Kind],
        each: int,
        made: Callable[[int, Array, list[Kind], Array], RoundsAhead],
        reference: type[GossipEvents] | type[Tiers],
    ) -> None:
        self._run, self._world, self._learner = run, run.world, run.learner
        self._clocks, self._each, self._made, self._kind = clocks, each, made, reference
        self.path = reference.path.replace("event", "compiled")
        self._ahead: RoundsAhead | None = None
        self._reference: GossipEvents | Tiers | None = None
        self._message: Arrays = {}
        self._singly_until = 0

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        if number:
            self._clocks.resume(number, active, saved)

    def state(self, active: Array) -> Arrays:
        return self._clocks.before if self._reference is None else self._reference.state(active)

    async def next(self, number: int, active: Array) -> Round | Stretch:
        if self._reference is not None:
            return await self._reference.next(number, active)
        if self._ahead is None or not self._ahead.has(number, active):
            status, clocks = self._clocks.more(number, active, self._each)
            self._ahead = self._made(number, active, clocks, status)
        ahead = self._ahead
        gone, referred = ahead.over(number, active)
        if len(referred):
            return await self._refer(number, active)
        if not len(gone) and self._world.skip and number >= self._singly_until:
            count = self._clocks.until(number, ahead.common - (number - ahead.first))
            if count > 1:
                return ahead.stretch(number, active, count)
        self._trace(number, 1, active)
        late = np.array([math.isfinite(self._clocks.of(i).said("hopeless_s")) for i in gone.tolist()], bool)
        stopped = (("seconds", gone[late]), ("no clients", gone[~late]))
        going = active[~np.isin(active, gone)]
        if not len(going):
            return nobody(number, stopped)
        self._message = self._learner.broadcast(going)
        return ahead.round(number, going, stopped)

    async def replies(self, round: Round) -> Reply:
        if self._reference is not None:
            return await self._reference.replies(round)
        return await super().replies(round)

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        if count:
            self._trace(stretch.number, count, stretch.active)
        else:
            self._singly_until = stretch.number + stretch.count

    def _trace(self, number: int, count: int, active: Array) -> None:
        if self._run.trace.kept:
            assert self._ahead is not None
            self._run.trace.extend(self._ahead.trace(number, count, active, self._world.replicas))

    async def _refer(self, number: int, active: Array) -> Round:
        """From here on by SimPy, which knows how to say what is wrong."""
        self._reference = self._kind(self._run)
        self._reference.resume(number, active, {})
        self.path = f"compiled, then {self._kind.path}"
        return await self._reference.next(number, active)
