"""Sites that gossip keep the same time on the compiled clock as on SimPy, to the last bit."""

import dataclasses
import threading

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compiled_clock import DELAYS, ONE, RATES, agree, assert_same, both, column, devices, outcome

import fedsim as fs
from fedsim.engine import always_compiled, reference_clock
from fedsim.engine.gossip_arrays import GossipClock


@st.composite
def neighbours(draw, sites):
    """A connected graph of client numbers: a tree with shortcuts."""
    graph = nx.empty_graph(sites)
    graph.add_edges_from((draw(st.integers(0, i - 1)), i) for i in range(1, sites))
    pairs = [(i, j) for i in range(sites) for j in range(i)]
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else [])
    return graph


@st.composite
def mixings(draw, graph):
    words = draw(st.sampled_from(["metropolis", "max_degree", "matching", "in turn"]))
    if words != "in turn":
        return words
    sites, matrices = len(graph), []
    for _ in range(draw(st.integers(1, 3))):
        matrix = np.eye(sites)
        for i, j in draw(st.lists(st.sampled_from([*graph.edges, (0, 0)]), max_size=3)):
            if i != j and matrix[i, j] == 0:
                matrix[[i, j, i, j], [j, i, i, j]] += [0.1, 0.1, -0.1, -0.1]
        matrices.append(matrix)
    return [np.full((1, 1), 1.0)] if sites == 1 else [fs_weights(graph), *matrices]


def fs_weights(graph):
    """Metropolis weights as a matrix: with it in the list every site counts."""
    exchange = fs.exchanges.gossip(graph)
    mixing = exchange.at(0, 0, 0)
    matrix = np.diag(mixing.own)
    matrix[exchange.receiver[mixing.message], exchange.sender[mixing.message]] = mixing.weight
    return matrix


@st.composite
def links(draw, graph):
    """None, a link for every pair of neighbours, or clients around a few relays, whose links they share."""
    rate, delay = st.sampled_from(RATES) | st.floats(10.0, 1e6), st.sampled_from(DELAYS) | st.floats(0.0, 2.0)
    kind, sites, made = draw(st.integers(0, 2)), len(graph), nx.Graph()
    if kind == 0:
        return None
    made.add_nodes_from((c, {"client": c}) for c in range(sites))

    def link(u, v):
        made.add_edge(u, v, bandwidth_bps=draw(rate), latency_s=draw(delay), shared=draw(st.booleans()))

    if kind == 1:
        for u, v in graph.edges:
            link(u, v)
        return fs.Network(made)
    relays = draw(st.integers(1, 3))
    for r in range(1, relays):
        link(f"r{r - 1}", f"r{r}")
    for c in range(sites):
        link(c, f"r{draw(st.integers(0, relays - 1))}")
    return fs.Network(made)


@st.composite
def scenarios(draw):
    sites = draw(st.integers(1, 6))
    graph = draw(neighbours(sites))
    limits = {n: draw(st.none() | st.sampled_from(v)) for n, v in (("backhaul_bits", [2500]), ("seconds", [0.5, 5.0]))}
    p = fs.participation
    policy = draw(
        st.just(p.full())
        | st.integers(1, sites).map(p.first)
        | (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(p.deadline)
    )
    return fs.Scenario(
        problem=fs.problems.Payload(sites, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.FALD(1e-3, 3),
        network=draw(links(graph)),
        devices=draw(st.none() | devices(sites)),
        participation=policy,
        exchange=fs.exchanges.gossip(graph, draw(mixings(graph))),
        budget=fs.Budget(rounds=draw(st.integers(1, 7)), **limits),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2])), events=draw(st.booleans())),
    )


@settings(max_examples=60)
@given(scenarios())
def test_gossip_on_the_compiled_clock_gives_the_bits_of_simpy(scenario):
    agree(scenario)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(scenarios())
def test_gossip_on_the_compiled_clock_gives_the_bits_of_simpy_ten_thousand_times(scenario):
    agree(scenario)
