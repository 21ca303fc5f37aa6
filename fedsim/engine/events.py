"""Synchronous rounds event by event: links are shared, devices come and go, and a policy may close when it likes.

Each replica has its own clock. All of them open a round, run to its close, and then their jobs go to the runtime as
one batch; nothing of real time enters.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from simpy.core import EmptySchedule

from fedsim.engine.account import columns as columns_of
from fedsim.engine.account import ended
from fedsim.engine.clock import LAST, Clock, links
from fedsim.engine.orders import sent_early
from fedsim.engine.run import Run
from fedsim.engine.select import Cohort, cohort
from fedsim.engine.timeline import NOT
from fedsim.engine.totals import tally
from fedsim.engine.view import ReplicaView
from fedsim.engine.visits import Journeys, Visit
from fedsim.errors import InvalidInput

Array = npt.NDArray[Any]
JUMPS = (
    10_000  # of the clock in a row, from one time at which clients come on to the next, before nobody believes in it
)


class Replica:
    """One replica's clock, and the visits of the round that is open on it."""

    def __init__(self, run: Run, position: int, now_s: float = 0.0) -> None:
        self.run, self.position = run, position
        self.clock = Clock(now_s)
        self.links = links(self.clock, run.network, run.ways, run.copies)
        self.view = ReplicaView(run, position)
        trace = run.tracer(position)
        self.journeys = Journeys(self.clock, self.links, self._heard, self._blocked, trace)
        self.trace = trace
        self.visits: list[Visit] = []
        self.open = False
        self._timer = math.inf
        self.limit_s = run.budget.seconds if run.budget.seconds is not None else math.inf

    def select(self, round: int) -> Cohort | None:
        """Who takes part; the clock jumps to when enough are there, and None means that they never will be."""
        enough = getattr(self.run.policy, "at_least", None)
        if enough is not None and not self._wait_for(enough):
            return None
        while True:
            who = cohort(self.view.select(round, self.clock.now)[None], self.run.population)
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
            if at == math.inf or self.clock.now > self.limit_s:
                return False
            self.clock.run_to(at)
        return False

    def begin(self, who: Cohort, round: int, down_bits: int, up_bits: Array) -> None:
        """Open the round: every visit sets out."""
        now, client = self.clock.now, who.client
        drawn = self.run.fates(np.full(len(client), now), np.full(len(client), self.position), client, round)
        rank = np.empty(len(client), np.int64)
        rank[np.lexsort((client, drawn.tie()))] = np.arange(len(client))
        offline = self.view.offline_s(client, now).tolist()
        columns = (client, drawn.compute_s, drawn.phase, drawn.fraction, rank, up_bits)
        self.visits = list(map(Visit, *(c.tolist() for c in columns), self.links.ways(client)))
        self.open, self._timer = True, math.inf
        self.view.selected, self.view.arrived = client.tolist(), []
        self.view.in_flight = dict(zip(self.view.selected, self.visits, strict=True))
        for visit, offline_s in zip(self.visits, offline, strict=True):
            if self.trace is not None:
                self.trace(now, visit.client, "select", down_bits)
            self.journeys.start(visit, down_bits, offline_s)
        if self.run.copies:
            self.copy(client, down_bits)
        self._consider(opening=True)

    def copy(self, selected: Array, down_bits: int) -> None:
        """The broadcast to everybody else, which nobody waits for."""
        for c in np.setdiff1d(np.arange(self.run.population), selected).tolist():
            self.links.copy(c, down_bits)

    def wind(self, rounds: int, down_bits: int) -> None:
        """Forward to where so many rounds are closed, computing nothing: the clock is a function of the seed."""
        self.journeys.mute(True)
        trace, self.trace = self.trace, None
        for round in range(rounds):
            who = self.select(round)
            assert who is not None, "this replica was active in all those rounds"
            bits, count = self.run.reply_shape(round).bits, len(who.client)
            known = [bits] * count if bits is not None else self.run.noted.again("sizes", self.position, count)
            self.begin(who, round, down_bits, np.array(known, np.int64))
            self.finish()
            if self.run.reports_loss:
                heard = [v.client for v in self.visits if v.arrived]
                self.view.told(heard, self.run.noted.again("losses", self.position, len(heard)))
        self.trace = trace
        self.journeys.mute(False)

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
        raise AssertionError("a synchronous round knows its replies' sizes at the opening")

    def _consider(self, opening: bool = False) -> None:
        """Close now, or set the timer that the policy asks for; at the opening "now" is the end of this instant."""
        view = self.view
        if not view.in_flight:
            self._close()
            return
        view.now_s = self.clock.now
        at = self.run.policy.close(view)
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

    def _checked(self, at: Any) -> float:
        """The instant that a policy names, in floating point."""
        try:
            instant = float(at)
        except (TypeError, ValueError):
            instant = math.nan
        if math.isnan(instant):
            raise InvalidInput(
                f"{type(self.run.policy).__name__}.close returned no time in round {self.view.round + 1}; return "
                "seconds on the virtual clock, or inf to keep waiting"
            )
        return instant

    def _close(self) -> None:
        self.open = False
        self.journeys.abandon(list(self.view.in_flight.values()))
        if self.trace is not None:
            self.trace(self.clock.now, -1, "aggregate", 0)


async def events(run: Run) -> None:
    """Rounds until every replica's budget is spent."""
    number, active, _ = run.keeper.resume(run)
    await wound(run, number, active)


async def wound(run: Run, number: int, active: Array) -> None:
    """The same, from round `number` on, after the clocks were wound forward to its opening."""
    run.path = "event"
    replicas = [Replica(run, i) for i in range(len(run.replicas))]
    for i in active:
        replicas[i].wind(number, run.down_bits(run.broadcast(active[:1])))
    run.noted.forget()
    await rounds(run, replicas, number, active)


async def rounds(run: Run, replicas: list[Replica], number: int, active: Array) -> None:
    """Round after round from `number` on; the active replicas' clocks are at its opening."""
    while len(active):
        cohorts = {int(i): replicas[i].select(number) for i in active}
        gone = np.array([cohorts[int(i)] is None for i in active], bool)
        late = np.array([replicas[i].clock.now > replicas[i].limit_s for i in active], bool)
        run.stop(active[gone & late], "seconds")
        run.stop(active[gone & ~late], "no clients")
        active = active[~gone]
        if not len(active):
            return
        active = await _round(run, replicas, active, number, [c for c in cohorts.values() if c is not None])
        number += 1
        run.keeper.after(run, number, active, dict)


async def _round(run: Run, replicas: list[Replica], active: Array, number: int, cohorts: list[Cohort]) -> Array:
    message = run.broadcast(active)
    down = run.down_bits(message)
    who = _joined(cohorts)
    bits = run.reply_shape(number).bits
    reply = None
    if bits is None:  # virtual time needs the sizes
        reply = await run.replies(active, number, who, message)
        run.noted.add("sizes", active[who.row], reply.bits)
    up = reply.bits if reply is not None else np.full(len(who.client), bits, np.int64)
    for r, i in enumerate(active):
        replicas[i].begin(cohorts[r], number, down, up[who.starts[r] : who.starts[r + 1]])
    early = None
    if reply is None and getattr(run.session, "elsewhere", False):  # others may compute while the clock runs here
        promising = np.array([v.phase == NOT for i in active for v in replicas[i].visits], bool)
        early = asyncio.create_task(run.replies(active, number, who.part(promising), message))
        await asyncio.sleep(0)
    for i in active:
        replicas[i].finish()
    visits = ended([v for i in active for v in replicas[i].visits])
    opened = np.array([replicas[i].view.opened_s for i in active])
    closed = np.array([replicas[i].clock.now for i in active])
    columns = columns_of(opened, closed, who.sizes, who.starts, visits, run.copied(who) * down)
    run.uploaded(active[who.row], who.client, visits.up_bits, number)
    within = run.within_budget(active, columns)
    folded = visits.arrived & within[who.row]
    going = active[within]
    if not len(going):
        if early is not None:
            await asyncio.gather(early, return_exceptions=True)
        return going
    chosen = who.part(folded).among(within)
    if reply is not None:
        reply = reply.part(folded)
    elif early is not None:
        computed = await sent_early(early)
        reply = None if computed is None else computed.part(folded[promising])
    if reply is None:
        reply = await run.replies(going, number, chosen, {n: m[within] for n, m in message.items()})
    tally(run.totals, visits.part(within[who.row]), number + 1)
    if run.reports_loss and not run.skip:
        losses = run.losses(going[chosen.row], reply)
        for r, i in enumerate(going):
            own = slice(chosen.starts[r], chosen.starts[r + 1])
            replicas[i].view.told(chosen.client[own].tolist(), losses[own].tolist())
    run.fold(going, number, chosen, reply, np.zeros(len(chosen.client), np.int64))
    return run.close(going, number + 1, {n: c[within] for n, c in columns.items()})


def _joined(cohorts: list[Cohort]) -> Cohort:
    """The replicas' cohorts as one."""
    sizes = [len(c.client) for c in cohorts]
    return Cohort(
        np.repeat(np.arange(len(cohorts)), sizes),
        np.concatenate([c.client for c in cohorts]),
        np.concatenate([c.multiplicity for c in cohorts]),
        np.concatenate([[0], np.cumsum(sizes)]),
    )
