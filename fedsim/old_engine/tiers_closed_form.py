"""Tiers in closed form: every edge asks all its clients, and nobody waits for anybody's link.

An edge's round is then a star's (`arrivals`), for all edges of all replicas at once; a merge waits for the last of the
edges' states, and each edge opens its next round when the answer is there. Times are summed as on the clock.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.old_engine import arrivals
from fedsim.old_engine.closed_form import closes_in_closed_form
from fedsim.old_engine.learner import Learner
from fedsim.old_engine.round import Cohort, Round, columns
from fedsim.old_engine.round_by_round import RoundByRound
from fedsim.old_engine.world import World

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run


def suits(world: World, learner: Learner) -> bool:
    """Whether the closed form gives the scenario's timeline."""
    alone = world.network is None or not (world.network.contended or world.network.varying or world.copies)
    followed = world.scenario.record.events or world.policy.history
    known = all(learner.reply_shape(round).bits is not None for round in (0, 1))
    everybody = world.policy.always and world.always_on and closes_in_closed_form(world.policy)
    return alone and known and everybody and not followed


class ClosedFormTiers(RoundByRound):
    """A `Driver`; `now` is when every edge's next round opens."""

    path = "closed form, edges under a cloud"

    def __init__(self, run: Run) -> None:
        self._world, self._learner = run.world, run.learner
        self._now = np.zeros((len(run.world.replicas), run.world.sites.count))
        self._message: Arrays = {}

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        self._now = saved.get("now", self._now)

    def state(self, active: Array) -> Arrays:
        return {"now": self._now}

    async def next(self, number: int, active: Array) -> Round:
        world, learner, edges = self._world, self._learner, self._world.sites.count
        self._message = learner.broadcast(active)
        down, up = learner.down_bits(self._message), learner.reply_shape(number).bits
        assert up is not None
        opened = self._now[active].ravel()
        who, order = _everybody(len(active), world)
        drawn = world.visit_draws(opened[who.row], active[who.row // edges], who.client, number)
        start = arrivals.outset(None if world.paths is None else world.paths[0], opened, who, down, drawn)
        sizes = np.broadcast_to(np.int64(up), len(who.client))
        closed, ended = arrivals.outcome(world.paths, world.policy, opened, who, start, down, sizes, drawn.tie)
        closed, between = closed.reshape(-1, edges), 0
        ends = closed.max(axis=1)
        self._now[active] = closed
        if (number + 1) % world.sites.every == 0:
            to_cloud, from_cloud = learner.backhaul_bits()
            between = edges * (to_cloud + from_cloud)
            ends = self._travel(closed, to_cloud, True).max(axis=1)
            self._now[active] = self._travel(np.repeat(ends[:, None], edges, axis=1), from_cloud, False)
        replicas, clients = len(active), world.population
        all_of = Cohort(
            np.repeat(np.arange(replicas), clients),
            who.client[order],
            who.multiplicity,
            clients * np.arange(replicas + 1),
        )
        visits, first = ended.part(order), opened.reshape(-1, edges).min(axis=1)
        made = columns(first, ends, all_of.sizes, all_of.starts, visits, 0, np.full(replicas, between, np.int64))
        return Round(number, active, all_of, visits, made, number)

    def _travel(self, begun: Array, bits: int, upward: bool) -> Array:
        """When messages between edges (the columns) and the cloud arrive."""
        if self._world.paths is None:
            return begun
        way = self._world.paths[upward].of(self._world.population + np.arange(begun.shape[1]))
        return np.asarray(begun + way.latency_s + way.transfer_s(bits))


@lru_cache(maxsize=2)
def _everybody(replicas: int, world: World) -> tuple[Cohort, Array]:
    """All clients by replica and edge, and where they stand sorted by replica and client."""
    members, edges = world.sites.members, world.sites.count
    client = np.tile(np.concatenate(members), replicas)
    sizes = np.tile([len(m) for m in members], replicas)
    row = np.repeat(np.arange(replicas * edges), sizes)
    who = Cohort(row, client, np.ones(len(client), np.int64), np.concatenate([[0], np.cumsum(sizes)]))
    return who, np.lexsort((client, row // edges))
