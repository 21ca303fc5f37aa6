"""Whole runs, learning, budgets, records and checkpoints included, are the same on SimPy, on the loop and the short path."""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np
import pytest
from engine.clocks.runs import ONE, agree, assert_same, interrupt, on_path, on_simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.clock_scenarios import devices, networks, policies
from tools.clocks import clock

import fedsim as fs
from fedsim.algorithms.fedpaq import FedPAQ

ALGORITHMS = (
    fs.algorithms.FALD(step_size=1e-3, local_steps=3, correlation=0.5),
    fs.algorithms.Scaffold(1e-3, local_steps=2),
    FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.QSGD(4)),
)


@st.composite
def learning_scenarios(draw):
    """A star or tiers whose clients have different sizes, with budgets of every kind."""
    clients = draw(st.integers(1, 6))
    tiers = draw(st.booleans())
    edges = draw(st.integers(1, min(3, clients))) if tiers else 0
    bits = st.sampled_from([100, 1000, 2500])
    limits = {name: draw(st.none() | bits) for name in ("uplink_bits", "downlink_bits", "total_bits")}
    groups = [c % edges for c in range(clients)] if tiers else None
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(
            clients, dim=draw(st.integers(1, 3)), seed=3,
            samples=draw(st.lists(st.integers(1, 5), min_size=clients, max_size=clients)),
        ),
        algorithm=ALGORITHMS[0] if tiers else draw(st.sampled_from(ALGORITHMS)),
        network=draw(networks(clients, edges)),
        devices=draw(st.none() | devices(clients)),
        participation=draw(policies(clients, clients // max(edges, 1))),
        exchange=fs.exchanges.tiers(groups, every=draw(st.integers(1, 3))) if tiers else fs.exchanges.star(),
        budget=fs.Budget(rounds=draw(st.integers(1, 7)), seconds=draw(st.none() | st.sampled_from([0.5, 5.0])), **limits),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2])), events=draw(st.booleans())),
        broadcast_to=draw(st.sampled_from([None, "all"])),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(learning_scenarios())
def test_whole_runs_have_the_same_bits_on_every_clock(scenario):
    assert "loop" in agree(scenario)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(learning_scenarios())
def test_ten_thousand_whole_runs_have_the_same_bits_on_every_clock(scenario):
    assert "loop" in agree(scenario)


# --- What is learnt -------------------------------------------------------------------------------------------------


def backhaul():
    """Two edges, one with a slow link to the server."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    for e, rate in enumerate((1e3, 5e4)):
        graph.add_node(f"e{e}", role="edge")
        graph.add_edge(f"e{e}", "server", bandwidth_bps=rate, latency_s=0.05)
    for c in range(6):
        graph.add_node(f"c{c}", client=c)
        graph.add_edge(f"c{c}", f"e{c % 2}", bandwidth_bps=4e3, latency_s=0.02)
    return fs.Network(graph)


CHANNEL = fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.02)
GROUPS = [0, 1, 1, 0, 1, 0]
STAR = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(6, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
    network=CHANNEL,
    devices=fs.devices.lognormal(0.05, sigma=0.5, dropout=0.1, availability=fs.devices.markov(2.0, off_s=0.5)),
    budget=fs.Budget(rounds=25),
    record=fs.Record(events=True),
    replicas=3,
)
TIERS = dataclasses.replace(
    STAR,
    network=backhaul(),
    exchange=fs.exchanges.tiers(every=5),
    record=fs.Record(sites="all", events=True),
)
ALONE = {
    "devices": fs.devices.lognormal(0.05, sigma=0.5, dropout=0.1),
    "network": fs.topologies.star(6, uplink_bps=2e3),
}
WAYS = {
    "full": STAR,
    "deadline": dataclasses.replace(STAR, participation=fs.participation.deadline(0.5)),
    "deadline in which all arrive": dataclasses.replace(
        STAR, devices=None, participation=fs.participation.deadline(9.0)
    ),
    "short path": dataclasses.replace(STAR, **ALONE, participation=fs.participation.first(3)),
    "short path, memory": dataclasses.replace(STAR, **ALONE, algorithm=fs.algorithms.Scaffold(1e-3, local_steps=2)),
    "replicas stop separately": dataclasses.replace(STAR, budget=fs.Budget(rounds=25, seconds=9.0)),
    "asynchronous": dataclasses.replace(STAR, participation=fs.participation.buffered(3)),
    "asynchronous, memory": dataclasses.replace(
        STAR, participation=fs.participation.buffered(2, of=4), algorithm=fs.algorithms.Scaffold(1e-3, local_steps=2)
    ),
    "asynchronous, discount": dataclasses.replace(
        STAR, participation=fs.participation.buffered(3, discount=lambda staleness: 1 / (1 + staleness))
    ),
    "asynchronous, replicas stop separately": dataclasses.replace(
        STAR, participation=fs.participation.buffered(3), budget=fs.Budget(rounds=25, seconds=6.6)
    ),
    "tiers": TIERS,
    "tiers, uniform": dataclasses.replace(TIERS, participation=fs.participation.uniform(2, weighting="normalised")),
    "tiers, by weight": dataclasses.replace(TIERS, participation=fs.participation.with_replacement(3)),
    "tiers, first": dataclasses.replace(TIERS, participation=fs.participation.first(2)),
    "tiers, deadline": dataclasses.replace(TIERS, participation=fs.participation.deadline(0.2)),
    "tiers, one channel": dataclasses.replace(TIERS, network=CHANNEL, exchange=fs.exchanges.tiers(GROUPS, every=3)),
    "tiers, short path": dataclasses.replace(TIERS, **ALONE, exchange=fs.exchanges.tiers(GROUPS, every=3)),
    "tiers, sums at the cloud": dataclasses.replace(
        TIERS, algorithm=fs.algorithms.QLSD(1e-3), exchange=fs.exchanges.tiers(every=1), record=fs.Record(events=True)
    ),
    "tiers, replicas stop separately": dataclasses.replace(TIERS, budget=fs.Budget(rounds=25, seconds=9.0)),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_learnt_is_the_same_on_every_clock_and_with_threads(way):
    assert agree(WAYS[way]) == (["loop", "short"] if "short" in way else ["loop"])
    assert_same(on_path(WAYS[way], "loop", runtime=fs.Inline(threads=3)), on_simpy(WAYS[way]))


@pytest.mark.parametrize("name", ["simpy", "compiled"])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_is_resumed_has_the_same_bits(way, name, tmp_path):
    """18 lies inside a block of rounds, and after a checkpoint at 9."""
    interrupt(WAYS[way], tmp_path, 18, checkpoint_every=9, clock=name)
    resumed = fs.run(WAYS[way], out=tmp_path, resume=True, runtime=ONE)
    assert resumed.manifest["clock"]["name"] == name
    assert_same(resumed, on_simpy(WAYS[way]))


@pytest.mark.parametrize("name", ["simpy", "compiled"])
def test_a_block_is_cut_where_a_target_is_reached(name):
    target = fs.Target("w2", below=1e9)
    scenario = dataclasses.replace(STAR, metrics=("w2",), budget=fs.Budget(rounds=25, target=target))
    result = fs.run(scenario, clock=name)
    assert np.unique(result.rounds["round"]).tolist() == [1]
    assert set(result.events["round"]) == {1}
    assert result.stopped_by == ("target",) * 3


@pytest.mark.parametrize("name", ["simpy", "compiled"])
def test_an_edge_that_is_ahead_notes_its_own_rounds(name):
    made = dataclasses.replace(TIERS, devices=None, record=fs.Record(events=True), budget=fs.Budget(rounds=10))
    events = fs.run(made, timing_only=True, clock=name).events
    assert set(events["event"]) >= {"to cloud", "merge", "from cloud"}
    selected = events[(events["event"] == "select") & (events["replica"] == 0)]
    for _, own in selected.groupby("client"):
        assert own["round"].tolist() == list(range(1, 11))
    back = events[(events["event"] == "from cloud") & (events["replica"] == 0)]
    assert back.groupby("client")["round"].apply(list).tolist() == [[6], [6]]  # the round before which it came


def test_the_events_of_a_replica_are_its_own_where_another_never_closes_a_round():
    scenario = fs.Scenario(
        problem=fs.problems.Payload(1, parameters=1), algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
        devices=fs.devices.constant(0.25, slowdown=fs.devices.pareto_slowdown(1.1)),
        participation=fs.participation.buffered(1), budget=fs.Budget(rounds=1, seconds=5.0), replicas=range(5, 9, 2),
        record=fs.Record(events=True),
    )  # fmt: skip
    assert agree(scenario, timing_only=True) == ["loop"]
    result = fs.run(scenario, timing_only=True)
    assert result.stopped_by == ("seconds", "rounds")
    assert set(result.events["replica"]) == {7}


# --- Equal devices --------------------------------------------------------------------------------------------------


def equal_devices(policy, replicas, **more):
    clients = 12
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=2, samples=5, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=4),
        network=fs.topologies.star(clients, uplink_bps=1e3, downlink_bps=1e4, latency_s=0.05),
        devices=fs.devices.constant(seconds_per_step=0.1, **more),
        participation=policy, budget=fs.Budget(rounds=40), replicas=replicas, seed=8,
    )  # fmt: skip


def test_equal_devices_are_all_in_time_equally_often():
    """All replies arrive at one instant: which come first is drawn, and drawn the same on every clock."""
    scenario = equal_devices(fs.participation.first(3), replicas=20)
    assert agree(scenario) == ["loop", "short"]
    arrived = fs.run(scenario).clients["arrived"].to_numpy()  # 800 rounds, a quarter of them each: 200 +- 12.2
    assert np.abs(arrived - 200).max() < 4 * math.sqrt(800 * 0.25 * 0.75)


@pytest.mark.parametrize("phase", ["before", "compute", "upload"])
def test_equal_devices_that_drop_out_end_alike_on_every_clock(phase):
    for policy in (fs.participation.first(3), fs.participation.deadline(0.55), fs.participation.uniform(5)):
        assert agree(equal_devices(policy, replicas=5, dropout={phase: 0.4})) == ["loop", "short"]


def test_a_limit_below_the_first_round_ends_a_run_whose_unselected_broadcasts_would_be_under_way():
    """No round counts, so none leaves broadcasts behind."""
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients=1, dim=1, samples=3, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=3),
        budget=fs.Budget(rounds=2, seconds=0.5), network=fs.topologies.star(1, uplink_bps=64.0, downlink_bps=64.0),
        participation=fs.participation.with_replacement(1), replicas=2, broadcast_to="all",
    )  # fmt: skip
    agree(scenario)
    assert (len(fs.run(scenario).rounds), fs.run(scenario).stopped_by) == (0, ("seconds",) * 2)


# --- What is refused ------------------------------------------------------------------------------------------------


def refusal(scenario, name):
    with clock(name), pytest.raises(fs.errors.InvalidInput) as caught:
        fs.run(scenario, timing_only=True)
    return str(caught.value)


@pytest.mark.parametrize("made", [STAR, TIERS], ids=["star", "tiers"])
def test_a_round_that_never_closes_is_refused_in_the_same_words(made):
    slow = fs.devices.constant(1e308, availability=fs.devices.diurnal(10.0, on_fraction=1.0))
    scenario = dataclasses.replace(
        made, devices=slow, network=fs.topologies.star(6, latency_s=1e308), algorithm=fs.algorithms.FALD(1e-3, local_steps=1),
        exchange=made.exchange if made is STAR else fs.exchanges.tiers(GROUPS, every=3),
    )  # fmt: skip
    assert "round 1 never closes" in refusal(scenario, "simpy")
    assert refusal(scenario, "compiled") == refusal(scenario, "simpy")


@pytest.mark.parametrize("made", [STAR, TIERS], ids=["star", "tiers"])
def test_a_clock_that_is_too_late_for_its_periods_is_refused_in_the_same_words(made):
    forever = fs.devices.constant(1e308, availability=fs.devices.diurnal(10.0, on_fraction=1.0))
    scenario = dataclasses.replace(made, devices=forever, algorithm=fs.algorithms.FALD(1e-3, local_steps=1))
    assert "too late for periods of 10 s" in refusal(scenario, "simpy")
    assert refusal(scenario, "compiled") == refusal(scenario, "simpy")


class OwnFull(fs.participation.Full):
    """A policy without columns that selects for all replicas in one call."""

    def select(self, view, rng):
        return view.online_clients()


@pytest.mark.parametrize("made", [STAR, TIERS], ids=["star", "tiers"])
@pytest.mark.parametrize("shared", [False, True], ids=["private links", "shared links"])
def test_a_round_that_never_closes_ends_a_run_with_a_limit_on_time(made, shared):
    """It closes within no budget, so it is discarded: DESIGN, Budget."""
    network = (
        fs.topologies.multiple_access(6, capacity_bps=1e3, latency_s=1e308)
        if shared
        else fs.topologies.star(6, latency_s=1e308)
    )
    for policy in (fs.participation.full(), OwnFull()):
        scenario = dataclasses.replace(
            made, devices=fs.devices.constant(1e308), network=network, algorithm=fs.algorithms.FALD(1e-3, local_steps=1),
            exchange=made.exchange if made is STAR else fs.exchanges.tiers(GROUPS, every=3), participation=policy,
            budget=fs.Budget(rounds=25, seconds=5.0),
        )  # fmt: skip
        agree(scenario, timing_only=True)
        assert fs.run(scenario, timing_only=True).stopped_by == ("seconds",) * 3


@pytest.mark.parametrize("policy", [fs.participation.full(), fs.participation.buffered(1)])
@pytest.mark.parametrize("network", [None, "star"])
def test_a_dropout_at_the_instant_at_which_the_device_goes_offline_counts_its_bits(policy, network):
    links = None if network is None else fs.topologies.star(2, uplink_bps=math.inf, downlink_bps=math.inf)
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients=2, dim=2, samples=3, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=1),
        network=links,
        devices=fs.devices.constant(
            1.0, dropout={"upload": 0.7}, availability=fs.devices.intervals([0, 0], ends=[1, 1], offsets=[0, 1, 2], period_s=10)
        ),
        participation=policy, budget=fs.Budget(rounds=4), seed=1,
    )  # fmt: skip
    assert "loop" in agree(scenario)
    assert on_simpy(scenario).clients["wasted_bits"].sum() > 0
