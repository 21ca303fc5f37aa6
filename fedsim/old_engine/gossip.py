"""Sites that gossip in closed form, where nobody waits for anybody's link and nothing is lost.

A site's fold is the latest of its own work and of its neighbours' messages, for all replicas at once: the cost of a
round follows the number of messages. It looks a round ahead: where a sender's next message would find its last one
still under way the two share their links, so events take over, wound forward to where the closed form was.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.exchanges import Gossip, Mixing
from fedsim.old_engine.compiled_sites import CompiledSites, gossip_by_events
from fedsim.old_engine.gossip_arrays import GossipClock
from fedsim.old_engine.gossip_events import GossipEvents
from fedsim.old_engine.gossip_rows import SitesRow, round_of
from fedsim.old_engine.round import Round, Stretch
from fedsim.old_engine.round_by_round import RoundByRound
from fedsim.old_engine.world import World
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run


def suits(world: World) -> bool:
    """Whether the closed form gives the scenario's timeline."""
    alone = world.network is None or not (world.network.contended or world.network.varying)
    steady = world.devices is None or (world.devices.reliable and world.always_on)
    return alone and steady and world.policy.patience() == (math.inf, math.inf) and not world.scenario.record.events


class Gossiping(RoundByRound):
    """A `Driver`: a round is every site's."""

    path = "closed form, gossip"

    def __init__(self, run: Run) -> None:
        exchange = run.world.scenario.exchange
        assert isinstance(exchange, Gossip)
        self._run, self._world, self._learner, self._exchange = run, run.world, run.learner, exchange
        self._by_events: CompiledSites[GossipClock] | GossipEvents | None = None  # once they keep time
        shape = len(run.world.replicas), exchange.sites
        self._opened, self._done = np.zeros(shape), np.zeros(shape)  # of every site's next round
        self._message: Arrays = {}

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        if "opened" in saved:
            self._opened, self._done = saved["opened"], saved["done"]
        elif number:
            self._wind(number, active, saved)

    def state(self, active: Array) -> Arrays:
        if self._by_events is not None:
            return self._by_events.state(active)
        return {"opened": self._opened, "done": self._done}

    async def next(self, number: int, active: Array) -> Round | Stretch:
        if self._by_events is not None:
            return await self._by_events.next(number, active)
        if (closed := self._closed_form(number, active)) is None:
            return await self._wind(number, active, {}).next(number, active)
        self._message = self._learner.broadcast(active)
        return closed

    @property
    def _ends(self) -> tuple[Array, Array]:
        return self._exchange.receiver, self._exchange.sender

    def _wind(self, number: int, active: Array, saved: Arrays) -> CompiledSites[GossipClock] | GossipEvents:
        """Go on event by event, from clocks at which so many rounds are closed."""
        self._by_events = gossip_by_events(self._run)
        self.path = f"closed form, then {self._by_events.path}"
        self._by_events.resume(number, active, saved)
        return self._by_events

    def _closed_form(self, number: int, active: Array) -> Round | None:
        """The round of all replicas at once; None where a sender's next message would find this one under way."""
        world, opened = self._world, self._opened[active]
        bits = self._learner.reply_shape(number).bits
        assert bits is not None
        done = self._done[active] if number else opened + self._compute(active, opened, number)
        closed, rows = done.copy(), []
        free = np.full((len(active), len(self._exchange.receiver)), -math.inf)  # when a message's links are free again
        for r, replica in enumerate(world.replicas[active].tolist() if self._exchange.drawn else [0]):
            mixing = self._exchange.at(world.setting.seed, replica, number)
            here = slice(r, r + 1) if self._exchange.drawn else slice(None)
            receiver, sender = (ends[mixing.message] for ends in self._ends)
            there = done[here][:, sender]
            if world.paths is not None:
                way = world.paths[1].of(mixing.message)
                there = there + way.latency_s
                there = there + way.transfer_s(bits)
                free[here, mixing.message] = np.where(np.isfinite(way.bandwidth_bps), there, -math.inf)
            last, begins = np.unique(receiver, return_index=True)
            if len(last):
                arrived = np.maximum.reduceat(there, begins, axis=1)
                closed[here, last] = np.maximum(closed[here, last], arrived)
            rows += [(mixing, sender)] * (1 if self._exchange.drawn else len(active))
        ahead = closed + self._compute(active, closed, number + 1)
        if world.paths is not None and (ahead[:, self._ends[1]] + world.paths[1].latency_s <= free).any():
            return None
        self._opened[active], self._done[active] = closed, ahead
        return round_of(world, number, active, _smooth(rows, opened, done, closed, bits), (), self._ends)

    def _compute(self, active: Array, opened: Array, number: int) -> Array:
        """How long every site of these replicas works in a round, (replicas, sites)."""
        sites = self._exchange.sites
        position, client = np.repeat(active, sites), np.tile(np.arange(sites), len(active))
        return self._world.visit_draws(opened.ravel(), position, client, number).compute_s.reshape(opened.shape)

    async def replies(self, round: Round) -> Reply:
        if self._by_events is not None:
            return await self._by_events.replies(round)
        return await super().replies(round)

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        assert self._by_events is not None  # in closed form rounds come one at a time
        self._by_events.rounds_counted(stretch, count)


def _smooth(mixed: list[tuple[Mixing, Array]], opened: Array, done: Array, closed: Array, bits: int) -> list[SitesRow]:
    """The rows of replicas in which nothing was late or lost."""
    rows = []
    for r, (mixing, sender) in enumerate(mixed):
        row = SitesRow(opened.shape[1], mixing)
        row.smooth(opened[r], closed[r], sender, bits)
        row.spent_s = done[r] - opened[r]
        rows.append(row)
    return rows
