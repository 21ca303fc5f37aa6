"""What both engines simulate is the same: bits at latency 0; on private links counts and samples, and times to 1e-12.

These go with the old engine. Differences that remain, by rule: on shared links a message contends from its first
instant (latency 0 has no difference); an arrival comes before a break of the same instant; offline clients get no copy
of a broadcast; seconds per client are summed in the order of rounds, replicas and clients.
"""

from __future__ import annotations

import asyncio

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim import engine, old_engine

FLAKY = fs.devices.lognormal(0.1, 0.7, dropout={"before": 0.1, "compute": 0.1, "upload": 0.15})
COMING = fs.devices.lognormal(0.1, 0.7, availability=fs.devices.markov(3.0, 2.0))
FIRST, DEADLINE = fs.participation.first(2, of=4), fs.participation.deadline(0.6)
SHARED = fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.0)
TIERS = fs.exchanges.tiers([0, 0, 0, 1, 1, 1], every=2)


def star(latency_s: float):
    return fs.topologies.star(6, uplink_bps=2e3, downlink_bps=4e3, latency_s=latency_s)


FLAKY_GOSSIP = {"devices": FLAKY, "exchange": fs.exchanges.gossip(nx.cycle_graph(6))}
CASES = {
    "ideal": {"metrics": ("w2", "rhat"), "evaluate_every": 4},
    "with replacement": {"devices": FLAKY, "participation": fs.participation.with_replacement(4)},
    "bernoulli": {"devices": FLAKY, "participation": fs.participation.bernoulli(0.5)},
    "first": {"network": star(0.0), "devices": FLAKY, "participation": FIRST},
    "deadline": {"network": star(0.0), "devices": FLAKY, "participation": DEADLINE},
    "shared, first": {"network": SHARED, "devices": FLAKY, "participation": FIRST},
    "shared, deadline": {"network": SHARED, "devices": FLAKY, "participation": DEADLINE},
    "coming and going": {"network": star(0.0), "devices": COMING, "participation": fs.participation.uniform(3)},
    "tiers": {"network": star(0.0), "devices": FLAKY, "exchange": TIERS, "participation": fs.participation.first(2)},
    "seconds": {"network": star(0.0), "devices": FLAKY, "budget": fs.Budget(seconds=9.0)},
    "bits": {"network": star(0.0), "devices": FLAKY, "budget": fs.Budget(uplink_bits=9000)},
    "thinned": {"devices": FLAKY, "record": fs.Record(rounds_every=3, every=2, warmup=1)},
    "target": {"metrics": ("mean_error",), "budget": fs.Budget(rounds=50, target=fs.Target("mean_error", below=0.3))},
    "target over replicas": {
        "metrics": ("w2",), "budget": fs.Budget(rounds=50, target=fs.Target("w2", below=1.0)), "replicas": 20,
    },
    "Scaffold": {"devices": FLAKY, "algorithm": fs.algorithms.Scaffold(step_size=1e-3, local_steps=2)},
    "Elias": {
        "network": star(0.0), "devices": FLAKY, "participation": fs.participation.uniform(3),
        "algorithm": fs.algorithms.QLSD(step_size=1e-3, codec=fs.codecs.Elias(4)),
    },
    "QLSD over tiers": {
        "network": star(0.0), "devices": FLAKY, "exchange": fs.exchanges.tiers([0, 1, 0, 1, 0, 1], every=1),
        "algorithm": fs.algorithms.QLSD(step_size=1e-3, codec=fs.codecs.QSGD(4)),
    },
    "gossip": FLAKY_GOSSIP,
    "gossip, matchings": {**FLAKY_GOSSIP, "exchange": fs.exchanges.gossip(nx.cycle_graph(6), "matching")},
    "gossip, coming and going": {**FLAKY_GOSSIP, "devices": COMING, "participation": DEADLINE},
    "gossip, first, bits": {
        **FLAKY_GOSSIP, "participation": fs.participation.first(1), "budget": fs.Budget(backhaul_bits=30_000),
    },
    "gossip, latency, shared": {**FLAKY_GOSSIP, "network": star(0.0), "participation": fs.participation.first(1)},
    "latency, first": {"network": star(0.02), "devices": FLAKY, "participation": FIRST},
    "latency, tiers": {"network": star(0.02), "devices": FLAKY, "exchange": TIERS, "participation": DEADLINE},
}  # fmt: skip


def results(clock="simpy", **parts):
    given = {
        "problem": fs.problems.GaussianMean.synthetic(6, dim=3, samples=4, seed=1),
        "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        "budget": fs.Budget(rounds=12), "replicas": 3, "seed": 1,
    }  # fmt: skip
    scenario, runtime = fs.Scenario(**{**given, **parts}), fs.Inline(threads=1)
    new = engine.collect(asyncio.run(engine.simulate(scenario, runtime, clock=clock)), runtime, 0.0)
    old = old_engine.collect(asyncio.run(old_engine.simulate(scenario, runtime)), runtime, 0.0)
    return new, old


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_both_engines_give_the_same_results(case: str, clock: str) -> None:
    if clock == "compiled" and case == "Elias":
        pytest.skip("the compiled clock does not serve sizes that depend on values")
    new, old = results(clock, **CASES[case])
    assert new.manifest["clock"]["name"] == clock
    assert new.stopped_by == old.stopped_by
    np.testing.assert_array_equal(new.samples, old.samples)
    for name in ("rounds", "clients", "metrics"):
        one, other = getattr(new, name), getattr(old, name)
        assert list(one.columns) == list(other.columns)
        for column in one.columns:
            exact = not column.endswith("_s") or ("latency" not in case and name == "rounds")
            tolerance = {"rtol": 0.0 if exact else 1e-12, "atol": 0.0 if exact else 1e-12}
            np.testing.assert_allclose(one[column], other[column], **tolerance, err_msg=f"{name}.{column}")


ASYNCHRONOUS = {
    "star": {"network": star(0.0), "devices": FLAKY},
    "shared": {"network": SHARED, "devices": FLAKY},
    "discount": {"devices": FLAKY, "participation": fs.participation.buffered(3, discount=lambda k: 1 / (1 + k))},
    "coming and going": {"network": star(0.0), "devices": COMING},
    "memory": {"devices": FLAKY, "algorithm": fs.algorithms.Scaffold(step_size=1e-3, local_steps=2)},
    "QLSD": {"devices": FLAKY, "algorithm": fs.algorithms.QLSD(step_size=1e-3, codec=fs.codecs.QSGD(4))},
    "Elias": {"devices": FLAKY, "algorithm": fs.algorithms.FedPAQ(0.1, 2, codec=fs.codecs.Elias(4))},
    "bits": {"network": star(0.0), "devices": FLAKY, "budget": fs.Budget(uplink_bits=9000)},
}  # fmt: skip
DEFINED_ANEW = (  # a row opens with the earliest start in it; downloads count where the visit ends
    "opened_s", "downlink_bits",
)  # fmt: skip


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_both_engines_give_the_same_results_of_asynchronous_clients(case: str, clock: str) -> None:
    if clock == "compiled" and case == "Elias":
        pytest.skip("the compiled clock does not serve sizes that depend on values")
    new, old = results(clock, **{"participation": fs.participation.buffered(2)} | ASYNCHRONOUS[case])
    assert new.manifest["clock"]["name"] == clock
    assert new.stopped_by == old.stopped_by
    np.testing.assert_array_equal(new.samples, old.samples)
    for name in ("rounds", "clients"):
        one, other = getattr(new, name), getattr(old, name)
        assert list(one.columns) == list(other.columns)
        for column in set(one.columns) - set(DEFINED_ANEW):
            tolerance = 1e-12 if column.endswith("_s") else 0.0
            np.testing.assert_allclose(one[column], other[column], tolerance, tolerance, err_msg=f"{name}.{column}")


def test_blocks_of_rounds_are_learnt_as_rounds_one_by_one(monkeypatch) -> None:
    scenario = {
        "network": star(0.01),
        "devices": FLAKY,
        "metrics": ("w2",),
        "evaluate_every": 5,
        "budget": fs.Budget(rounds=40),
    }
    blocks, _ = results(**scenario)
    monkeypatch.setattr(engine.Run, "rounds_together", lambda *_: 1)
    singly, _ = results(**scenario)
    monkeypatch.setattr("fedsim.engine.run.LARGEST_BLOCK", 1)
    one_by_one, _ = results(**scenario)
    for other in (singly, one_by_one):
        np.testing.assert_array_equal(blocks.samples, other.samples)
        assert blocks.rounds.equals(other.rounds)
        assert blocks.clients.equals(other.clients)
        assert blocks.metrics.equals(other.metrics)
