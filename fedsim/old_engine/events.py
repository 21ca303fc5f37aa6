"""Synchronous rounds event by event: links are shared, devices come and go, and a policy may close when it likes.

Each replica has its own clock. All of them open a round, run to its close, and then their jobs go to the runtime as
one batch; nothing of real time enters.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np
from simpy.core import EmptySchedule

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.old_engine.arrivals import NOT
from fedsim.old_engine.clock import LAST, Clock, Links, SharedLinks, links
from fedsim.old_engine.jobs_ahead import sent_early
from fedsim.old_engine.round import Cohort, Ended, Round, Stretch, columns, nobody
from fedsim.old_engine.selection import cohort
from fedsim.old_engine.view import ReplicaView
from fedsim.old_engine.visits import Visit, VisitEvents
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

OUTCOME = attrgetter("client", "arrived", "late", "uploading", "sent", "came_down", "ends_s", "started_s")
JUMPS = (
    10_000  # of the clock in a row, from one time at which clients come on to the next, before nobody believes in it
)


class SiteRounds:
    """One site's rounds on its replica's clock, and the visits of the one that is open. A star has one site.

    `closed` is called at every close, `blocked` when virtual time needs a reply's size that is not known.
    """

    def __init__(
        self, run: Run, position: int, clock: Clock, links: Links, site: int = 0,
        closed: Callable[[int], None] | None = None, blocked: Callable[[Visit], None] | None = None,
    ) -> None:  # fmt: skip
        self.world, self.learner, self.inputs, self.position = run.world, run.learner, run.inputs, position
        self.clock, self.links, self.site, self._closed, self._needs_size = clock, links, site, closed, blocked
        self.view = ReplicaView(self.world, position, site)
        trace = run.trace.note(int(self.world.replicas[position]), lambda: self.view.round)
        self.visit_events = VisitEvents(self.clock, self.links, self._heard, self._blocked, trace)
        self.trace = trace
        self.visits: list[Visit] = []
        self.open = False
        self._timer = math.inf

    def select(self, round: int) -> Cohort | None:
        """Who takes part; the clock jumps to when enough are there, and None means that they never will be."""
        enough = self.world.policy.at_least
        if enough is not None and not self._wait_for(enough):
            return None
        while True:
            who = cohort(self.view.select(round, self.clock.now)[None], self.world.population)
            if len(who.client) or self.view.anybody():
                return who  # where somebody is there, the policy just picked nobody
            if not self._wait_for(1):
                return None

    def _wait_for(self, enough: int) -> bool:
        """Jump to the first instant at which so many are on; False if there is none, as far as anybody can see."""
        for _ in range(JUMPS):
            at = self.view.when(enough, self.clock.now)
            if at == self.clock.now:
                return True
            if at == math.inf or self.clock.now > self.world.limit_s:
                return False
            self.clock.run_to(at)
        return False

    def begin(self, who: Cohort, round: int, down_bits: int, up_bits: list[int] | list[None]) -> None:
        """Open the round: every visit sets out."""
        now, client = self.clock.now, who.client
        drawn = self.world.visit_draws(np.full(len(client), now), np.full(len(client), self.position), client, round)
        rank = np.empty(len(client), np.int64)
        rank[np.lexsort((client, drawn.tie()))] = np.arange(len(client))
        offline = self.view.offline_s(client, now).tolist()
        columns = (client, drawn.compute_s, drawn.phase, drawn.fraction, rank)
        self.visits = list(map(Visit, *(c.tolist() for c in columns), up_bits, self.links.paths(client)))
        self.open, self._timer = True, math.inf
        self.view.selected, self.view.arrived = client.tolist(), []
        self.view.in_flight = dict(zip(self.view.selected, self.visits, strict=True))
        for visit, offline_s in zip(self.visits, offline, strict=True):
            if self.trace is not None:
                self.trace(now, visit.client, "select", down_bits)
            self.visit_events.start(visit, down_bits, offline_s)
        if self.world.copies:
            self.copy(client, down_bits)
        self._consider(opening=True)

    def copy(self, selected: Array, down_bits: int) -> None:
        """The broadcast to everybody else, which nobody waits for."""
        assert isinstance(self.links, SharedLinks)
        for c in np.setdiff1d(self.world.sites.members[self.site], selected).tolist():
            self.links.copy(c, down_bits)

    def wind(self, rounds: int, down_bits: int) -> None:
        """Forward to where so many rounds are closed, computing nothing: the clock is a function of the seed."""
        self.visit_events.mute(True)
        trace, self.trace = self.trace, None
        for round in range(rounds):
            who = self.select(round)
            assert who is not None, "this replica was active in all those rounds"
            bits, count = self.learner.reply_shape(round).bits, len(who.client)
            known = [bits] * count if bits is not None else self.inputs.again("sizes", self.position, count)
            self.begin(who, round, down_bits, known)
            self.finish()
            if self.world.reports_loss:
                heard = [v.client for v in self.visits if v.arrived]
                self.view.note_losses(heard, self.inputs.again("losses", self.position, len(heard)))
        self.trace = trace
        self.visit_events.mute(False)

    def finish(self) -> None:
        """Run the clock to the close."""
        step = self.clock.step
        try:
            while self.open:
                step()
        except EmptySchedule:
            who = ", ".join(map(str, sorted(self.view.in_flight)[:3]))
            raise InvalidInput(
                f"round {self.view.round + 1} never closes: clients such as {who} are still under way and nothing more "
                "will happen; raise the bandwidths, or close with a deadline"
            ) from None

    def _heard(self, visit: Visit) -> None:
        """A reply arrived, or the server learnt that none will."""
        view = self.view
        del view.in_flight[visit.client]
        if visit.arrived:
            view.heard_of(visit)
        self._consider()

    def _blocked(self, visit: Visit) -> None:
        assert self._needs_size is not None, "a star's round knows its replies' sizes at the opening"
        self._needs_size(visit)

    def _consider(self, opening: bool = False) -> None:
        """Close now, or set the timer that the policy asks for; at the opening "now" is the end of this instant."""
        view = self.view
        if not view.in_flight:
            self._close()
            return
        view.now_s = self.clock.now
        at = self.world.policy.close(view)
        if type(at) is float and at == self._timer:
            return  # it is set, and will ring after everything else that happens at that instant
        at = self._checked(at)
        if at <= self.clock.now and not opening:
            self._close()
            return
        self._timer, round = at, self.view.round
        if at < math.inf:
            rings = max(at, self.clock.now)
            self.clock.at(
                rings,
                lambda _: self._close() if self.open and self.view.round == round and self._timer == at else None,
                LAST,
            )

    def _checked(self, at: SupportsFloat) -> float:
        """The instant that a policy names, in floating point."""
        try:
            instant = float(at)
        except (TypeError, ValueError):
            instant = math.nan
        if math.isnan(instant):
            raise InvalidInput(
                f"{type(self.world.policy.own).__name__}.close returned no time in round {self.view.round + 1}; return "
                "seconds on the virtual clock, or inf to keep waiting"
            )
        return instant

    def _close(self) -> None:
        self.open = False
        self.visit_events.abandon(list(self.view.in_flight.values()))
        if self.trace is not None:
            self.trace(self.clock.now, -1 - self.site, "aggregate", 0)
        if self._closed is not None:
            self._closed(self.site)


class Events:
    """A `Driver`: every replica's clock is run to the close, then all their jobs go to the runtime as one batch."""

    path = "event"

    def __init__(self, run: Run, starts_s: dict[int, float] | None = None) -> None:
        self._run, self._world, self._learner = run, run.world, run.learner
        starts = starts_s or {}
        clocks = [Clock(starts.get(i, 0.0)) for i in range(len(run.world.replicas))]
        self.replicas = [SiteRounds(run, i, clock, links(clock, run.world)) for i, clock in enumerate(clocks)]
        self._message: Arrays = {}
        self._computed: tuple[Reply, Array] | None = None  # the round's replies and whose they are, if known already
        self._early: tuple[asyncio.Task[Reply], Array] | None = None  # sent while the clock ran, and whose

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        for i in active:
            self.replicas[i].wind(number, self._learner.down_bits(self._learner.broadcast(active[:1])))

    def state(self, active: Array) -> Arrays:
        return {}

    async def next(self, number: int, active: Array) -> Round:
        replicas, learner = self.replicas, self._learner
        cohorts = {int(i): replicas[i].select(number) for i in active}
        gone = np.array([cohorts[int(i)] is None for i in active], bool)
        late = np.array([replicas[i].clock.now > self._world.limit_s for i in active], bool)
        stopped = (("seconds", active[gone & late]), ("no clients", active[gone & ~late]))
        active = active[~gone]
        if not len(active):
            return nobody(number, stopped)
        who = _joined([c for c in cohorts.values() if c is not None])
        self._message = learner.broadcast(active)
        down, bits = learner.down_bits(self._message), learner.reply_shape(number).bits
        self._computed = self._early = None
        up = np.full(len(who.client), bits, np.int64) if bits is not None else await self._sizes(number, active, who)
        for r, i in enumerate(active):
            replicas[i].begin(cohorts[int(i)], number, down, up[who.starts[r] : who.starts[r + 1]].tolist())
        if bits is not None and learner.session.elsewhere:  # others may compute while the clock runs here
            whose = np.array([v.phase == NOT for i in active for v in replicas[i].visits], bool)
            promising = who.part(whose)
            job = learner.replies(active, number, promising, self._message, promising.row)
            self._early = asyncio.create_task(job), whose
            await asyncio.sleep(0)
        for i in active:
            replicas[i].finish()
        visits = ended([v for i in active for v in replicas[i].visits])
        opened = np.array([replicas[i].view.opened_s for i in active])
        closed = np.array([replicas[i].clock.now for i in active])
        made = columns(opened, closed, who.sizes, who.starts, visits, self._world.copied(who) * down)
        return Round(number, active, who, visits, made, number, stopped)

    async def _sizes(self, number: int, active: Array, who: Cohort) -> Array:
        """Virtual time needs the sizes: everybody computes before the clock goes on."""
        reply = await self._learner.replies(active, number, who, self._message, who.row)
        self._run.inputs.add("sizes", active[who.row], reply.bits)
        self._computed = reply, np.ones(len(who.client), bool)
        return reply.bits

    async def replies(self, round: Round) -> Reply:
        if self._early is not None:
            task, whose = self._early
            self._early = None
            computed = await sent_early(task)
            self._computed = None if computed is None else (computed, whose)
        if self._computed is not None:
            reply, whose = self._computed
            folded = np.zeros(len(whose), bool)
            folded[round.visit] = round.visits.arrived
            return reply.part(folded[whose])
        who = round.arrived
        return await self._learner.replies(round.active, round.number, who, self._message, round.rows[who.row])

    def report_losses(self, round: Round, losses: Array) -> None:
        who = round.arrived
        self._run.inputs.add("losses", round.active[who.row], losses)
        for r, i in enumerate(round.active):
            own = slice(who.starts[r], who.starts[r + 1])
            self.replicas[i].view.note_losses(who.client[own].tolist(), losses[own].tolist())

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        raise AssertionError("events come one round at a time")

    async def close(self) -> None:
        if self._early is not None:  # nobody waited for it
            await asyncio.gather(self._early[0], return_exceptions=True)


def ended(visits: list[Visit]) -> Ended:
    """What became of visits, one row each."""
    kinds = (int, bool, bool, bool, int, int, float, float)
    outcomes = list(zip(*map(OUTCOME, visits), strict=True)) or [()] * len(kinds)
    made: list[Array] = [np.array(column, kind) for column, kind in zip(outcomes, kinds, strict=True)]
    client, arrived, late, uploading, sent, came_down, ends_s, started_s = made
    return Ended(client, arrived, ~arrived & ~late, late, late & ~uploading, sent, came_down, ends_s - started_s)


def _joined(cohorts: list[Cohort]) -> Cohort:
    """The replicas' cohorts as one."""
    sizes = [len(c.client) for c in cohorts]
    return Cohort(
        np.repeat(np.arange(len(cohorts)), sizes),
        np.concatenate([c.client for c in cohorts]),
        np.concatenate([c.multiplicity for c in cohorts]),
        np.concatenate([[0], np.cumsum(sizes)]),
    )
