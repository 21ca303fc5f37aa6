"""Edge servers under a cloud, event by event: every edge keeps rounds of its own, and now and then they meet.

All edges of a replica share its clock and its links. An edge goes on as soon as its round is closed, whatever others
do; at every `every`-th it sends its state up and waits for the cloud's. EdgesRow r of the timeline is every edge's r-th
round, so an edge may be rounds ahead of what is learnt: what it will do there depends on lengths and times alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from simpy.core import EmptySchedule

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.old_engine.clock import Clock, Message, Moment, links
from fedsim.old_engine.events import SiteRounds, ended
from fedsim.old_engine.round import Cohort, Round, Stretch, columns, nobody
from fedsim.old_engine.selection import cohort
from fedsim.old_engine.visits import PROGRESS, Visit
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

AHEAD = 10_000  # rounds by which one site may leave another behind before nobody believes in it


class EdgesRow:
    """A round of all edges, as far as it has come."""

    def __init__(self, edges: int) -> None:
        self.who: list[Cohort | None] = [None] * edges
        self.visits: list[list[Visit]] = [[] for _ in range(edges)]
        self.opened_s, self.closed_s = math.inf, -math.inf
        self.missing = edges  # closes; at a merge, messages that the cloud has not got


class TiersReplica:
    """One replica's clock, its edges and its cloud."""

    def __init__(self, run: Run, position: int) -> None:
        self.world, self.learner, self.position = run.world, run.learner, position
        self.clock = Clock(0.0)
        self.links = links(self.clock, self.world)
        self.blocked: list[Visit] = []  # whose size the clock has come to need
        self.rows: dict[int, EdgesRow] = {}
        self.hopeless: dict[int, float] = {}  # rounds that an edge can never open: from when on it would wait
        edges = range(run.world.sites.count)
        self.edges = [
            SiteRounds(run, position, self.clock, self.links, e, self._closed, self.blocked.append) for e in edges
        ]
        self._notes = [site.trace for site in self.edges]  # each knows its edge's round
        self.down_bits = self.learner.down_bits(self.learner.broadcast(np.arange(1)))
        self.to_cloud, self.from_cloud = self.learner.backhaul_bits()

    def start(self) -> None:
        """Every edge opens its first round."""
        for e in range(len(self.edges)):
            self._open(e, 0)

    def row(self, round: int) -> EdgesRow:
        return self.rows.setdefault(round, EdgesRow(len(self.edges)))

    def merges(self, round: int) -> bool:
        """Whether the edges meet at the cloud after this round."""
        return (round + 1) % self.world.sites.every == 0

    def run_to(self, round: int) -> bool:
        """Until that round is closed everywhere, or a size is needed; whether it can ever be."""
        row, step = self.row(round), self.clock.step
        try:
            while row.missing and not self.blocked:
                if round in self.hopeless:
                    return False
                step()
        except EmptySchedule:
            raise InvalidInput(
                f"round {round + 1} never closes: some edge's clients are still under way and nothing more will "
                "happen; raise the bandwidths, or close with a deadline"
            ) from None
        return True

    def answer(self, bits: list[int]) -> None:
        """The sizes that were needed."""
        visits, self.blocked[:] = self.blocked[:], []
        for visit, size in zip(visits, bits, strict=True):
            visit.bits = size
            self.edges[int(self.world.sites.site_of[visit.client])].visit_events.upload(visit)

    # --- An edge -------------------------------------------------------------------------------------

    def _open(self, edge: int, round: int) -> None:
        """Ask the edge's clients, once enough of them are on."""
        now, site = self.clock.now, self.edges[edge]
        if round - min(self.rows, default=round) > AHEAD:
            raise InvalidInput(
                f"edge {edge} is {AHEAD:,} rounds ahead of another, which may never catch up; merge more often"
            )
        at = site.view.when(self.world.policy.at_least or 1, now)
        if at > now:
            self._wait(edge, round, at)
            return
        who = cohort(site.view.select(round, now)[None], self.world.population)
        row = self.row(round)
        row.who[edge], row.opened_s = who, min(row.opened_s, now)
        bits = self.learner.reply_shape(round).bits
        sizes = [None] * len(who.client) if bits is None else [bits] * len(who.client)
        site.begin(who, round, self.down_bits, sizes)

    def _wait(self, edge: int, round: int, at: float) -> None:
        if at == math.inf or at > self.world.limit_s:
            self.hopeless[round] = at
            self.row(round)
        else:
            self.clock.at(at, lambda _: self._open(edge, round))

    def _closed(self, edge: int) -> None:
        site = self.edges[edge]
        round, now = site.view.round, self.clock.now
        row = self.row(round)
        row.visits[edge] = site.visits
        if self.merges(round):
            self.links.send(Message(self.world.population + edge, self.links), True, self.to_cloud, self._up, PROGRESS)
            return
        row.closed_s = max(row.closed_s, now)
        row.missing -= 1
        self.clock.at(now, lambda _: self._open(edge, round + 1))

    # --- The cloud -----------------------------------------------------------------------------------

    def _up(self, moment: Moment) -> None:
        """An edge's state is there; with the last one the cloud has a new state for all."""
        edge = moment.visit.client - self.world.population
        round, now = self.edges[edge].view.round, self.clock.now
        row = self.row(round)
        row.closed_s = max(row.closed_s, now)
        row.missing -= 1
        self._trace(-1 - edge, "to cloud", self.to_cloud)
        if row.missing:
            return
        self._trace(-1 - len(self.edges), "merge", 0)
        for e in range(len(self.edges)):
            message = Message(self.world.population + e, self.links, uploading=False)
            self.links.send(message, False, self.from_cloud, self._came_down, PROGRESS)

    def _came_down(self, moment: Moment) -> None:
        edge = moment.visit.client - self.world.population
        self._trace(-1 - edge, "from cloud", self.from_cloud)
        self._open(edge, self.edges[edge].view.round + 1)

    def _trace(self, who: int, what: str, bits: int) -> None:
        if self.edges[0].trace is not None:
            self.edges[0].trace(self.clock.now, who, what, bits)

    def mute(self, silent: bool) -> None:
        """While the clock is wound forward its events were traced already."""
        for site, note in zip(self.edges, self._notes, strict=True):
            site.visit_events.mute(silent)
            site.trace = None if silent else note


class Tiers:
    """A `Driver`: every replica's clock is run until all its edges have closed the round."""

    path = "event, edges under a cloud"

    def __init__(self, run: Run) -> None:
        self._run, self._world, self._learner = run, run.world, run.learner
        self._replicas: dict[int, TiersReplica] = {}
        self._message: Arrays = {}

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        for i in active.tolist():
            self._replicas[i] = self._wound(i, number)

    def _wound(self, position: int, rounds: int) -> TiersReplica:
        """A replica's clock where so many rounds are closed, nothing computed."""
        replica, inputs = TiersReplica(self._run, position), self._run.inputs
        replica.mute(rounds > 0)
        replica.start()
        for round in range(rounds):
            while replica.run_to(round) and replica.blocked:
                replica.answer(inputs.again("sizes", position, len(replica.blocked)))
            visits = sorted((v for part in replica.rows.pop(round).visits for v in part), key=lambda v: v.client)
            heard = [v.client for v in visits if v.arrived]
            if self._world.reports_loss:
                self._tell(replica, heard, inputs.again("losses", position, len(heard)))
        replica.mute(False)
        return replica

    def state(self, active: Array) -> Arrays:
        return {}

    async def next(self, number: int, active: Array) -> Round:
        replicas = [self._replicas[i] for i in active.tolist()]
        self._message = self._learner.broadcast(active)
        gone = np.zeros(len(active), bool)
        while True:
            for r, replica in enumerate(replicas):
                gone[r] = not replica.run_to(number)
            waiting = [(r, visit) for r, replica in enumerate(replicas) for visit in replica.blocked]
            if not waiting:
                break
            await self._measure(number, active, replicas, waiting)
        late = np.array([math.isfinite(replica.hopeless.get(number, math.inf)) for replica in replicas], bool)
        stopped = (("seconds", active[gone & late]), ("no clients", active[gone & ~late]))
        keep = np.flatnonzero(~gone)
        self._message = {n: m.reshape(len(active), -1, *m.shape[1:])[keep] for n, m in self._message.items()}
        self._message = {n: m.reshape(-1, *m.shape[2:]) for n, m in self._message.items()}
        if not len(keep):
            return nobody(number, stopped)
        return self._round(number, active[keep], [replicas[r] for r in keep], stopped)

    async def _measure(
        self, number: int, active: Array, replicas: list[TiersReplica], waiting: list[tuple[int, Visit]]
    ) -> None:
        """Virtual time needs sizes: those clients compute before the clock goes on."""
        row, client = (np.array(c, np.int64) for c in zip(*((r, v.client) for r, v in waiting), strict=True))
        who = Cohort(row, client, np.ones(len(row), np.int64), np.searchsorted(row, np.arange(len(active) + 1)))
        reply = await self._learner.replies(active, number, who, self._message, row)
        self._run.inputs.add("sizes", active[row], reply.bits)
        for r, replica in enumerate(replicas):
            if replica.blocked:
                replica.answer(reply.bits[who.starts[r] : who.starts[r + 1]].tolist())

    def _round(
        self, number: int, active: Array, replicas: list[TiersReplica], stopped: tuple[tuple[str, Array], ...]
    ) -> Round:
        world, rows = self._world, [replica.rows.pop(number) for replica in replicas]
        visits, times = [], []
        for row in rows:
            drawn = {
                c: t
                for w in row.who
                if w is not None
                for c, t in zip(w.client.tolist(), w.multiplicity.tolist(), strict=True)
            }
            visits.append(sorted((v for part in row.visits for v in part), key=lambda v: v.client))
            times += [drawn[v.client] for v in visits[-1]]
        sizes = np.array([len(part) for part in visits])
        starts = np.concatenate([[0], np.cumsum(sizes)])
        flat = [v for part in visits for v in part]
        over = ended(flat)
        who = Cohort(np.repeat(np.arange(len(rows)), sizes), over.client, np.array(times, np.int64), starts)
        opened, closed = (np.array([getattr(row, name) for row in rows]) for name in ("opened_s", "closed_s"))
        one = replicas[0]
        between = len(one.edges) * (one.to_cloud + one.from_cloud) if one.merges(number) else 0
        copied = world.copied(who) * one.down_bits
        made = columns(opened, closed, who.sizes, starts, over, copied, np.full(len(rows), between, np.int64))
        return Round(number, active, who, over, made, number, stopped)

    async def replies(self, round: Round) -> Reply:
        who = round.arrived
        return await self._learner.replies(round.active, round.number, who, self._message, round.rows[who.row])

    def report_losses(self, round: Round, losses: Array) -> None:
        who = round.arrived
        self._run.inputs.add("losses", round.active[who.row], losses)
        for r, i in enumerate(round.active.tolist()):
            own = slice(who.starts[r], who.starts[r + 1])
            self._tell(self._replicas[i], who.client[own].tolist(), losses[own].tolist())

    def _tell(self, replica: TiersReplica, clients: list[int], losses: list[float]) -> None:
        for c, loss in zip(clients, losses, strict=True):
            replica.edges[int(self._world.sites.site_of[c])].view.note_losses([c], [loss])

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        raise AssertionError("events come one round at a time")

    async def close(self) -> None:
        """Nothing is sent early."""
