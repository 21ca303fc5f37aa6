"""Visits that a caller starts one by one: the clock runs until a reply arrives, or until a time.

Scenarios have rounds, so `rounds` and `asynchronous` start their visits. A Flower ServerApp decides itself when it
sends what to which node. Visits, links and the order of events are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy as np
import simpy

from fedsim.arrays import Array
from fedsim.engine.clock.simpy.links import Instant, Process, links_of
from fedsim.engine.clock.simpy.visits import Visit, go_offline, participate
from fedsim.engine.system import System
from fedsim.rules import closing
from fedsim.rules.visits import cut_outcome

LAST = closing.rank(closing.SHARING + 1, 0, 0)  # after all other events of its instant


class VisitClock:
    """A clock whose caller starts visits and lets time pass."""

    def __init__(self, system: System, ended: Callable[[Visit], None]) -> None:
        """`ended` is called with every visit that has ended."""
        self.system, self.ended, self.env = system, ended, simpy.Environment()
        self.links = links_of(self.env, system)
        self.latest: dict[int, simpy.Process] = {}  # by client: the visit that its next one waits for
        self.in_flight: dict[Visit, simpy.Process] = {}

    @property
    def now_s(self) -> float:
        return float(self.env.now)

    def online(self) -> Array:
        """Return which clients are online now."""
        everyone = np.arange(self.system.population)
        return np.asarray(self.system.online_s(0, everyone, self.now_s) == self.now_s)

    def start(self, visit: Visit, broadcast_bits: int, bits: Callable[[Visit], int]) -> None:
        """Start a visit, after the visits of this client that were started before it; `bits` as in `participate`."""
        process = self.env.process(self._visit(visit, broadcast_bits, bits, self.latest.get(visit.client)))
        self.latest[visit.client] = self.in_flight[visit] = process

    def call_at(self, time_s: float, rank: int, action: Callable[[], None]) -> None:
        """Call `action` at a time, or now if that time has passed."""
        event = Instant(self.env, max(time_s, self.now_s), rank)
        event.callbacks.append(lambda _: action())

    def step(self, until_s: float = inf) -> bool:
        """Handle all events of the next instant that has any; False if there is none until a time, which is now."""
        next_s = self.env.peek()
        if next_s > until_s or next_s == inf:
            if self.now_s < until_s < inf:
                moved = Instant(self.env, until_s, LAST)
                while not moved.processed:
                    self.env.step()
            return False
        while self.env.peek() == next_s:
            self.env.step()
        return True

    def cut(self) -> None:
        """End the visits in flight, where they stand."""
        while self.env.peek() == self.env.now:
            self.env.step()
        for process in list(self.in_flight.values()):
            process.interrupt()
        while self.in_flight:
            self.env.step()

    def _visit(
        self, visit: Visit, broadcast_bits: int, bits: Callable[[Visit], int], before: simpy.Process | None
    ) -> Process:  # fmt: skip
        try:
            if before is not None and before.is_alive:
                yield before
                visit.started_s = self.now_s
        except simpy.Interrupt:
            visit.outcome, visit.ended_s = cut_outcome(uploading=False), self.now_s
        else:
            own = self.env.process(participate(self.env, self.links, visit, broadcast_bits, bits))
            until_s = float(self.system.offline_s(0, np.array([visit.client]), self.now_s)[0])
            if until_s < inf:
                self.env.process(go_offline(self.env, visit, own, until_s))
            try:
                yield own
            except simpy.Interrupt:
                own.interrupt()
                yield own
        process = self.in_flight.pop(visit)
        if self.latest.get(visit.client) is process:
            del self.latest[visit.client]
        self.ended(visit)
