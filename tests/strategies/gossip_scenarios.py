"""Random scenarios of gossip for both clocks, small and full of ties."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import strategies as st

import fedsim as fs
from fedsim.engine.system import MessageSizes
from strategies.clock_scenarios import delays, devices, rates


@st.composite
def graphs(draw, sites):
    """A connected graph of client numbers: a tree with shortcuts."""
    graph = nx.empty_graph(sites)
    graph.add_edges_from((draw(st.integers(0, i - 1)), i) for i in range(1, sites))
    pairs = [(i, j) for i in range(sites) for j in range(i)]
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else [])
    return graph


def metropolis(graph):
    """Metropolis weights as a matrix."""
    exchange = fs.exchanges.gossip(graph)
    mixing = exchange.at(0, 0, 0)
    matrix = np.diag(mixing.own)
    matrix[exchange.receiver[mixing.message], exchange.sender[mixing.message]] = mixing.weight
    return matrix


@st.composite
def mixings(draw, graph):
    """A word, or matrices in turn: Metropolis weights, then matrices in which few sites hear each other."""
    word = draw(st.sampled_from(["metropolis", "max_degree", "matching", "in turn"]))
    if word != "in turn" or len(graph) == 1:
        return "metropolis" if word == "in turn" else word
    matrices = [metropolis(graph)]
    for _ in range(draw(st.integers(1, 2))):
        matrix = np.eye(len(graph))
        for i, j in draw(st.lists(st.sampled_from([*graph.edges]), max_size=3)):
            if i != j and matrix[i, j] == 0:
                matrix[[i, j, i, j], [j, i, i, j]] += [0.1, 0.1, -0.1, -0.1]
        matrices.append(matrix)
    return matrices


@st.composite
def networks(draw, graph):
    """None, a link for every pair of neighbours, or clients around a few relays, whose links they share."""
    kind, sites = draw(st.integers(0, 3)), len(graph)
    if kind == 0:
        return None
    made = nx.DiGraph() if kind == 1 else nx.Graph()
    made.add_nodes_from((c, {"client": c}) for c in range(sites))

    def link(u, v):
        made.add_edge(u, v, bandwidth_bps=draw(rates()), latency_s=draw(delays()), shared=kind > 1 and draw(st.booleans()),
                      loss=draw(st.sampled_from([0.0, 0.5])))  # fmt: skip

    if kind < 3:
        for u, v in graph.edges:
            link(u, v)
            if kind == 1:
                link(v, u)
        return fs.Network(made)
    relays = draw(st.integers(1, 3))
    for r in range(1, relays):
        link(f"r{r - 1}", f"r{r}")
    for c in range(sites):
        link(c, f"r{draw(st.integers(0, relays - 1))}")
    return fs.Network(made)


@st.composite
def gossip_scenarios(draw):
    """A scenario and the sizes of its messages."""
    sites, p = draw(st.integers(1, 6)), fs.participation
    graph = draw(graphs(sites))
    policy = draw(
        st.just(p.full())
        | st.integers(1, sites).map(p.first)
        | (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(p.deadline)
    )
    scenario = fs.Scenario(
        problem=fs.problems.Payload(sites, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
        network=draw(networks(graph)),
        devices=draw(st.none() | devices(sites)),
        participation=policy,
        exchange=fs.exchanges.gossip(graph, draw(mixings(graph))),
        budget=fs.Budget(rounds=9, seconds=draw(st.none() | st.sampled_from([0.5, 5.0, 1e5]))),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
    )
    bits = st.sampled_from([0, 1, 64, 192, 1000]) | st.integers(1, 5000)
    return scenario, MessageSizes(0, draw(bits), draw(bits))
