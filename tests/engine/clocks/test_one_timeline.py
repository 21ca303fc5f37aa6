"""Where no draw changes the timeline, both clocks simulate one replica for all, with the bits of each by itself."""

import dataclasses

import networkx as nx
import pytest
from engine.clocks.runs import assert_same

import fedsim as fs
from fedsim import engine
from fedsim.engine.system import System

N, REPLICAS = 6, 3
STAR = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(N, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
    network=fs.topologies.star(N, uplink_bps=4e3, downlink_bps=4e3, latency_s=0.02),
    devices=fs.devices.lognormal(0.05, sigma=0.5),
    budget=fs.Budget(rounds=9),
    replicas=REPLICAS,
    record=fs.Record(events=True),
)
CHANNEL = fs.topologies.multiple_access(N, capacity_bps=4e3, latency_s=0.02)
EQUAL = fs.devices.constant(0.05)  # events of one instant, whose order is drawn
SAME = {
    "star": {},
    "no devices": {"devices": None},
    "deadline": {"participation": fs.participation.deadline(0.3)},
    "equal devices on one channel": {"network": CHANNEL, "devices": EQUAL},
    "deadline on one channel": {"network": CHANNEL, "participation": fs.participation.deadline(0.6)},
    "tiers": {"exchange": fs.exchanges.tiers((0, 0, 0, 1, 1, 1), every=2)},
    "tiers on one channel": {"network": CHANNEL, "devices": EQUAL, "exchange": fs.exchanges.tiers((0, 1) * 3, every=2)},
    "gossip": {"exchange": fs.exchanges.gossip(nx.cycle_graph(N))},
    "gossip on one channel": {"network": CHANNEL, "exchange": fs.exchanges.gossip(nx.cycle_graph(N))},
    "a budget of seconds": {"budget": fs.Budget(seconds=2.0)},
}
DIFFERENT = {
    "slow-downs": {"devices": fs.devices.lognormal(0.05, sigma=0.5, slowdown=fs.devices.pareto_slowdown(1.5))},
    "dropouts": {"devices": fs.devices.constant(0.05, dropout=0.2)},
    "availability": {"devices": fs.devices.constant(0.05, availability=fs.devices.markov(0.5, off_s=0.3))},
    "drawn clients": {"participation": fs.participation.uniform(3)},
    "the first replies": {"devices": EQUAL, "participation": fs.participation.first(3)},
    "asynchronous clients": {"devices": EQUAL, "participation": fs.participation.buffered(3)},
}


def scenario(parts):
    return dataclasses.replace(STAR, **parts)


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("case", SAME)
def test_one_replica_for_all_has_the_bits_of_each_by_itself(monkeypatch, case, clock):
    made, asked = scenario(SAME[case]), []
    drive = engine.Run.drive

    async def watched(run, clock, reason, one_timeline=False):
        asked.append((len(clock.system.replicas), one_timeline))
        await drive(run, clock, reason, one_timeline)

    monkeypatch.setattr(engine.Run, "drive", watched)
    together = fs.run(made, clock=clock)
    monkeypatch.setattr(System, "one_timeline", False)
    apart = fs.run(made, clock=clock)
    assert asked == [(1, True), (REPLICAS, False)]
    assert_same(together, apart)


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_drawn_makes_timelines_differ(case):
    events = fs.run(scenario(DIFFERENT[case]), clock="simpy", timing_only=True).events.drop(columns="round")
    first, *others = (own.drop(columns="replica").reset_index(drop=True) for _, own in events.groupby("replica"))
    assert not any(first.equals(other) for other in others)
