"""Messages between any two nodes of a network: their routes, and shared links."""

from __future__ import annotations

import itertools
import math
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedsim as fs
from fedsim.errors import InvalidInput
from fedsim.network import Network, finish_times


def line(*bandwidths, latency_s=0.5, server=None, kind=nx.Graph):
    """Clients 0, 1, 2, ... in a row."""
    graph = kind(name="line")
    for c in range(len(bandwidths) + 1):
        graph.add_node(f"n{c}", client=c)
    for c, bandwidth in enumerate(bandwidths):
        graph.add_edge(f"n{c}", f"n{c + 1}", bandwidth_bps=bandwidth, latency_s=latency_s, loss=0.5)
    if server is not None:
        graph.add_node("server", role="server")
        graph.add_edge("server", server, bandwidth_bps=math.inf, latency_s=0.0)
    return Network(graph)


def names(network, paths, row):
    return [network.link_names[link] for link in paths.route(row)]


def test_a_route_has_its_links_in_the_order_of_travel_and_their_columns():
    network = line(10.0, 4.0, 8.0)
    paths = network.paths([("n0", "n3"), ("n3", "n1"), ("n2", "n2")])
    assert len(paths) == 3
    assert names(network, paths, 0) == ["n0-n1", "n1-n2", "n2-n3"]
    assert names(network, paths, 1) == ["n3-n2", "n2-n1"]
    assert names(network, paths, 2) == []
    assert paths.latency_s.tolist() == [1.5, 1.0, 0.0]
    assert paths.bottleneck_bps.tolist() == [4.0, 4.0, math.inf]
    assert paths.loss_factor.tolist() == [8.0, 4.0, 1.0]


def test_no_pairs_are_no_rows():
    paths = line(1.0).paths([])
    assert (len(paths), paths.links.tolist(), paths.starts.tolist(), paths.contended) == (0, [], [0], False)


def test_rows_meet_where_they_use_a_link_in_the_same_direction():
    network = line(1.0, 1.0)
    assert network.paths([("n0", "n2"), ("n1", "n2")]).contended
    assert not network.paths([("n0", "n1"), ("n1", "n0")]).contended


def test_a_pair_of_a_client_and_the_server_has_that_clients_own_route():
    graph = nx.cycle_graph(5)
    nx.set_edge_attributes(graph, 1.0, "bandwidth_bps")
    nx.set_edge_attributes(graph, 1.0, "latency_s")
    network = Network(graph, server=0, clients=[1, 2, 3, 4], routes={2: [3, 2, 1, 0]})
    paths = network.paths([(3, 0), (0, 3), (2, 0), (0, 2)])
    for row, (client, upward) in enumerate(((2, True), (2, False), (1, True), (1, False))):
        assert paths.route(row).tolist() == network.route(client, upward).tolist()
        assert paths.latency_s[row] == network.delay_s(upward)[client]
    assert names(network, network.paths([(3, 4)]), 0) == ["3-4"]  # the others go the least latency


def test_messages_between_clients_share_links_with_those_to_the_server():
    network = line(10.0, 4.0, server="n2")
    paths = network.paths([("n0", "n2")])
    up = network.route(1, True)  # n1 to n2, where the server is
    assert set(up.tolist()) < set(paths.route(0).tolist())
    finish = finish_times(network.capacities_bps, [paths.route(0), up], [40.0, 20.0], [0.0, 0.0])
    assert finish.tolist() == [15.0, 10.0]  # 2 bit/s each; then the first alone at 4


@st.composite
def meshes(draw):
    graph = nx.gnp_random_graph(draw(st.integers(2, 9)), 0.5, seed=draw(st.integers(0, 10**6)))
    for _, _, data in graph.edges(data=True):
        data["latency_s"] = float(draw(st.integers(0, 4)))
        data["bandwidth_bps"] = float(draw(st.integers(1, 9)))
    return graph


@given(meshes())
def test_every_route_has_the_least_latency_and_then_the_fewest_links(graph):
    network = Network(graph, clients=list(graph))
    for a in graph:
        # exact: latencies are small integers, and fewer than 1000 links count as less than one of them
        least = nx.single_source_dijkstra_path_length(graph, a, weight=lambda u, v, d: 1000 * d["latency_s"] + 1)
        for b in graph:
            if b not in least:
                with pytest.raises(InvalidInput, match=f"no route leads from {a} to {b}: add edges"):
                    network.paths([(a, b)])
                continue
            paths = network.paths([(a, b)])
            stops = [a, *(int(name.split("-")[1]) for name in names(network, paths, 0))]
            assert stops[-1] == b
            assert len(set(stops)) == len(stops)
            edges = [graph.edges[u, v] for u, v in itertools.pairwise(stops)]
            assert 1000 * sum(e["latency_s"] for e in edges) + len(edges) == least[b]
            assert paths.bottleneck_bps[0] == min((e["bandwidth_bps"] for e in edges), default=math.inf)


def test_many_pairs_at_once_have_the_routes_of_each_alone():
    network = fs.topologies.tree(12, edges=3, uplink_bps=5.0, downlink_bps=7.0, latency_s=1.0, edge_latency_s=2.0)
    nodes = [*network.nodes, "edge0", "edge1", "edge2", "server"]
    pairs = [(a, b) for a in nodes for b in nodes]
    together = network.paths(pairs)
    for row, pair in enumerate(pairs):
        assert network.paths([pair]).route(0).tolist() == together.route(row).tolist()


@pytest.mark.parametrize(
    "arguments",
    [
        {"uplink_bps": [1.0, 2.0, 3.0], "downlink_bps": 8.0, "latency_s": [0.0, 0.5, 1.0], "loss": [0.0, 0.5, 0.75]},
        {"uplink_bps": math.inf, "downlink_bps": [4.0, math.inf, 2.0]},
    ],
)
def test_a_star_has_the_routes_of_its_graph(arguments):
    star = fs.topologies.star(3, **arguments)
    network = Network(star.graph)
    assert (star.nodes, star.server, star.has_server, star.edge_nodes) == (network.nodes, "server", True, ())
    pairs = [(a, b) for a in (*star.nodes, "server") for b in (*star.nodes, "server")]
    own, drawn = star.paths(pairs), network.paths(pairs)
    for row in range(len(pairs)):
        assert names(star, own, row) == names(network, drawn, row)
    for column in ("latency_s", "bottleneck_bps", "loss_factor"):
        np.testing.assert_array_equal(getattr(own, column), getattr(drawn, column))


# --- Without a server ------------------------------------------------------------------------------------


def test_a_network_may_lack_a_server():
    network = line(10.0, 4.0)
    assert (network.has_server, network.server, network.contended) == (False, None, False)
    assert network.describe() == "line, 2 links; no server"
    assert len(pickle.loads(pickle.dumps(network)).paths([("n0", "n2")])) == 1
    for ask in (network.delay_s, network.loss_factor, network.bottleneck_bps):
        with pytest.raises(InvalidInput, match="the network has no server: mark its node"):
            ask(True)


def test_clients_without_a_server_need_a_connection_only_for_their_routes():
    graph = nx.Graph()
    graph.add_node("a", client=0)
    graph.add_node("b", client=1)
    network = Network(graph)
    with pytest.raises(InvalidInput, match="no route leads from 'a' to 'b'"):
        network.paths([("a", "b")])


def test_routes_to_a_server_that_is_not_there_are_refused():
    graph = line(1.0).graph
    with pytest.raises(InvalidInput, match="routes= lead to the server, and the graph has none"):
        Network(graph, routes={0: ["n0", "n1"]})


def test_a_scenario_with_one_server_refuses_a_network_without():
    data = [np.zeros((1, 1))] * 3
    with pytest.raises(InvalidInput, match="the network has no server"):
        fs.Scenario(
            problem=fs.problems.GaussianMean(data=data, covariance=np.eye(1)),
            algorithm=fs.algorithms.FALD(step_size=0.1, local_steps=1),
            network=line(1.0, 1.0),
            budget=fs.Budget(rounds=1),
        )


def test_an_own_class_without_paths_is_refused_by_name():
    from fedsim.protocols import as_network

    class Own:
        clients, contended = 1, False

    network = as_network(Own())
    assert network.has_server
    with pytest.raises(InvalidInput, match=r"Own has no paths\(pairs\)"):
        network.paths([])


# --- What makes no sense ---------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [line(1.0), fs.topologies.star(2)], ids=["graph", "star"])
@pytest.mark.parametrize(
    "pairs, words",
    [
        (3, r"paths\(3\): list pairs of nodes"),
        ("n0", r"paths\('n0'\): list pairs"),
        ([("n0",)], r"\('n0',\) is not a pair"),
        ([("n0", "n1", "n2")], "is not a pair"),
        (["ab"], "'ab' is not a pair"),
        ([7], "7 is not a pair"),
        ([("server", "moon")], "the end of a message '(moon|server)' is not a node of the graph"),
        ([([], "moon")], r"the end of a message \[\] is not a node"),
        ({"a": "b"}, "list pairs"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(network, pairs, words):
    with pytest.raises(InvalidInput, match=words):
        network.paths(pairs)
