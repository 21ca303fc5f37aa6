"""Asynchronous rounds: clients work continuously, the server folds every K arrivals into a new model version.

A visit keeps the version it started from and the memory its client had then; its noise is keyed by that version and by
the client's visit number. Replies are re-based before the server sees them: theta_now + s (beta - theta_started) for a
model, s times the value for anything else, with s the policy's discount of the staleness. No stationary law is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import called
from fedsim.errors import positive
from fedsim.old_engine.asynchronous_replica import AsynchronousReplica
from fedsim.old_engine.events import ended
from fedsim.old_engine.jobs_ahead import JobsAhead
from fedsim.old_engine.round import Cohort, Round, Stretch, columns, nobody
from fedsim.old_engine.visits import Visit
from fedsim.old_engine.world import World
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run


class Asynchronous:
    """A `Driver`: a round is what happens between two folds."""

    path = "event, asynchronous"

    def __init__(self, run: Run) -> None:
        self._run, self._world, self._learner = run, run.world, run.learner
        self._jobs = JobsAhead(run.world, run.learner)
        self.replicas = [AsynchronousReplica(run, i) for i in range(len(run.world.replicas))]
        self._resumed = False
        self._ended: list[tuple[AsynchronousReplica, Visit]] = []  # in this round, in the order of its rows

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        self._resumed = number > 0
        for i in active:
            self.replicas[i].wind(number, self._learner.down_bits(self._learner.broadcast(active[:1])), saved)

    def state(self, active: Array) -> Arrays:
        """What the visits in flight started from, by replica and client."""
        out: Arrays = {}
        for i in active:
            for visit in self.replicas[i].view.in_flight.values():
                place = f"{i}.{visit.client}."
                out |= {f"{place}message.{n}": a for n, a in visit.message.items()}
                out |= {f"{place}memory.{n}": a for n, a in visit.memory.items()}
                if visit.reply is not None:
                    out |= {f"{place}value.{n}": a for n, a in visit.reply.values.items()}
                    out |= {f"{place}next.{n}": a for n, a in visit.reply.memory.items()}
                    out[place + "bits"] = visit.reply.bits
        return out

    async def next(self, number: int, active: Array) -> Round:
        replicas, message = [self.replicas[i] for i in active], self._learner.broadcast(active)
        down = self._learner.down_bits(message)
        if self._resumed:  # visits were found in flight
            await self._jobs.send(replicas)
            self._resumed = False
        for r, replica in enumerate(replicas):
            replica.release(number, {n: m[r] for n, m in message.items()}, down)
        await self._jobs.send(replicas)
        await self._advance(replicas)
        full = np.array([len(replica.arrived) >= self._world.policy.replies for replica in replicas], bool)
        late = np.array([replica.clock.now > self._world.limit_s for replica in replicas], bool)
        stopped = (("seconds", active[~full & late]), ("no clients", active[~full & ~late]))
        active, replicas = active[full], [self.replicas[i] for i in active[full]]
        if not len(active):
            return nobody(number, stopped)
        own = [replica.folded() + replica.lost for replica in replicas]
        self._ended = [(replica, v) for replica, visits in zip(replicas, own, strict=True) for v in visits]
        out = ended([v for _, v in self._ended])
        sizes = np.array([len(visits) for visits in own], np.int64)
        row, starts = np.repeat(np.arange(len(own)), sizes), np.concatenate([[0], np.cumsum(sizes)])
        who = Cohort(row, out.client, np.ones(len(row), np.int64), starts)
        opened, closed = np.array([(s.view.opened_s, s.clock.now) for s in replicas]).T
        begun = np.array([len(s.started) for s in replicas], np.int64)
        made = columns(opened, closed, begun, starts, out, 0)
        # A download counts when it ends, in which round ever its visit does.
        came_down = [s.visit_events.came_down + s.copied * s.down_bits for s in replicas]
        made["downlink_bits"] = np.array(came_down, np.int64)
        versions = np.array([v.version for _, v in self._ended], np.int64)
        client = np.array([c for s in replicas for c in s.started], np.int64)
        row, starts = np.repeat(np.arange(len(begun)), begun), np.concatenate([[0], np.cumsum(begun)])
        selected = Cohort(row, client, np.ones(len(row), np.int64), starts)
        return Round(number, active, who, out, made, versions, stopped, selected=selected)

    async def _advance(self, replicas: list[AsynchronousReplica]) -> None:
        """Everybody to a full buffer; replies whose size the clock needs are computed together on the way."""
        while waiting := [s for s in replicas if not s.advance() and s.blocked]:
            await self._jobs.fetch([(s, v) for s in waiting for v in s.blocked])
            for replica in waiting:
                blocked, replica.blocked = replica.blocked, []
                sizes = np.array([visit.reply.bits[0] for visit in blocked], np.int64)  # whole, should one break off
                self._run.inputs.add("sizes", np.full(len(sizes), replica.position), sizes)
                for visit, bits in zip(blocked, sizes.tolist(), strict=True):
                    visit.bits = bits
                    replica.visit_events.upload(visit)

    async def replies(self, round: Round) -> Reply:
        """Those that arrived, as if their clients had started from the current version."""
        here = np.arange(len(self._ended))[round.visit][round.visits.arrived]
        visits = [self._ended[i] for i in here.tolist()]
        await self._jobs.fetch(visits)
        if self._world.skip:
            return Reply({}, np.empty(0, np.int64), {})
        names = visits[0][1].message
        started = {n: np.stack([v.message[n] for _, v in visits]) for n in names}
        now = {n: np.stack([replica.message[n] for replica, _ in visits]) for n in names}
        return rebased(self._world, Reply.join([v.reply for _, v in visits]), started, now, round.staleness)

    def report_losses(self, round: Round, losses: Array) -> None:
        who = round.arrived
        self._run.inputs.add("losses", round.active[who.row], losses)
        for r, c, loss in zip(who.row.tolist(), who.client.tolist(), losses.tolist(), strict=True):
            self.replicas[round.active[r]].view.note_losses([c], [loss])

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        raise AssertionError("folds come one at a time")

    async def close(self) -> None:
        await self._jobs.close()


def rebased(world: World, reply: Reply, started: Arrays, now: Arrays, staleness: Array) -> Reply:
    """Replies as if their clients had started from what is sent `now`; all have a row each."""
    discount = world.policy.discount
    s = np.ones(len(staleness))
    if discount is not None:
        s = np.array([_discounted(discount, int(k)) for k in staleness])
    values = {}
    for name, value in reply.values.items():
        factor = s.astype(value.dtype).reshape(-1, *[1] * (value.ndim - 1))
        if name in world.algorithm.kept:
            values[name] = value
        elif name in started:
            values[name] = now[name] + factor * (value - started[name])
        else:
            values[name] = factor * value
    return Reply(values, reply.bits, reply.memory)


def _discounted(discount: Callable[[int], float], staleness: int) -> float:
    factor = np.asarray(called("participation.buffered: discount", discount, staleness))
    where = "participation.buffered: discount returned {}"
    given = factor.item() if factor.size == 1 else factor
    return positive(where, given, zero=True, remedy="it must be a number of at least 0")
