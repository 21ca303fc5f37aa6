"""Synchronous rounds in which nobody waits for anybody's link: all replicas at once, as flat arrays.

Arrival times then have a closed form (`arrivals`), and a replica's clock is a number: when its next round opens. Where
the algorithm can and nobody looks in between, many rounds are taken at a go (`rounds_ahead`). Where copies of a
broadcast outlast a round, the events take over.
"""

from __future__ import annotations

from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, cast

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.old_engine import arrivals, rounds_ahead, stretches
from fedsim.old_engine.arrivals import UPLOAD
from fedsim.old_engine.events import Events
from fedsim.old_engine.round import Cohort, Round, Stretch, columns, smooth_columns
from fedsim.old_engine.selection import Roster, cohort
from fedsim.old_engine.world import World
from fedsim.protocols import ClosesInClosedForm, Policy, View
from fedsim.rng import Stream
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

FEW = 16  # rounds of a first stretch that a limit may cut short


def suits(world: World) -> bool:
    """Whether the closed form gives the scenario's timeline."""
    alone = world.network is None or not (world.network.contended or world.network.varying)
    followed = world.scenario.record.events or world.policy.history  # visit by visit
    return alone and not followed and world.always_on and closes_in_closed_form(world.policy)


def closes_in_closed_form(policy: Policy) -> bool:
    """Whether the policy tells of all replicas at once when their rounds close."""
    return policy.batched and (policy.waits or isinstance(policy.own, ClosesInClosedForm))


class ClosedForm:
    """A `Driver`; `before` and `now` are when the replicas' last round and the next one open."""

    path = "closed form"

    def __init__(self, run: Run) -> None:
        self._run, self._world, self._learner = run, run.world, run.learner
        replicas = len(run.world.replicas)
        self._now, self._before = np.zeros(replicas), np.full(replicas, -np.inf)
        self._many, self._singly_until = _suits_stretches(run), 0
        self._limited = bool(run.world.budget.limits)
        self._events: Events | None = None  # once they have taken over
        self._message: Arrays = {}
        self._computed: tuple[Reply, Array] | None = None  # the round's replies and whose they are, if known already

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        if number and "now" not in saved:
            self._take_over(Events(self._run))
            assert self._events is not None
            self._events.resume(number, active, saved)
            return
        self._now, self._before = saved.get("now", self._now), saved.get("before", self._before)

    def state(self, active: Array) -> Arrays:
        return self._events.state(active) if self._events else {"now": self._now, "before": self._before}

    async def next(self, number: int, active: Array) -> Round | Stretch:
        if not self._events and self._meets_copies(active):
            self._hand_over(number, active)
        if self._events:
            return await self._events.next(number, active)
        count = stretches.alike(self._run, number, active) if self._many and number >= self._singly_until else 1
        if self._limited:
            count = min(count, number + FEW)  # not much more than half of them are made in vain
        many = await self._stretch(number, active, count) if count > 1 else None
        if many is not None:
            return many
        self._before[active] = self._now[active]
        return await self._round(number, active)

    async def replies(self, round: Round) -> Reply:
        if self._events:
            return await self._events.replies(round)
        who, arrived = round.arrived, round.visits.arrived
        if self._computed is None:
            return await self._learner.replies(round.active, round.number, who, self._message, round.rows[who.row])
        reply, whose = self._computed
        folded = np.zeros(len(whose), bool)
        folded[round.visit] = arrived
        return reply.part(folded[whose])

    def report_losses(self, round: Round, losses: Array) -> None:
        if self._events:
            self._events.report_losses(round, losses)

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        if count:
            self._before[stretch.active] = stretch.columns["opened_s"][count - 1]
            self._now[stretch.active] = stretch.columns["closed_s"][count - 1]
        else:
            self._singly_until = stretch.number + stretch.count

    async def close(self) -> None:
        if self._events:
            await self._events.close()

    # --- One round ----------------------------------------------------------------------------------------

    async def _round(self, number: int, active: Array) -> Round:
        world, learner, opened = self._world, self._learner, self._now[active]
        who = self._select(number, active)
        self._message = learner.broadcast(active)
        down = learner.down_bits(self._message)
        position = active[who.row]
        if world.devices is None:
            drawn = arrivals.at_once(len(position), partial(world.ties, position, who.client, number))
        else:
            drawn = world.visit_draws(opened[who.row], position, who.client, number)
        start = arrivals.outset(None if world.paths is None else world.paths[0], opened, who, down, drawn)
        bits = learner.reply_shape(number).bits
        self._computed = None
        if bits is None:  # the clock needs the sizes: everybody who gets as far as the upload computes first
            whose = start.phase % UPLOAD == 0
            computing = who.part(whose)
            reply = await learner.replies(active, number, computing, self._message, computing.row)
            up = np.zeros(len(who.client), np.int64)
            up[whose] = reply.bits
            self._computed = reply, whose
            if world.copies:  # the events may take over
                self._run.inputs.add("sizes", position, up)
        else:
            up = np.broadcast_to(np.int64(bits), len(who.client))
        closed, ended = arrivals.outcome(world.paths, world.policy, opened, who, start, down, up, drawn.tie)
        self._now[active] = closed
        copied = world.copied(who) * down if world.reaches_all else 0
        made = columns(opened, closed, who.sizes, who.starts, ended, copied)
        return Round(number, active, who, ended, made, number)

    def _select(self, number: int, active: Array) -> Cohort:
        world = self._world
        if world.policy.always:
            return _everybody(len(active), world.population)
        rng = world.draws(Stream.SELECT, active, round=number)
        roster = Roster(world.weights, number, len(active), rng, lambda: world.cumulative, world.problem.sizes)
        return cohort(world.policy.select(cast(View, roster), rng), world.population)

    # --- Many at a go ---------------------------------------------------------------------------------------

    async def _stretch(self, number: int, active: Array, count: int) -> Stretch | None:
        world, opened = self._world, self._now[active]
        up, down = self._learner.reply_shape(0).bits, self._learner.down_bits(self._learner.broadcast(active))
        assert up is not None
        if not _at_once(world):
            return rounds_ahead.stretch(world, number, active, opened, count, (down, up), self._copy_s)
        times = arrivals.steady(world.paths, opened, down, up, count)
        everybody = np.full(times[1:].shape, world.population, np.int64)
        made = smooth_columns(times[:-1], times[1:], everybody, everybody * up, everybody * down)
        return Stretch(number, active, made, up)

    # --- Copies of the broadcast to clients that were not selected --------------------------------------------

    def _meets_copies(self, active: Array) -> bool:
        """Whether the next round may find a client's way down still taken by its copy from the round before."""
        now = self._now[active]
        return self._copy_s > 0 and bool((now - self._before[active] <= self._copy_s + 4 * np.spacing(now)).any())

    @cached_property
    def _copy_s(self) -> float:
        """How long the slowest copy takes; what is that close the events decide."""
        if not self._world.copies or self._world.paths is None:
            return 0.0
        down = self._learner.down_bits(self._learner.broadcast(np.arange(1)))
        return float(self._world.paths[0].transfer_s(down).max()) * (1 + 1e-6)

    def _hand_over(self, number: int, active: Array) -> None:
        """Go on event by event, with the copies of the last round under way."""
        events = Events(self._run, {int(i): float(self._before[i]) for i in active})
        down = self._learner.down_bits(self._learner.broadcast(active))
        who = self._select(number - 1, active)
        for r, i in enumerate(active):
            events.replicas[i].copy(who.client[who.starts[r] : who.starts[r + 1]], down)
            events.replicas[i].clock.run_to(float(self._now[i]))
        self._take_over(events)

    def _take_over(self, events: Events) -> None:
        self._events, self.path = events, "closed form, then event"


def _suits_stretches(run: Run) -> bool:
    """Whether this run's rounds may be taken several at a go."""
    world = run.world
    return (
        stretches.learns_many(run)
        and _at_once(world)
        and (run.learner.reply_shape(0).bits is not None or stretches.all_answer(world))
    )


def _at_once(world: World) -> bool:
    """Whether everybody answers in every round, and as soon as the links allow."""
    return world.policy.always and world.devices is None


@lru_cache(maxsize=2)
def _everybody(replicas: int, clients: int) -> Cohort:
    return cohort(np.broadcast_to(np.arange(clients), (replicas, clients)), clients)
