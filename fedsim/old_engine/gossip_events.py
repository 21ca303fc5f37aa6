"""Sites that gossip, event by event on SimPy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.exchanges import Gossip
from fedsim.old_engine.gossip_replica import GossipReplica
from fedsim.old_engine.gossip_rows import round_of
from fedsim.old_engine.round import Round, nobody
from fedsim.old_engine.round_by_round import RoundByRound

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run


class GossipEvents(RoundByRound):
    """A `Driver`: a round is every site's."""

    path = "event, gossip"

    def __init__(self, run: Run) -> None:
        exchange = run.world.scenario.exchange
        assert isinstance(exchange, Gossip)
        self._run, self._world, self._learner = run, run.world, run.learner
        self._ends = exchange.receiver, exchange.sender
        self._replicas: dict[int, GossipReplica] = {}
        self._message: Arrays = {}

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        for i in active.tolist():
            replica = self._replicas[i] = GossipReplica(self._run, i)
            replica.mute(number > 0)
            replica.start()
            for round in range(number):
                replica.run_to(round)
                replica.take(round)
            replica.mute(False)

    def state(self, active: Array) -> Arrays:
        return {}

    async def next(self, number: int, active: Array) -> Round:
        replicas = [self._replicas[i] for i in active.tolist()]
        gone = np.array([not replica.run_to(number) for replica in replicas], bool)
        late = np.array([math.isfinite(replica.hopeless.get(number, math.inf)) for replica in replicas], bool)
        stopped = (("seconds", active[gone & late]), ("no clients", active[gone & ~late]))
        keep = np.flatnonzero(~gone)
        if not len(keep):
            return nobody(number, stopped)
        self._message = self._learner.broadcast(active[keep])
        rows = [replicas[r].take(number) for r in keep]
        return round_of(self._world, number, active[keep], rows, stopped, self._ends)
