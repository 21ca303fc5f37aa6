"""Asynchronous clients, simulated from the rules of the design alone. It shares no code with fedsim.

A visit that ends gives its place away at once. Every `buffer` replies make a version. With fewer places than clients
the oracle is told which idle client takes a place (that is drawn), and checks that it was idle and online; when a place
is taken, and all else, it works out by itself. Coincidences are not its subject (see `tier_clock`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from oracles.tier_clock import Case, TierClock, Visit, next_on, on_until

DROPOUTS, DROPOUTS_A_PLACE = 1000, 100  # since the last arrival: then the run stops


class AsynchronousClock(TierClock):
    """One replica. `versions[v]` has what started from version v, `rows[r]` what ended in round r, after `simulate`.

    `case.replies` replies make a version. `taken(ready)` tells which client takes the next place.
    """

    def __init__(self, case: Case, places: int | None, remembers: bool, taken: Callable[[list[int]], int]) -> None:
        super().__init__(case)
        self.clients = len(case.seconds)
        self.places = self.clients if places is None else min(places, self.clients)
        self.draws_clients, self.remembers, self.taken = places is not None, remembers, taken
        self.at_work: dict[int, Visit] = {}
        self.waiting: set[int] = set()  # clients with memory whose reply is not aggregated
        self.ended: list[Visit] = []
        self.version, self.lost_in_a_row, self.stopped = 0, 0, False
        self.versions: list[list[Visit]] = [[]]
        self.unselected: list[int] = [0]
        self.wanted = math.inf

    def simulate(self, rounds: int) -> None:
        self.wanted = rounds
        self.give_places()
        self.inform()
        while self.version < rounds and not self.stopped:
            if not self.step():
                self.stopped = True

    def done(self) -> bool:
        return self.version >= self.wanted or self.stopped

    # --- Places -----------------------------------------------------------------------------------------------------

    def idle(self) -> list[int]:
        return [c for c in range(self.clients) if c not in self.at_work and c not in self.waiting]

    def is_on(self, client: int) -> bool:
        return self.case.on is None or next_on(self.case.on[client], self.now) <= self.now + 1e-12

    def give_places(self) -> None:
        """Every free place goes to an idle online client; else to the first that comes online."""
        while len(self.at_work) < self.places and (ready := [c for c in self.idle() if self.is_on(c)]):
            client = self.taken(ready) if self.draws_clients else ready[0]
            assert client in ready, f"client {client} took a place at {self.now}, of {ready}"
            self.begin(client)
        if len(self.at_work) < self.places and self.case.on is not None:
            comes = min((next_on(self.case.on[c], self.now) for c in self.idle()), default=math.inf)
            if comes < math.inf and (comes, 6, self.give_places) not in self.timers:
                self.at(comes, 6, self.give_places)

    def inform(self) -> None:
        """Online clients that did not start from the new version get a copy of it."""
        if self.case.broadcast_to_all:
            fresh = [c for c, v in self.at_work.items() if v.version == self.version]
            for client in range(self.clients):
                if client not in fresh and self.is_on(client):
                    self.unselected[self.version] += self.case.down_bits
                    self.send(self.case.down_bits, self.case.down[client], 1, None)

    # --- Visits -----------------------------------------------------------------------------------------------------

    def begin(self, client: int) -> None:
        case, number = self.case, self.number.get(client, 0)
        self.number[client] = number + 1
        visit = Visit(client, 0, self.now, *case.fate(client, number))
        visit.version, visit.number = self.version, number
        self.at_work[client] = visit
        self.versions[self.version].append(visit)
        if visit.phase == 1:
            self.at(self.now, 3, lambda: self.end(visit, "dropped"))
        else:
            visit.flow = self.send(case.down_bits, case.down[client], 1, lambda: self.downloaded(visit))
        if case.on is not None and (off := on_until(case.on[client], self.now)) < math.inf:
            self.at(off, 3, lambda: self.end(visit, "dropped"))

    def end(self, visit: Visit, outcome: str) -> None:
        if visit.outcome:
            return
        visit.ended, visit.outcome, uploading = self.now, outcome, visit.computed == visit.computed
        if visit.flow is not None:
            sent = self.left_sender(visit.flow)
            visit.down, visit.up = (visit.down, sent) if uploading else (sent, 0)
        del self.at_work[visit.client]
        self.ended.append(visit)
        self.lost_in_a_row = 0 if outcome == "arrived" else self.lost_in_a_row + 1
        if outcome == "arrived" and self.remembers:
            self.waiting.add(visit.client)
        full = sum(v.outcome == "arrived" for v in self.ended) == self.case.replies
        if full:
            self.aggregate()
        elif self.lost_in_a_row >= DROPOUTS and self.lost_in_a_row >= DROPOUTS_A_PLACE * self.places:
            self.stopped = True
            return
        self.give_places()
        if full:
            self.inform()

    def aggregate(self) -> None:
        self.version += 1
        self.versions.append([])
        self.unselected.append(0)
        self.rows[self.version] = {
            "opened": min(v.started for v in self.ended), "closed": self.now,
            "visits": sorted(self.ended, key=lambda v: (v.client, v.ended)),
            "oldest": min([v.version for v in self.at_work.values()], default=self.version),
        }  # fmt: skip
        self.ended, self.waiting = [], set()
