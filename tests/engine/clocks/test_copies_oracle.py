"""Synchronous rounds whose broadcast goes to everybody (`broadcast_to="all"`), against a second simulation of the links.

Copies for those who are online and were not selected take their share of their client's way down, and may slow its next
download. The oracle is told who was selected; it works out when a round may open, when it closes, and every number in its
row. Scripted devices run on SimPy; where nobody drops out, shipped ones do the same on the compiled clock.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles.second_clock import BITS, Script, SecondClock, next_on, random_case

import fedsim as fs

ROUNDS = 10


def random_policy(draw, clients):
    """A policy, and when it closes a round: (replies to wait for, seconds)."""
    size = int(draw.integers(1, clients + 1))
    replies, seconds = int(draw.integers(1, size + 1)), float(draw.uniform(0.1, 4.0))
    at_least = None if draw.integers(2) else int(draw.integers(1, clients + 1))
    p = fs.participation
    kinds = [
        (p.uniform(size, at_least=at_least), math.inf, math.inf),
        (p.with_replacement(size, at_least=at_least), math.inf, math.inf),
        (p.first(replies, of=size, at_least=at_least), replies, math.inf),
        (p.deadline(seconds, of=size, at_least=at_least), math.inf, seconds),
        (p.bernoulli(0.5), math.inf, math.inf),
        (p.full(), math.inf, math.inf),
    ]
    return kinds[draw.integers(len(kinds))]


def shipped(case):
    """The devices of a case in which nobody drops out, from fedsim's own parts."""
    if case["on"] is None:
        return fs.devices.constant(case["seconds"])
    starts, ends = ([period[i] for own in case["on"] for period in own] for i in (0, 1))
    offsets = np.cumsum([0, *map(len, case["on"])])
    return fs.devices.constant(case["seconds"], availability=fs.devices.intervals(starts, ends=ends, offsets=offsets))


class Rounds(SecondClock):
    def wait_for(self, enough):
        """To the first instant at which so many are on; False if there is none."""
        while sum(self.on(c) for c in range(self.clients)) < enough:
            at = min((t for own in self.case["on"] if (t := next_on(own, self.now)) > self.now), default=math.inf)
            if at == math.inf:
                return False
            self.pass_to(at)
        return True

    def pass_to(self, t):
        while self.next_s() <= t:
            self.advance(self.next_s())
        self.advance(t)

    def round(self, who, copies, replies, seconds):
        """The row of a round with these clients that opens now."""
        opened = self.now
        visits = [self.begin(c) for c in who]
        others = [c for c in range(self.clients) if copies and c not in who and self.on(c)]  # none to those offline
        for c in others:
            self.copy(c)
        while not all(v.over for v in visits) and sum(v.arrived for v in visits) < replies:
            if self.next_s() > opened + seconds:
                self.pass_to(opened + seconds)
                break
            for what, visit in self.advance(self.next_s()):
                if sum(v.arrived for v in visits) < replies:
                    self.follow(what, visit)
        late = [v for v in visits if not v.over]
        for v in late:
            self.call_off(v)
        self.planned = []  # visits are over; copies are still on their way
        gone = [v for v in visits if not v.arrived]
        sending = [v for v in late if v.ready_s <= self.now]

        def spent(some):
            return sum(v.end_s - v.begun_s for v in some)

        return {
            "closed_s": self.now, "selected": len(who), "arrived": len(who) - len(gone),
            "dropped": len(gone) - len(late), "late": len(late), "uplink_bits": sum(v.up for v in visits),
            "downlink_bits": sum(v.down for v in visits) + BITS * len(others),
            "wasted_bits": sum(v.up for v in gone), "wasted_down_bits": sum(v.down for v in gone),
            "wasted_s": spent(gone), "late_s": spent(sending), "called_off_s": spent(late) - spent(sending),
            "dropped_s": spent(gone) - spent(late),
        }  # fmt: skip


def compare(seed):
    case, clients, copies, draw = random_case(seed)
    policy, replies, seconds = random_policy(draw, clients)

    def run(devices, clock):
        scenario = fs.Scenario(
            problem=fs.problems.GaussianMean.synthetic(clients, dim=1, samples=2, seed=1),
            algorithm=fs.algorithms.FedAvg(step_size=0.1, local_steps=1),
            network=fs.topologies.star(
                clients, uplink_bps=case["up"], downlink_bps=case["down"], latency_s=case["latency"]
            ),
            devices=devices, participation=policy, budget=fs.Budget(rounds=ROUNDS),
            record=fs.Record(events=True), broadcast_to="all" if copies else None, seed=seed,
        )  # fmt: skip
        result = fs.run(scenario, timing_only=True, clock=clock)
        assert result.manifest["clock"]["name"] == clock
        return result

    result, path = run(Script(case), "simpy"), None
    if case["reliable"]:
        other = run(shipped(case), "compiled")
        assert result.rounds.equals(other.rounds), seed
        assert result.events.equals(other.events), seed
        path = other.manifest["clock"]["path"]
    begun = result.events[result.events["event"] == "select"]
    oracle, enough = Rounds(case, clients), getattr(policy, "at_least", None) or 1
    for _, found in result.rounds.iterrows():
        assert oracle.wait_for(enough)
        assert oracle.now == pytest.approx(found["opened_s"], abs=1e-7)
        oracle.now = float(found["opened_s"])  # to the last bit, so that nobody is off for a rounding error
        who = sorted(begun.loc[begun["round"] == found["round"], "client"].tolist())
        assert all(oracle.on(c) for c in who)
        for column, value in oracle.round(who, copies, replies, seconds).items():
            assert found[column] == pytest.approx(value, rel=1e-7, abs=1e-7), (seed, int(found["round"]), column)
        oracle.now = float(found["closed_s"])
    assert len(result.rounds) == ROUNDS or not oracle.wait_for(enough)
    return path, len(result.rounds)


def test_rounds_with_copies_are_those_of_an_independent_simulation():
    paths = [compare(seed) for seed in range(40)]
    assert {path for path, _ in paths} == {"loop", "short", None}
    assert sum(rounds for _, rounds in paths) > 200


@pytest.mark.soak
def test_rounds_with_copies_are_those_of_an_independent_simulation_a_thousand_times():
    for seed in range(1000, 2000):
        compare(seed)
