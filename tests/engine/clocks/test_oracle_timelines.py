"""Timelines of stars and tiers equal an independent simulation: shared links, dropout, availability, policies."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from engine.clocks.timelines import block_of, simpy_clock
from oracles.tier_clock import Case, TierClock, Way
from strategies.scripted_devices import Script

import fedsim as fs
from fedsim.engine.system import MessageSizes
from fedsim.rules.visits import ARRIVED, CALLED_OFF, DROPPED, LATE

DIM, ROUNDS, AHEAD = 5, 6, 4  # edges may be `every` rounds ahead of each other
BITS = 64 * DIM
SIZES = MessageSizes(BITS, BITS, BITS, BITS, BITS)
OUTCOMES = {"arrived": ARRIVED, "late": LATE, "called off": CALLED_OFF, "dropped": DROPPED}


def graph_of(draw, clients: int, edges: int, shape: str) -> nx.Graph:
    """Clients at edges at a server; private links, a shared channel at every edge, or a shared trunk."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    for e in range(edges):
        graph.add_node(f"edge {e}", role="edge")
        graph.add_edge(f"edge {e}", "server", bandwidth_bps=draw.uniform(300, 900) if shape == "trunk" else math.inf,
                       latency_s=draw.uniform(0.01, 0.2), shared=shape == "trunk")  # fmt: skip
        graph.add_node(f"radio {e}")
        channel = draw.uniform(300, 900) if shape == "channel" else math.inf
        graph.add_edge(f"radio {e}", f"edge {e}", bandwidth_bps=channel, latency_s=0.0, shared=shape == "channel")
    for c in range(clients):
        graph.add_node(f"client {c}", client=c)
        graph.add_edge(f"client {c}", f"radio {c % edges}", bandwidth_bps=draw.uniform(150, 900),
                       latency_s=draw.uniform(0.01, 0.4), loss=float(draw.choice([0.0, 0.2])))  # fmt: skip
    return graph


def random_case(seed: int, shape: str, tiers: bool):
    """A scenario and the numbers of its oracle."""
    draw = np.random.default_rng(seed)
    clients, edges = int(draw.integers(3, 9)), int(draw.integers(2, 4)) if tiers else 1
    clients = max(clients, 2 * edges)
    every = int(draw.integers(1, 4)) if tiers else 0
    chance = float(draw.choice([0.0, 0.4]))
    seconds = draw.uniform(0.05, 2.0, clients).tolist()
    on = None
    if draw.integers(2):
        first, long = draw.uniform(0, 4, clients), draw.uniform(2, 4.5, clients)
        on = [[(5.0 * k + a, 5.0 * k + a + b) for k in range(300)] for a, b in zip(first, long, strict=True)]

    def fate(client, number):
        x = math.sin(12.9898 * (client + 1) + 78.233 * number + seed) * 43758.5453
        x = (x - math.floor(x)) / max(chance, 1e-9)
        return (1 + int(3 * x) % 3, (21 * x) % 1.0) if x < 1 else (0, 0.0)

    size = int(draw.integers(1, clients // edges + 1))
    policy, replies, deadline = fs.participation.full(), math.inf, math.inf
    kind = int(draw.integers(4))
    if kind == 1:
        policy = fs.participation.uniform(size)
    elif kind == 2:
        replies = int(draw.integers(1, size + 1))
        policy = fs.participation.first(replies, of=size)
    elif kind == 3:
        deadline = float(draw.uniform(0.3, 4.0))
        policy = fs.participation.deadline(deadline)
    to_all = bool(draw.integers(2))
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=DIM, samples=2, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-6, local_steps=1),
        network=fs.Network(graph_of(draw, clients, edges, shape)),
        devices=Script(seconds, fate, on),
        exchange=fs.exchanges.tiers(every=every) if tiers else fs.exchanges.star(),
        participation=policy, budget=fs.Budget(rounds=ROUNDS), broadcast_to="all" if to_all else None, seed=seed,
    )  # fmt: skip
    network, groups = scenario.sites.network, scenario.sites.site_of.tolist()

    def ways(rows, upward):
        delay, loss = network.delay_s(upward), network.loss_factor(upward)
        return [Way(list(map(int, network.route(r, upward))), float(delay[r]), float(loss[r])) for r in rows]

    cloud = range(clients, clients + edges if tiers else clients)
    case = Case(
        capacities=np.asarray(network.capacities_bps, float).tolist(), down=ways(range(clients), False),
        up=ways(range(clients), True), seconds=seconds, fate=fate, selected=lambda *_: [], groups=groups, on=on,
        replies=replies, deadline=deadline, down_bits=BITS, up_bits=BITS, every=every, to_cloud=ways(cloud, True),
        from_cloud=ways(cloud, False), cloud_bits=BITS, broadcast_to_all=to_all,
    )  # fmt: skip
    return scenario, case


def compare(seed: int, shape: str, tiers: bool, clock=simpy_clock) -> int:
    scenario, case = random_case(seed, shape, tiers)
    block = block_of(scenario, ROUNDS + AHEAD, SIZES, clock)
    v = block.visits
    told = {}
    for i in range(block.rounds):
        for j in range(block.offsets[0, i], block.offsets[0, i + 1]):
            told.setdefault((int(v.site[j]), i + 1), []).append(int(v.client[j]))
    case.selected = lambda site, round, now: told.get((site, round), [])
    oracle = TierClock(case)
    oracle.run(ROUNDS, ROUNDS + AHEAD)
    for i in range(min(ROUNDS, int(block.lengths[0]))):
        row = oracle.rows[i + 1]
        assert block.opened_s[0, i] == pytest.approx(row["opened"], abs=1e-7)
        assert block.closed_s[0, i] == pytest.approx(row["closed"], abs=1e-7)
        assert block.unselected_bits[0, i] == row["unselected"]
        at = slice(block.offsets[0, i], block.offsets[0, i + 1])
        expected = [row["visits"][int(c)] for c in v.client[at]]
        assert v.outcome[at].tolist() == [OUTCOMES[e.outcome] for e in expected]
        for column, name in (
            ("started_s", "started"),
            ("downloaded_s", "downloaded"),
            ("computed_s", "computed"),
            ("ended_s", "ended"),
        ):
            np.testing.assert_allclose(getattr(v, column)[at], [getattr(e, name) for e in expected], rtol=0, atol=1e-7)
        assert v.down_bits[at].tolist() == [e.down for e in expected]
        assert v.up_bits[at].tolist() == [e.up for e in expected]
    if block.lengths[0] < ROUNDS:
        assert oracle.stopped_at == block.lengths[0] + 1
    return int(block.offsets[0, -1])


@pytest.mark.parametrize("shape", ["private", "channel", "trunk"])
@pytest.mark.parametrize("tiers", [False, True], ids=["star", "tiers"])
def test_timelines_are_those_of_an_independent_simulation(shape: str, tiers: bool) -> None:
    assert sum(compare(seed, shape, tiers) for seed in range(25)) > 200
