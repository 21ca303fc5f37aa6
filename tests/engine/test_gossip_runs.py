"""Runs over gossip are the same on both clocks: what is learnt, recorded and counted, resumed in the middle or not."""

from __future__ import annotations

import dataclasses
import threading

import networkx as nx
import numpy as np
import pytest
from strategies.gossip_crowd import CROWD, LOSSES
from strategies.gossip_scenarios import metropolis

import fedsim as fs

RING = nx.cycle_graph(6)
LEARNING = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(6, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
    network=fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.02),
    devices=fs.devices.lognormal(0.05, sigma=0.5, dropout=LOSSES, availability=fs.devices.markov(2.0, off_s=0.5)),
    exchange=fs.exchanges.gossip(RING),
    budget=fs.Budget(rounds=25),
    record=fs.Record(sites="all", events=True),
    metrics=("mean_error", "consensus"),
    replicas=3,
)
STEADY = fs.devices.lognormal(0.05, sigma=0.5)
WAYS = {
    "everybody": {},
    "the first": {"participation": fs.participation.first(1)},
    "a deadline": {"participation": fs.participation.deadline(0.3)},
    "matchings": {"exchange": fs.exchanges.gossip(RING, "matching")},
    "matrices in turn": {"exchange": fs.exchanges.gossip(RING, [metropolis(RING), np.eye(6)])},
    "no links": {"network": None},
    "the short path": {"network": None, "devices": STEADY},
    "an optimiser": {"algorithm": fs.algorithms.FedAvg(1e-2, local_steps=2)},
    "own replies": {"algorithm": fs.algorithms.DESGLD(1e-3)},
    "nothing is lost": {"algorithm": fs.algorithms.DIGingSGLD(1e-3), "devices": STEADY},
    "replicas stop separately": {"budget": fs.Budget(rounds=25, seconds=12.0)},
}


def assert_same(one, other):
    assert one.stopped_by == other.stopped_by
    assert one.samples.tobytes() == other.samples.tobytes()
    for name in ("rounds", "clients", "metrics", "events"):
        assert getattr(one, name).equals(getattr(other, name)), name


@pytest.mark.parametrize("way", WAYS)
def test_what_every_site_learns_is_the_same_on_both_clocks(way):
    made = dataclasses.replace(LEARNING, **WAYS[way])
    compiled, simpy = fs.run(made, clock="compiled"), fs.run(made, clock="simpy")
    assert compiled.manifest["clock"]["name"] == "compiled"
    assert compiled.manifest["clock"]["path"] == ("short" if way == "the short path" else "loop")
    assert simpy.manifest["clock"]["name"] == "simpy"
    assert_same(compiled, simpy)


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("way", ["everybody", "a deadline", "matchings", "the short path", "own replies"])
def test_a_run_that_was_stopped_and_resumed_gives_the_same_bits(way, clock, tmp_path):
    made, stop = dataclasses.replace(LEARNING, **WAYS[way]), threading.Event()
    whole = fs.run(made, clock=clock)
    with pytest.raises(fs.errors.Interrupted):
        fs.run(
            made, clock=clock, out=tmp_path, checkpoint_every=9, stop=stop,
            observers=[lambda p: stop.set() if p.round == 9 else None],
        )  # fmt: skip
    resumed = fs.run(made, out=tmp_path, resume=True)
    assert resumed.manifest["clock"]["name"] == clock
    assert_same(resumed, whole)


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
def test_a_site_mixes_the_replies_that_were_there_and_gives_missing_weight_to_itself(clock):
    """FedAvg that hardly learns: models are mixed by the matrix that messages which arrived in time leave over."""
    start = np.random.default_rng(1).normal(size=(3, 6, 2))
    made = dataclasses.replace(
        LEARNING, algorithm=fs.algorithms.FedAvg(1e-12), initial=start, budget=fs.Budget(rounds=6),
        participation=fs.participation.deadline(0.4), metrics=(),
    )  # fmt: skip
    result = fs.run(made, clock=clock)
    events, weights, lost = result.events, metropolis(RING), 0
    for replica in range(3):
        x = start[replica]
        for round in range(1, 7):
            rows = events[(events["replica"] == replica) & (events["round"] == round)]
            aggregated = (-1 - rows.loc[rows["event"] == "aggregate", "client"]).tolist()
            heard = (-1 - rows.loc[rows["event"] == "hear", "client"]).value_counts()
            new = result.samples[round - 1, replica]
            for i in range(6):
                if i not in aggregated:
                    np.testing.assert_allclose(new[i], x[i], rtol=0, atol=1e-9)
                    continue
                neighbours = [j for j in range(6) if j != i and weights[i, j]]
                count, ways = int(heard.get(i, 0)), []
                lost += count < 2
                for mask in range(4):
                    there = [j for k, j in enumerate(neighbours) if mask >> k & 1]
                    if len(there) == count:
                        own = 1.0 - sum(weights[i, j] for j in there)
                        ways.append(own * x[i] + sum(weights[i, j] * x[j] for j in there))
                assert min(np.abs(new[i] - way).max() for way in ways) < 1e-9
            x = new
    assert lost > 20


class Own(fs.devices.Devices):
    """Devices whose compute time their class overrides: they have no columns."""

    def compute_s(self, clients, work, now_s, rng):
        return np.full(len(clients), 0.05)


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
def test_seconds_are_floating_point_numbers_where_none_was_wasted(clock):
    """Every site waits for all its neighbours and none drops out, so that no visit is lost."""
    rounds = fs.run(dataclasses.replace(LEARNING, network=None, devices=STEADY), clock=clock).rounds
    assert not rounds["wasted_s"].any()
    assert {str(rounds[name].dtype) for name in rounds if name.endswith("_s")} == {"float64"}


def test_parts_of_ones_own_run_on_simpy_and_are_refused_by_the_compiled_clock():
    made = dataclasses.replace(LEARNING, devices=Own(1e-3))
    assert fs.run(made, timing_only=True).manifest["clock"]["name"] == "simpy"
    with pytest.raises(fs.errors.InvalidInput, match="the devices Own has no columns"):
        fs.run(made, timing_only=True, clock="compiled")


class Impatient(fs.participation.First):
    """A policy that overrides the closing rule which its columns describe."""

    def close(self, view):
        return view.now_s


def test_a_policy_whose_closing_rule_has_no_columns_is_refused_over_gossip():
    made = dataclasses.replace(LEARNING, participation=Impatient(1))
    with pytest.raises(fs.errors.InvalidInput, match="Impatient over gossip: its closing rule has no columns"):
        fs.run(made, clock="simpy")


def test_a_long_online_period_adds_one_event_however_many_rounds_it_has():
    devices = fs.devices.constant(1e-3, availability=fs.devices.markov(1e6, off_s=1e-3))
    made = dataclasses.replace(
        LEARNING, devices=devices, network=None, budget=fs.Budget(rounds=500), replicas=1, record=fs.Record()
    )
    compiled, simpy = (fs.run(made, timing_only=True, clock=clock) for clock in ("compiled", "simpy"))
    assert compiled.rounds.equals(simpy.rounds)
    assert len(compiled.rounds) == 500


@pytest.mark.parametrize("policy", [fs.participation.first(2), fs.participation.deadline(0.4)])
def test_a_crowd_whose_messages_fill_the_links_has_the_same_bits_on_both_clocks(policy):
    made = dataclasses.replace(CROWD, participation=policy)
    compiled, simpy = (fs.run(made, timing_only=True, clock=clock) for clock in ("compiled", "simpy"))
    for name in ("rounds", "clients", "events"):
        assert getattr(compiled, name).equals(getattr(simpy, name)), name
