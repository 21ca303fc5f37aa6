"""Sites that gossip on the compiled clock, as a driver: time runs ahead of the learning, as in `compiled_clock`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock_arrays import LARGEST
from fedsim.engine.clock_choice import FORCED, expected_visits, is_worth_it
from fedsim.engine.clocks_ahead import ClocksAhead
from fedsim.engine.compiled_gossip_rounds import CompiledGossipRounds
from fedsim.engine.gossip_arrays import GossipArrays, GossipClock, parts_of, where_compiled
from fedsim.engine.gossip_events import GossipEvents
from fedsim.engine.round import Round, Stretch, nobody
from fedsim.exchanges import Gossip
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.engine.run import Run


def gossip_by_events(run: Run) -> CompiledGossip | GossipEvents:
    """Event by event: compiled where that serves and is worth it (`clock_choice`), else on SimPy."""
    wanted, exchange = FORCED.get(), run.world.scenario.exchange
    assert isinstance(exchange, Gossip)
    parts = None if wanted is False else parts_of(run)
    if parts is None:
        return GossipEvents(run)
    arrays = GossipArrays(run, exchange, parts)
    replicas = len(run.world.replicas)
    if arrays.bytes_each * replicas > LARGEST:
        return GossipEvents(run)
    bits = int(arrays.bits[1] or 0)
    messages = expected_visits(run.world.budget, arrays.messages + arrays.sites, replicas, 0, 0, bits)
    if wanted or is_worth_it(messages, "gossip", where_compiled):
        return CompiledGossip(run, exchange, arrays)
    return GossipEvents(run)


class CompiledGossip:
    """A `Driver`: a round is every site's."""

    def __init__(self, run: Run, exchange: Gossip, arrays: GossipArrays) -> None:
        self._run, self._world, self._learner = run, run.world, run.learner
        self._exchange, self._each = exchange, arrays.sites + arrays.messages
        self.path = "compiled, gossip"
        self._clocks: ClocksAhead[GossipClock] = ClocksAhead(run, arrays.begin, arrays.bytes_each)
        self._ahead: CompiledGossipRounds | None = None
        self._reference: GossipEvents | None = None
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
            self._ahead = CompiledGossipRounds(number, active, clocks, status, self._exchange)
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
        who = round.arrived
        return await self._learner.replies(round.active, round.number, who, self._message, round.rows[who.row])

    def report_losses(self, round: Round, losses: Array) -> None:
        """Nobody is selected, so nobody asks."""

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        if count:
            self._trace(stretch.number, count, stretch.active)
        else:
            self._singly_until = stretch.number + stretch.count

    async def close(self) -> None:
        """Nothing is sent early."""

    def _trace(self, number: int, count: int, active: Array) -> None:
        if self._run.trace.kept:
            assert self._ahead is not None
            self._run.trace.extend(self._ahead.trace(number, count, active, self._world.replicas))

    async def _refer(self, number: int, active: Array) -> Round:
        """From here on by SimPy, which knows how to say what is wrong."""
        self._reference = GossipEvents(self._run)
        self._reference.resume(number, active, {})
        self.path = f"compiled, then {GossipEvents.path}"
        return await self._reference.next(number, active)
