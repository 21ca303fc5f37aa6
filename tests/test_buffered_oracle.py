"""Asynchronous rounds against a second simulation: who is at work, what is folded, what it costs, what is learnt.

Which of the idle clients takes a place is drawn, and read from the trace; the oracle says who may, and when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from second_clock import BITS, Script, SecondClock, next_on, random_case

import fedsim as fs

ROUNDS = 12


@dataclass(frozen=True)
class Number:
    """A client moves the model by its number plus one, or, with memory, by how many of its visits were folded."""

    remembers: bool

    def init(self, problem, initial):
        return {"theta": initial}

    def memory(self, problem):
        return {"folded": np.zeros(1)} if self.remembers else {}

    def broadcast(self, state):
        return {"theta": state["theta"]}

    def work(self, job):
        return 1.0

    def client(self, job, message, memory):
        if not self.remembers:
            return {"theta": message["theta"] + job.client + 1.0}, memory
        return {"theta": message["theta"] + memory["folded"]}, {"folded": memory["folded"] + 1.0}

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta")}


class Buffered(SecondClock):
    def __init__(self, case, clients, policy, remembers, copies, trace):
        super().__init__(case, clients)
        self.buffer, self.places, self.remembers, self.copies = policy.replies, policy.size, remembers, copies
        self.trace, self.unsure = trace, False  # (time, client) of every visit that set out before the last fold
        self.folded, self.stale = [0] * clients, [0] * clients
        self.version, self.arrived, self.vacant, self.started = 0, [], [], 0

    def rounds(self, count):
        theta, rows = 0.0, []
        for self.version in range(count):
            opened, self.arrived, lost, self.started, came_down = self.now, [], [], 0, 0
            self.staff() if self.version == 0 else self.restaff()
            copies = [c for c in range(self.clients) if not self.fresh(c)] if self.copies else []
            for c in copies:
                self.copy(c)
            while len(self.arrived) < self.buffer:
                if (at := self.next_s()) == math.inf:
                    return rows
                happens = self.advance(at)
                while happens and len(self.arrived) < self.buffer:
                    what, about = happens.pop(0)
                    if what == "comes on":
                        self.take(about) if self.idle(about) else self.fill(about)
                        continue
                    before = about.down
                    over = self.follow(what, about)
                    came_down += about.down - before
                    if over:
                        (self.arrived if about.arrived else lost).append(about)
                        full = len(self.arrived) == self.buffer
                        waits = full or (about.arrived and self.remembers)
                        self.vacant.append(about.client) if waits else self.fill(about.client)
                self.planned = [(self.now, *h) for h in happens] + self.planned
            theta += np.mean([v.folded if self.remembers else v.client + 1 for v in self.arrived])
            for v in self.arrived:
                self.folded[v.client] += 1
                self.stale[v.client] += self.version - v.version
            rows.append({
                "opened_s": opened, "closed_s": self.now, "selected": self.started, "arrived": len(self.arrived),
                "dropped": len(lost), "late": 0, "uplink_bits": sum(v.up for v in self.arrived + lost),
                "downlink_bits": came_down + BITS * len(copies), "wasted_bits": sum(v.up for v in lost),
                "wasted_down_bits": sum(v.down for v in lost), "theta": theta, "late_s": 0.0, "called_off_s": 0.0,
                "wasted_s": sum(v.end_s - v.begun_s for v in lost),
                "dropped_s": sum(v.end_s - v.begun_s for v in lost),
            })  # fmt: skip
        return rows

    def fresh(self, client):
        return client in self.at_work and self.at_work[client].version == self.version

    def idle(self, client):
        waits = self.remembers and any(v.client == client for v in self.arrived)
        return client not in self.at_work and not waits

    def staff(self):
        there = [c for c in range(self.clients) if self.on(c)]
        places = self.clients if self.places is None else self.places
        for _ in range(min(places, len(there))):
            self.take(*there)
        absent = sorted((next_on(self.case["on"][c], 0.0), c) for c in range(self.clients) if c not in there)
        for at, c in absent[: max(places - len(there), 0)]:
            self.later(c, at)

    def restaff(self):
        vacant, self.vacant = self.vacant, []
        for c in vacant:
            self.fill(c)

    def fill(self, client):
        """Somebody takes the place that this client leaves: itself where all work, else whoever is idle and on."""
        may = [client] if self.places is None else [c for c in range(self.clients) if self.idle(c)]
        if there := [c for c in may if self.on(c)]:
            self.take(*there)
        elif may:
            at, soonest = min((next_on(self.case["on"][c], self.now), c) for c in may)
            self.later(soonest, at)
        else:
            self.vacant.append(client)

    def later(self, client, at):
        if at < math.inf:
            self.planned.append((at, "comes on", client))
        elif self.places is not None:
            self.vacant.append(client)

    def take(self, *may):
        """One of these sets out now."""
        self.started += 1
        if not self.trace:  # after the last fold: anybody, unless only one may
            self.unsure |= len(may) > 1
            client = may[0]
        else:
            at, client = self.trace.pop(0)
            assert at == pytest.approx(self.now, abs=1e-9)
            assert client in may
        self.begin(client, self.version, self.folded[client])


def compare(seed):
    case, clients, copies, draw = random_case(seed)
    remembers, of = bool(draw.integers(2)), None if draw.integers(2) else int(draw.integers(1, clients + 1))
    replies = int(draw.integers(1, 5))
    policy = fs.participation.buffered(min(replies, of or clients) if remembers else replies, of=of)
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=1, samples=2, seed=1), algorithm=Number(remembers),
        network=fs.topologies.star(
            clients, uplink_bps=case["up"], downlink_bps=case["down"], latency_s=case["latency"]
        ),
        devices=Script(case), participation=policy, budget=fs.Budget(rounds=ROUNDS), record=fs.Record(events=True),
        reach="all" if copies else None, seed=seed,
    )  # fmt: skip
    result = fs.run(scenario, runtime=fs.Inline(threads=1))
    begun = result.events[result.events["event"] == "select"]
    trace = list(zip(begun["time_s"].tolist(), begun["client"].tolist(), strict=True))
    oracle = Buffered(case, clients, policy, remembers, copies, trace)
    rows = oracle.rounds(ROUNDS)
    assert not oracle.trace
    assert len(rows) == len(result.rounds) or (oracle.unsure and result.stopped_by == ("no clients",))
    thetas = result.samples[:, 0, 0].tolist()
    for row, theta, (_, found) in zip(rows, thetas, result.rounds.iterrows(), strict=False):
        for column, value in row.items():
            of_ours = theta if column == "theta" else found[column]
            assert of_ours == pytest.approx(value, rel=1e-7, abs=1e-7), (seed, int(found["round"]), column)
    if len(rows) == len(result.rounds) == ROUNDS:
        assert result.clients["staleness"].tolist() == oracle.stale
    return len(result.rounds)


@pytest.mark.parametrize("part", range(4))
def test_buffered_rounds_are_those_of_an_independent_simulation(part):
    assert sum(compare(seed) for seed in range(10 * part, 10 * part + 10)) > 40  # rounds that were there to compare


@pytest.mark.soak
def test_buffered_rounds_are_those_of_an_independent_simulation_a_thousand_times():
    for seed in range(1000, 2000):
        compare(seed)
