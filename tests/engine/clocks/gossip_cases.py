"""Random gossip with the numbers of its oracle, and a clock compared with it."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from engine.clocks.timelines import block_of, simpy_clock
from oracles.gossip_clock import GossipCase, GossipClock
from oracles.tier_clock import Way
from strategies.scripted_devices import Script

import fedsim as fs
from fedsim.engine.system import MessageSizes
from fedsim.rules.visits import ARRIVED, DROPPED, LATE

ROUNDS, BITS = 6, 320
SIZES = MessageSizes(BITS, BITS, BITS)
OUTCOMES = {"arrived": ARRIVED, "late": LATE, "dropped": DROPPED}


def network_of(draw, graph: nx.Graph, shape: str) -> fs.Network | None:
    """A link of its own for every message, or all through a hub, with links that are shared by both directions."""
    links = nx.DiGraph() if shape == "private" else nx.Graph()
    links.add_nodes_from((c, {"client": c}) for c in graph)
    pairs = [(a, b) for a, b in graph.edges] if shape == "private" else [(c, "hub") for c in graph]
    for a, b in pairs:
        for u, v in ((a, b), (b, a)) if shape == "private" else ((a, b),):
            links.add_edge(u, v, bandwidth_bps=draw.uniform(200, 2500), latency_s=draw.uniform(0.01, 0.4),
                           loss=float(draw.choice([0.0, 0.2])), shared=shape == "shared")  # fmt: skip
    return fs.Network(links)


def periods_of(draw, sites: int) -> list[list[tuple[float, float]]]:
    first, long, pause = draw.uniform(0, 2, sites), draw.uniform(2, 5, sites), draw.uniform(0.3, 1.5, sites)
    return [
        [(a + k * (b + p), a + k * (b + p) + b) for k in range(300)] for a, b, p in zip(first, long, pause, strict=True)
    ]


def random_case(seed: int, shape: str, devices=Script):
    """A scenario and the numbers of its oracle."""
    draw = np.random.default_rng(seed)
    sites = int(draw.integers(2, 6))
    graph = nx.path_graph(sites)
    graph.add_edges_from((int(a), int(b)) for a, b in draw.integers(0, sites, (3, 2)) if a != b)
    seconds, chance = draw.uniform(0.2, 1.5, sites).tolist(), float(draw.choice([0.0, 0.4]))
    on = periods_of(draw, sites) if draw.integers(2) else None

    def fate(client, round):
        x = math.sin(12.9898 * (client + 1) + 78.233 * round + seed) * 43758.5453
        x = (x - math.floor(x)) / max(chance, 1e-9)
        return (1 + int(3 * x) % 3, (21 * x) % 1.0) if x < 1 else (0, 0.0)

    policy, replies, deadline = fs.participation.full(), math.inf, math.inf
    kind = int(draw.integers(3))
    if kind == 1:
        replies = int(draw.integers(1, 3)) if sites > 2 else 1
        policy = fs.participation.first(replies)
    elif kind == 2:
        deadline = float(draw.uniform(0.3, 3.0))
        policy = fs.participation.deadline(deadline)
    mixing = str(draw.choice(["metropolis", "matching"]))
    scenario = fs.Scenario(
        problem=fs.problems.Payload(sites, parameters=5), algorithm=fs.algorithms.FALD(1e-3, local_steps=1),
        network=network_of(draw, graph, shape), devices=devices(seconds, lambda c, number: fate(c, number + 1), on),
        exchange=fs.exchanges.gossip(graph, mixing), participation=policy, budget=fs.Budget(rounds=ROUNDS), seed=seed,
    )  # fmt: skip
    network, exchange = scenario.sites.network, scenario.exchange
    rows = enumerate(zip(exchange.sender.tolist(), exchange.receiver.tolist(), strict=True))
    ways = {
        pair: Way(
            list(map(int, network.route(r, True))), float(network.delay_s(True)[r]), float(network.loss_factor(True)[r])
        )
        for r, pair in rows
    }
    pairs = list(ways)

    def used(round):
        return {pairs[m] for m in exchange.at(seed, 0, round - 1).message.tolist()}

    case = GossipCase(
        sites,
        np.asarray(network.capacities_bps, float).tolist(),
        ways,
        used,
        seconds,
        fate,
        on,
        replies,
        deadline,
        BITS,
    )
    return scenario, case


def compared(scenario: fs.Scenario, case: GossipCase, clock=simpy_clock) -> int:
    """Compare a clock with the oracle; return how many messages were sent."""
    oracle = GossipClock(case)
    oracle.run(ROUNDS)
    if oracle.close_call():
        return 0
    block = block_of(scenario, ROUNDS, SIZES, clock)
    g, v = block.gossip, block.visits
    for i in range(int(block.lengths[0])):
        own = [oracle.sites[i + 1, site] for site in range(case.sites)]
        close = {"rtol": 0, "atol": 1e-7}
        np.testing.assert_allclose(g.ended_s[0, i], [s.ended for s in own], **close)
        assert g.aggregated[0, i].tolist() == [s.aggregated for s in own]
        assert block.opened_s[0, i] == pytest.approx(min(s.started for s in own), abs=1e-7)
        assert block.closed_s[0, i] == pytest.approx(max(s.ended for s in own), abs=1e-7)
        at = slice(block.offsets[0, i], block.offsets[0, i + 1])
        for column, name in (("started_s", "started"), ("computed_s", "computed"), ("ended_s", "worked_until")):
            np.testing.assert_allclose(getattr(v, column)[at], [getattr(s, name) for s in own], **close)
        assert v.outcome[at].tolist() == [DROPPED if s.dropped else ARRIVED for s in own]
        letters = sorted((m for m in oracle.letters if m.round == i + 1), key=lambda m: (m.receiver, m.sender))
        at = slice(g.offsets[0, i], g.offsets[0, i + 1])
        found = zip(
            g.receiver[at].tolist(), g.sender[at].tolist(), g.bits[at].tolist(), g.outcome[at].tolist(), strict=True
        )
        assert list(found) == [(m.receiver, m.sender, m.bits, OUTCOMES[m.outcome]) for m in letters]
        np.testing.assert_allclose(g.arrived_s[at], [m.arrived for m in letters], **close)
        assert block.columns["backhaul_bits"][0, i] == sum(m.bits for m in letters)
        used = [m.outcome == "arrived" and own[m.receiver].aggregated for m in letters]
        assert g.received[at].tolist() == used
        assert block.columns["wasted_bits"][0, i] == sum(m.bits for m, u in zip(letters, used, strict=True) if not u)
        assert block.columns["late"][0, i] == sum(m.outcome == "late" for m in letters)
    assert block.lengths[0] == ROUNDS or oracle.stopped_at == block.lengths[0] + 1
    return len(g.sender)
