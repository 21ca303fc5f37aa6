"""Edges under a cloud keep the same time on the compiled clock as on SimPy, to the last bit."""

import dataclasses
import threading

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compiled_clock import DELAYS, ONE, RATES, agree, assert_same, both, column, devices, outcome

import fedsim as fs
from fedsim.engine import always_compiled, reference_clock
from fedsim.engine.tiers_arrays import TiersClock
from fedsim.kernels.found import Found


@st.composite
def networks(draw, clients, edges):
    """None, links of everybody's own to the server, one channel for all, or edges that are nodes of a network."""
    rate, delay = st.sampled_from(RATES) | st.floats(10.0, 1e6), st.sampled_from(DELAYS) | st.floats(0.0, 2.0)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return None
    if kind == 1:
        return fs.topologies.star(
            clients, uplink_bps=draw(column(rate, clients)), downlink_bps=draw(column(rate, clients)),
            latency_s=draw(column(delay, clients)),
        )  # fmt: skip
    if kind == 2:
        return fs.topologies.multiple_access(clients, draw(st.sampled_from(RATES[:-1])), latency_s=draw(delay))
    graph = nx.Graph()
    graph.add_node("server", role="server")

    def link(u, v):
        graph.add_edge(u, v, bandwidth_bps=draw(rate), latency_s=draw(delay), shared=draw(st.booleans()))

    for e in range(edges):
        graph.add_node(f"e{e}", role="edge")
        link(f"e{e}", f"e{e - 1}" if e and draw(st.booleans()) else "server")
    for c in range(clients):
        graph.add_node(f"c{c}", client=c)
        link(f"c{c}", f"e{draw(st.integers(0, edges - 1))}")
    return fs.Network(graph)


@st.composite
def policies(draw, least):
    """Nobody may ask an edge for more clients than the smallest has."""
    size, p = st.integers(1, least), fs.participation
    of, enough = draw(st.none() | size), draw(st.none() | size)
    return draw(
        st.one_of(
            st.just(p.full()),
            st.integers(1, 2 * least).map(lambda n: p.with_replacement(n, at_least=enough)),
            size.map(lambda n: p.uniform(n, "normalised", at_least=enough)),
            st.sampled_from([0.1, 0.5, 1.0]).map(p.bernoulli),
            st.integers(1, least if of is None else of).map(lambda n: p.first(n, of=of, at_least=enough)),
            (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(lambda s: p.deadline(s, of=of)),
        )
    )


@st.composite
def scenarios(draw):
    clients = draw(st.integers(1, 7))
    edges = draw(st.integers(1, min(3, clients)))
    groups = draw(st.permutations([c % edges for c in range(clients)]))
    limits = {n: draw(st.none() | st.sampled_from(v)) for n, v in (("total_bits", [2500]), ("seconds", [0.5, 5.0]))}
    return fs.Scenario(
        problem=fs.problems.Payload(clients, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.FALD(1e-3, 3),
        network=draw(networks(clients, edges)),
        devices=draw(st.none() | devices(clients)),
        participation=draw(policies(clients // edges)),
        exchange=fs.exchanges.tiers(groups, every=draw(st.integers(1, 3))),
        budget=fs.Budget(rounds=draw(st.integers(1, 7)), **limits),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2])), events=draw(st.booleans())),
        reach=draw(st.sampled_from([None, "all"])),
    )


@settings(max_examples=60)
@given(scenarios())
def test_tiers_on_the_compiled_clock_give_the_bits_of_simpy(scenario):
    agree(scenario)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(scenarios())
def test_tiers_on_the_compiled_clock_give_the_bits_of_simpy_ten_thousand_times(scenario):
    agree(scenario)
