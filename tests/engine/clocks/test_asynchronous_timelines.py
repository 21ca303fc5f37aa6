"""Timelines of asynchronous clients equal an independent simulation, and by hand at instants that coincide."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from engine.clocks.timelines import block_of, simpy_clock, system_of
from oracles.asynchronous_clock import AsynchronousClock
from oracles.tier_clock import Case, Way

import fedsim as fs
from fedsim.engine.system import MessageSizes
from fedsim.rng import Stream
from fedsim.rules.visits import ARRIVED, DROPPED

DIM, ROUNDS = 5, 10
BITS = 64 * DIM
SIZES = MessageSizes(BITS, BITS, BITS)
OUTCOMES = {"arrived": ARRIVED, "dropped": DROPPED}
TIMES = {"started_s": "started", "downloaded_s": "downloaded", "computed_s": "computed", "ended_s": "ended"}
CLOCKS = {"simpy": simpy_clock}


def graph_of(draw, clients, shape):
    """Clients at a radio at a server; private links, a shared channel, or a shared trunk behind it."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    rates = {name: draw.uniform(300, 900) if shape == name else math.inf for name in ("channel", "trunk")}
    graph.add_edge("radio", "hub", bandwidth_bps=rates["channel"], latency_s=0.0, shared=True)
    graph.add_edge("hub", "server", bandwidth_bps=rates["trunk"], latency_s=draw.uniform(0.01, 0.2), shared=False)
    for c in range(clients):
        graph.add_node(f"client {c}", client=c)
        graph.add_edge(
            f"client {c}", "radio", bandwidth_bps=draw.uniform(150, 900), latency_s=draw.uniform(0.01, 0.4),
            loss=float(draw.choice([0.0, 0.2])),
        )  # fmt: skip
    return graph


def random_case(seed, shape, remembers):
    """A scenario and the numbers of its oracle."""
    draw = np.random.default_rng(seed)
    clients, on, online = int(draw.integers(2, 9)), None, None
    seconds = draw.uniform(0.05, 2.0, clients)
    if draw.integers(2):
        first, length = draw.uniform(0, 4, clients), draw.uniform(1, 4.5, clients)
        periods = int(draw.choice([3, 40]))
        on = [[(5.0 * k + a, 5.0 * k + a + b) for k in range(periods)] for a, b in zip(first, length, strict=True)]
        starts, ends = zip(*(period for own in on for period in own), strict=True)
        online = fs.devices.intervals(starts, ends, np.arange(clients + 1) * periods)
    shares = dict.fromkeys(("before", "compute", "upload"), float(draw.choice([0.0, 0.1, 0.2])))
    places = int(draw.integers(1, clients + 1)) if draw.integers(2) else None
    replies = int(draw.integers(1, min(places or clients, 4) + 1))
    to_all = bool(draw.integers(2))
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=DIM, samples=2, seed=1),
        algorithm=fs.algorithms.Scaffold(0.1, 1) if remembers else fs.algorithms.FALD(step_size=1e-6, local_steps=1),
        network=fs.Network(graph_of(draw, clients, shape)),
        devices=fs.devices.constant(seconds.tolist(), dropout=shares, availability=online),
        participation=fs.participation.buffered(replies, of=places), budget=fs.Budget(rounds=ROUNDS),
        reach="all" if to_all else None, seed=seed,
    )  # fmt: skip
    network, system = scenario.sites.network, system_of(scenario)

    def ways(upward):
        delay, loss = network.delay_s(upward), network.stretch(upward)
        return [Way(list(map(int, network.route(c, upward))), float(delay[c]), float(loss[c])) for c in range(clients)]

    def fate(client, number):
        row = np.array([client])
        phase, fraction = scenario.devices.drop(row, np.zeros(1), system.draws(Stream.DROPOUT, 0, row, 0, number))
        return int(phase[0]), float(fraction[0])

    case = Case(
        capacities=np.asarray(network.capacities_bps, float).tolist(), down=ways(False), up=ways(True),
        seconds=seconds.tolist(), fate=fate, selected=lambda *_: [], groups=[0] * clients, on=on, replies=replies,
        down_bits=BITS, up_bits=BITS, broadcast_to_all=to_all,
    )  # fmt: skip
    return scenario, case, places


def compare(seed, shape, remembers, clock):
    scenario, case, places = random_case(seed, shape, remembers)
    block = block_of(scenario, ROUNDS, SIZES, clock)
    v, length = block.visits, int(block.lengths[0])
    told = iter(block.starts.client.tolist())
    oracle = AsynchronousClock(case, places, remembers, lambda ready: next(told, ready[0]))
    oracle.simulate(ROUNDS if places is None else length)  # who takes a place after the last round is not known
    assert oracle.version == length
    for i in range(length):
        row, at = oracle.rows[i + 1], slice(block.offsets[0, i], block.offsets[0, i + 1])
        expected, started = row["visits"], oracle.versions[i]
        assert block.opened_s[0, i] == pytest.approx(row["opened"], abs=1e-7)
        assert block.closed_s[0, i] == pytest.approx(row["closed"], abs=1e-7)
        assert block.oldest_version[0, i] == row["oldest"]
        assert block.unselected_bits[0, i] == oracle.unselected[i]
        assert block.selected[0, i] == len(started)
        begun = slice(block.starts.offsets[0, i], block.starts.offsets[0, i + 1])
        assert sorted(block.starts.client[begun].tolist()) == sorted(e.client for e in started)
        np.testing.assert_allclose(block.starts.started_s[begun], [e.started for e in started], rtol=0, atol=1e-7)
        for column, name in {"client": "client", "version": "version", "visit": "number", **TIMES}.items():
            found, wanted = getattr(v, column)[at], [getattr(e, name) for e in expected]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7, err_msg=f"{seed}, round {i + 1}: {column}")
        assert v.outcome[at].tolist() == [OUTCOMES[e.outcome] for e in expected]
        assert v.down_bits[at].tolist() == [e.down for e in expected]
        assert v.up_bits[at].tolist() == [e.up for e in expected]
    return length


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("shape", ["private", "channel", "trunk"])
@pytest.mark.parametrize("remembers", [False, True], ids=["", "memory"])
def test_asynchronous_timelines_are_those_of_an_independent_simulation(shape, remembers, clock):
    assert sum(compare(seed, shape, remembers, CLOCKS[clock]) for seed in range(25)) > 180  # rounds
