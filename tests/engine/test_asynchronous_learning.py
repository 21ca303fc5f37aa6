"""What asynchronous clients learn equals a recomputation from the timeline of an independent simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from engine.clocks.asynchronous_cases import random_case
from oracles.asynchronous_clock import AsynchronousClock

import fedsim as fs


@dataclass(frozen=True)
class Halve:
    """A client halves the model that it started from and adds its number, or how often its reply was aggregated."""

    remembers: bool

    def init(self, problem, initial):
        return {"theta": initial}

    def memory(self, problem):
        return {"aggregated": np.zeros(1)} if self.remembers else {}

    def broadcast(self, state):
        return {"theta": state["theta"]}

    def work(self, job):
        return 1.0

    def client(self, job, message, memory):
        if not self.remembers:
            return {"theta": 0.5 * message["theta"] + job.client + 1.0}, memory
        return {"theta": 0.5 * message["theta"] + memory["aggregated"]}, {"aggregated": memory["aggregated"] + 1.0}

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta")}


def discount(staleness):
    return 1.0 / (1.0 + staleness)


def learn(seed, shape, remembers, clock):
    scenario, case, places = random_case(seed, shape, remembers)
    policy = scenario.participation if remembers else replace(scenario.participation, discount=discount)
    scenario = replace(
        scenario, algorithm=Halve(remembers), participation=policy, initial=np.ones(5), record=fs.Record(events=True)
    )
    result = fs.run(scenario, clock=clock, runtime=fs.Inline(threads=1))
    selected = result.events[result.events["event"] == "select"].sort_values(["time_s", "round"], kind="stable")
    told, length = selected["client"].tolist(), int(result.lengths[0])

    def taken(ready):
        return told.pop(told.index(next(c for c in told if c in ready))) if told else ready[0]

    if places is not None and places > 1:
        return 0  # which of several places at one instant is drawn first is not in the record
    oracle = AsynchronousClock(case, places, remembers, taken)
    oracle.simulate(length)
    thetas, aggregated, stale = [1.0], [0] * len(case.seconds), [0] * len(case.seconds)
    for i in range(length):
        arrived = [v for v in oracle.rows[i + 1]["visits"] if v.outcome == "arrived"]
        changes = [
            (1.0 if remembers else discount(i - v.version))
            * ((aggregated[v.client] if remembers else v.client + 1) - 0.5 * thetas[v.version])
            for v in arrived
        ]
        thetas.append(thetas[-1] + float(np.mean(changes)))
        for v in arrived:
            aggregated[v.client] += 1
            stale[v.client] += i - v.version
    np.testing.assert_allclose(result.samples[:, 0, 0], thetas[1:], rtol=1e-9)
    assert result.clients["staleness"].tolist() == stale
    assert result.clients["arrived"].tolist() == aggregated
    assert (
        result.clients["selected"].sum()
        == result.rounds["selected"].sum()
        == sum(len(started) for started in oracle.versions[:length])
    )
    return length


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("remembers", [False, True], ids=["", "memory"])
def test_asynchronous_clients_learn_from_the_versions_that_they_started_from(remembers, clock):
    assert sum(learn(seed, "channel", remembers, clock) for seed in range(24)) > 60


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
def test_rounds_beyond_a_budget_leave_nothing_in_the_sums_over_clients(clock):
    """A run that stops inside a block, by its bits, has the tables of one that was given as many rounds."""
    given = {
        "problem": fs.problems.GaussianMean.synthetic(6, dim=3, samples=4, seed=1), "seed": 1,
        "algorithm": fs.algorithms.FALD(1e-3, local_steps=2), "devices": fs.devices.lognormal(0.1, sigma=0.7, dropout=0.1),
        "participation": fs.participation.buffered(2),
    }  # fmt: skip
    by_bits = fs.run(fs.Scenario(**given, budget=fs.Budget(uplink_bits=10_000)), clock=clock)
    rounds = len(by_bits.rounds)
    assert by_bits.stopped_by == ("uplink_bits",)
    assert rounds == 10_000 // (2 * 192) == 26  # inside the block of rounds 17 to 32
    by_rounds = fs.run(fs.Scenario(**given, budget=fs.Budget(rounds=rounds)), clock=clock)
    assert by_bits.clients.equals(by_rounds.clients)
    assert by_bits.rounds.equals(by_rounds.rounds)
    assert by_bits.clients["staleness"].sum() > 0
