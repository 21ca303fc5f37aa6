"""One replica of an asynchronous run: its clock, and who is at work on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.old_engine.clock import Clock, SharedLinks, links
from fedsim.old_engine.draws_ahead import DrawsAhead
from fedsim.old_engine.selection import cohort
from fedsim.old_engine.view import ReplicaView
from fedsim.old_engine.visits import Visit, VisitEvents
from fedsim.rng import Stream
from fedsim.runtime.jobs import Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

PATIENCE = 3_000  # visits in a row without a reply, beyond 100 a client, after which nobody believes in one


class AsynchronousReplica:
    """One replica's clock and the clients at work on it."""

    def __init__(self, run: Run, position: int) -> None:
        self.world, self.learner, self.inputs, self.position = run.world, run.learner, run.inputs, position
        self.policy = run.world.policy
        self.clock = Clock()
        self.links = links(self.clock, self.world)
        self.view = ReplicaView(self.world, position)
        self.ahead = DrawsAhead(self.world, position, self.links)
        self.trace = run.trace.note(int(self.world.replicas[position]), lambda: self.view.round)
        self.visit_events = VisitEvents(self.clock, self.links, self._heard, self._blocked, self.trace)
        self.message: dict[str, Array] = {}  # of the current version, without a replicas axis
        self.version, self.down_bits = 0, 0
        self.arrived: list[Visit] = []
        self.lost: list[Visit] = []
        self.copied = 0  # copies of this version to clients that did not start from it at once
        self.blocked: list[Visit] = []
        self.unsent: list[Visit] = []  # set out from this version, and no job sent ahead of need yet
        self._to_restart: list[int] = []
        self._visits: dict[int, int] = {}  # how often each client has set out
        self.started: list[int] = []  # clients whose visits set out from this version
        self._unanswered = 0  # visits lost in a row

    def release(self, version: int, message: dict[str, Array], down_bits: int) -> None:
        """A new model version: whoever waits for work starts from it."""
        self.version, self.message, self.down_bits = version, message, down_bits
        self.view.opened_s, self.view.round = self.clock.now, version
        self.arrived, self.lost, self.unsent, self.started = [], [], [], []
        self.view.arrived, self.copied, self.visit_events.came_down = [], 0, 0
        if version == 0:
            self._staff(cohort(self.view.select(0, self.clock.now)[None], self.world.population).client.tolist())
        else:
            waiting, self._to_restart = self._to_restart, []
            for client in waiting:
                self._replace(client)
        if self.world.reaches_all:
            self._copy()

    def _copy(self) -> None:
        """The new version to everybody who does not set out from it now; nobody waits for it."""
        busy = {c for c, visit in self.view.in_flight.items() if visit.version == self.version}
        self.copied = self.world.population - len(busy)
        if self.world.copies:
            assert isinstance(self.links, SharedLinks)
            for client in range(self.world.population):
                if client not in busy:
                    self.links.copy(client, self.down_bits)

    def advance(self) -> bool:
        """Run the clock until the buffer is full; False where a reply's size is needed first, or nobody will come."""
        while len(self.arrived) < self.policy.replies:
            if self.blocked or self.clock.peek() == math.inf or self.clock.now > self.world.limit_s:
                return False
            self.clock.step()
        return True

    def wind(self, folds: int, down_bits: int, saved: dict[str, Array]) -> None:
        """Forward to where so many folds are done; what is in flight then gets back what it started from."""
        trace, self.trace = self.trace, None
        self.visit_events.mute(True)
        for version in range(folds):
            self.release(version, {}, down_bits)
            while not self.advance():
                blocked, self.blocked = self.blocked, []
                for visit in blocked:
                    visit.bits = self.inputs.again("sizes", self.position, 1)[0]
                    self.visit_events.upload(visit)
            if self.world.reports_loss:
                heard = [v.client for v in self.folded()]
                self.view.note_losses(heard, self.inputs.again("losses", self.position, len(heard)))
        self.visit_events.mute(False)
        self.trace = trace
        self.unsent = []
        for visit in self.view.in_flight.values():
            place = f"{self.position}.{visit.client}."
            for kind, into in (("message.", visit.message), ("memory.", visit.memory)):
                into.update({n.removeprefix(place + kind): a for n, a in saved.items() if n.startswith(place + kind)})
            values = {n.removeprefix(place + "value."): a for n, a in saved.items() if n.startswith(place + "value.")}
            if values:
                remembered = {
                    n.removeprefix(place + "next."): a for n, a in saved.items() if n.startswith(place + "next.")
                }
                visit.reply = Reply(values, saved[place + "bits"], remembered)
            else:
                self.unsent.append(visit)

    def folded(self) -> list[Visit]:
        """What arrived, in the order in which the server folds it."""
        return sorted(self.arrived, key=lambda v: (v.client, v.number))

    def _heard(self, visit: Visit) -> None:
        del self.view.in_flight[visit.client]
        if visit.arrived:
            self.arrived.append(visit)
            self.view.heard_of(visit)
            self._unanswered = 0
        else:
            self.lost.append(visit)
            self._unanswered += 1
            if self._unanswered > PATIENCE + 100 * self.world.population:
                raise InvalidInput(
                    f"participation.buffered({self.policy.replies}): {self._unanswered:,} visits in a row dropped out, "
                    "so no round would ever close; lower the devices' dropout, or leave them on for longer"
                )
        full = len(self.arrived) >= self.policy.replies
        if full and self.trace is not None:
            self.trace(self.clock.now, -1, "aggregate", 0)
        if full or (visit.arrived and self.learner.memory):
            # It starts from the version that this reply completes; and a client with memory waits for its own fold,
            # because what it remembers, and what the server has added up from it, would otherwise part ways.
            self._to_restart.append(visit.client)
        else:
            self._replace(visit.client)

    def _blocked(self, visit: Visit) -> None:
        self.blocked.append(visit)

    def _staff(self, chosen: list[int]) -> None:
        """The first model: those chosen start, and who is off yet takes the free places as they come on."""
        self._start(chosen)
        places = self.world.population if self.policy.size is None else self.policy.size
        if len(chosen) < places:
            others = np.setdiff1d(np.arange(self.world.population), chosen)
            at = self.view.next_available(others, self.clock.now)
            for i in np.argsort(at, kind="stable")[: places - len(chosen)].tolist():
                self._start_at(int(others[i]), float(at[i]))

    def _replace(self, client: int) -> None:
        """The next visit: the same client again where all work, else a client drawn from the idle."""
        if self.policy.size is not None:
            self._start_at(*self._draw_idle(client))
        else:
            self._start_at(client, float(self.view.next_available(np.array([client]), self.clock.now)[0]))

    def _start_at(self, client: int, at: float) -> None:
        if at == self.clock.now:
            self._start([client])
        elif at < math.inf:
            self.clock.at(at, lambda _: self._start([client]) if self._idle(client) else self._replace(client))
        elif self.policy.size is not None:
            self._to_restart.append(client)  # somebody else may take its place after the next fold

    def _idle(self, client: int) -> bool:
        """Whether a client has nothing to do; one with memory waits until its reply is folded."""
        waits = self.learner.memory and client in self.view.arrived
        return client not in self.view.in_flight and not waits

    def _draw_idle(self, client: int) -> tuple[int, float]:
        """A client that is on and has nothing to do, or else whoever comes on first, and when."""
        visit = self._visits.get(client, 0)
        rng = self.world.draws(Stream.SELECT, self.position, client, self.version, visit, single=True)
        tried = min(16, self.world.population)  # idle clients are the many; trying beats listing them
        while True:
            idle = [c for c in np.asarray(rng.choice(self.world.population, tried)).tolist() if self._idle(c)]
            at = self.view.next_available(np.array(idle, np.int64), self.clock.now)
            soonest = int(np.argmin(at)) if len(idle) else 0
            if len(idle) and (at[soonest] == self.clock.now or tried == self.world.population):
                return idle[soonest], float(at[soonest])
            if tried == self.world.population:
                return client, math.inf
            tried = min(4 * tried, self.world.population)

    def _start(self, clients: list[int]) -> None:
        now, ids = self.clock.now, np.array(clients, np.int64)
        numbers = [self._visits.get(c, 0) for c in clients]
        drawn = self.ahead.draws(clients, numbers, now)
        offline = self.view.offline_s(ids, now).tolist()
        bits = self.learner.reply_shape(self.version).bits
        for i, client in enumerate(clients):
            visit = Visit(client, *drawn[i], bits, self.ahead.paths(client))
            visit.version, visit.number = self.version, numbers[i]
            visit.message = dict(self.message)
            visit.memory = self.learner.recall(np.array([self.position]), ids[i : i + 1])
            self.view.in_flight[client] = visit
            self._visits[client] = numbers[i] + 1
            self.started.append(client)
            self.unsent.append(visit)
            if self.trace is not None:
                self.trace(now, client, "select", self.down_bits)
            self.visit_events.start(visit, self.down_bits, offline[i])
