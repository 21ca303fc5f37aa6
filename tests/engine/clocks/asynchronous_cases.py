"""Random asynchronous clients with the numbers of their oracle."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
from engine.clocks.timelines import system_of
from oracles.tier_clock import Case, Way

import fedsim as fs
from fedsim.engine.system import MessageSizes
from fedsim.rng import Stream

DIM, ROUNDS = 5, 10
BITS = 64 * DIM
SIZES = MessageSizes(BITS, BITS, BITS)


def graph_of(draw, clients, shape):
    """Clients at a radio at a server; private links, a shared channel, or a shared trunk behind it."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    rates = {name: draw.uniform(900, 2500) if shape == name else math.inf for name in ("channel", "trunk")}
    graph.add_edge("radio", "hub", bandwidth_bps=rates["channel"], latency_s=0.0, shared=True)
    graph.add_edge("hub", "server", bandwidth_bps=rates["trunk"], latency_s=draw.uniform(0.01, 0.2), shared=False)
    for c in range(clients):
        graph.add_node(f"client {c}", client=c)
        graph.add_edge(
            f"client {c}", "radio", bandwidth_bps=draw.uniform(300, 1500), latency_s=draw.uniform(0.01, 0.4),
            loss=float(draw.choice([0.0, 0.2])),
        )  # fmt: skip
    return graph


def random_case(seed, shape, remembers):
    """A scenario and the numbers of its oracle."""
    draw = np.random.default_rng(seed)
    clients, on, online = int(draw.integers(2, 9)), None, None
    seconds = draw.uniform(0.05, 2.0, clients)
    if draw.integers(2):
        first, length = draw.uniform(0, 4, clients), draw.uniform(2.5, 4.9, clients)
        periods = int(draw.choice([4, 40]))
        on = [[(5.0 * k + a, 5.0 * k + a + b) for k in range(periods)] for a, b in zip(first, length, strict=True)]
        starts, ends = zip(*(period for own in on for period in own), strict=True)
        online = fs.devices.intervals(starts, ends=ends, offsets=np.arange(clients + 1) * periods)
    shares = dict.fromkeys(("before", "compute", "upload"), float(draw.choice([0.0, 0.1, 0.2])))
    places = int(draw.integers(1, clients + 1)) if draw.integers(2) else None
    replies = int(draw.integers(1, min(places or clients, 4) + 1))
    to_all = bool(draw.integers(2))
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=DIM, samples=2, seed=1),
        algorithm=fs.algorithms.Scaffold(0.1, local_steps=1) if remembers else fs.algorithms.FALD(step_size=1e-6, local_steps=1),
        network=fs.Network(graph_of(draw, clients, shape)),
        devices=fs.devices.constant(seconds.tolist(), dropout=shares, availability=online),
        participation=fs.participation.buffered(replies, of=places), budget=fs.Budget(rounds=ROUNDS),
        broadcast_to="all" if to_all else None, seed=seed,
    )  # fmt: skip
    network, system = scenario.sites.network, system_of(scenario)

    def ways(upward):
        delay, loss = network.delay_s(upward), network.loss_factor(upward)
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
