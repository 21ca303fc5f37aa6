"""A user's graph becomes links, routes and columns, or is refused with the node or the edge that is wrong."""

from __future__ import annotations

import dataclasses
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
from fedsim.network import Network
from fedsim.network.finishing import finish_times


def metro(kind=nx.Graph, **changes):
    """Two clients behind an aggregation switch, one on the core."""
    graph = kind(name="metro")
    graph.add_node("core", role="server")
    for c, (node, parent, bandwidth) in enumerate((("a", "agg", 4e6), ("b", "agg", 8e6), ("c", "core", 2e6))):
        graph.add_node(node, client=c)
        graph.add_edge(node, parent, bandwidth_bps=bandwidth, latency_s=0.25, loss=0.5)
    graph.add_edge("agg", "core", bandwidth_bps=1e6, latency_s=0.125, **changes)
    return graph


def names(network, client, upward):
    return [network.link_names[link] for link in network.route(client, upward)]


# --- What becomes of a graph -----------------------------------------------------------------------------


def test_columns_follow_the_routes():
    network = Network(metro())
    assert (network.clients, network.server, network.nodes) == (3, "core", ("a", "b", "c"))
    for upward in (True, False):
        assert network.delay_s(upward).tolist() == [0.375, 0.375, 0.25]
        assert network.bottleneck_bps(upward).tolist() == [1e6, 1e6, 2e6]
        assert network.loss_factor(upward).tolist() == [2.0, 2.0, 2.0]
    assert names(network, 1, True) == ["b-agg", "agg-core"]
    assert names(network, 1, False) == ["core-agg", "agg-b"]
    assert names(network, 2, True) == ["c-core"]
    assert len(network.capacities_bps) == 8  # every direction of a full-duplex edge is a link of its own


def test_loss_multiplies_along_the_route():
    graph = metro()
    graph["agg"]["core"]["loss"] = 0.75
    assert Network(graph).loss_factor(True).tolist() == [8.0, 8.0, 2.0]


def test_users_keep_their_own_names_for_nodes_and_attributes():
    graph = nx.Graph()
    graph.add_edge(("rack", 1), 7, capacity=1e3, delay=2.0, lost=0.5, radio=True)
    graph.add_edge(7, "hq", capacity=5e3, delay=1.0, lost=0.0, radio=False)
    network = Network(
        graph, server="hq", clients=[("rack", 1), 7], bandwidth_bps="capacity", latency_s="delay", loss="lost",
        shared="radio",
    )  # fmt: skip
    assert network.delay_s(True).tolist() == [3.0, 1.0]
    assert network.bottleneck_bps(True).tolist() == [1e3, 5e3]
    assert network.loss_factor(True).tolist() == [2.0, 1.0]
    assert names(network, 0, True) == ["('rack', 1)-7", "7-hq"]


def test_functions_may_stand_for_attributes():
    graph = metro()
    network = Network(
        graph,
        bandwidth_bps=lambda u, v, data: 2 * data["bandwidth_bps"],
        latency_s=lambda u, v, data: 0.5 if "core" in (u, v) else 0.0,
        loss=lambda u, v, data: 0.0,
    )
    assert network.bottleneck_bps(True).tolist() == [2e6, 2e6, 4e6]
    assert network.delay_s(True).tolist() == [0.5, 0.5, 0.5]
    assert network.loss_factor(True).tolist() == [1.0, 1.0, 1.0]


def test_a_directed_graph_tells_the_directions_apart():
    graph = nx.DiGraph()
    graph.add_node("s", role="server")
    graph.add_node("x", client=0)
    graph.add_edge("x", "s", bandwidth_bps=1e3, latency_s=1.0)
    graph.add_edge("s", "relay", bandwidth_bps=4e3, latency_s=0.5, loss=0.5)
    graph.add_edge("relay", "x", bandwidth_bps=2e3, latency_s=0.5)
    network = Network(graph)
    assert (network.bottleneck_bps(True).item(), network.bottleneck_bps(False).item()) == (1e3, 2e3)
    assert (network.loss_factor(True).item(), network.loss_factor(False).item()) == (1.0, 2.0)
    assert names(network, 0, True) == ["x-s"]
    assert names(network, 0, False) == ["s-relay", "relay-x"]
    assert not network.contended


def test_ideal_links_cost_latency_but_are_no_links():
    graph = nx.path_graph(["s", "m", "x"])
    nx.set_edge_attributes(graph, {("s", "m"): math.inf, ("m", "x"): 5.0}, "bandwidth_bps")
    nx.set_edge_attributes(graph, 1.0, "latency_s")
    network = Network(graph, server="s", clients=["x", "m"])
    assert names(network, 0, True) == ["x-m"]
    assert network.route(1, True).tolist() == []
    assert network.bottleneck_bps(False).tolist() == [5.0, math.inf]
    assert network.delay_s(False).tolist() == [2.0, 1.0]


# --- Shared and contended -------------------------------------------------------------------------------


def test_a_shared_edge_is_one_link_for_both_directions():
    network = Network(metro(shared=True))
    assert network.route(0, True)[-1] == network.route(0, False)[0] == network.route(1, True)[-1]
    assert len(network.capacities_bps) == 7


def test_a_shared_edge_of_a_directed_graph_is_given_both_ways():
    graph = metro(shared=True).to_directed()
    network = Network(graph)
    assert network.route(0, True)[-1] == network.route(1, False)[0]


@pytest.mark.parametrize("shared", [False, True])
def test_a_client_alone_is_contended_only_if_its_directions_share(shared):
    graph = nx.Graph()
    graph.add_node("s", role="server")
    graph.add_node("x", client=0)
    graph.add_edge("s", "x", bandwidth_bps=1.0, latency_s=0.0, shared=shared)
    assert Network(graph).contended is shared


def test_two_clients_on_one_link_contend_unless_it_is_ideal():
    assert Network(metro()).contended
    graph = metro()
    graph["agg"]["core"]["bandwidth_bps"] = math.inf
    assert not Network(graph).contended


# --- Routes -----------------------------------------------------------------------------------------------


def diamond(**latency):
    graph = nx.Graph()
    graph.add_node("s", role="server")
    for relay in ("m1", "m2"):
        graph.add_edge("s", relay, bandwidth_bps=1.0, latency_s=latency.get(relay, 1.0))
    graph.add_node("x", client=0)
    for relay in ("m2", "m1"):
        graph.add_edge(relay, "x", bandwidth_bps=1.0, latency_s=1.0)
    return graph


def test_routes_have_the_least_latency():
    assert names(Network(diamond(m1=1.5)), 0, True) == ["x-m2", "m2-s"]
    assert names(Network(diamond(m2=1.5)), 0, False) == ["s-m1", "m1-x"]


def test_ties_go_to_fewer_links_and_then_to_the_first_nodes_of_the_graph():
    assert names(Network(diamond()), 0, True) == ["x-m1", "m1-s"]
    assert names(Network(diamond()), 0, False) == ["s-m1", "m1-x"]
    graph = diamond()
    graph.add_edge("x", "s", bandwidth_bps=1.0, latency_s=2.0)
    assert names(Network(graph), 0, True) == ["x-s"]


@pytest.mark.parametrize("client", [0, "x"])
def test_the_user_may_choose_a_route_by_the_clients_number_or_node(client):
    network = Network(diamond(m2=9.0), routes={client: ["x", "m2", "s"]})
    assert names(network, 0, True) == ["x-m2", "m2-s"]
    assert names(network, 0, False) == ["s-m2", "m2-x"]
    assert network.delay_s(True).tolist() == [10.0]


def test_a_chosen_route_leaves_the_other_clients_alone():
    graph = metro()
    graph.add_edge("b", "c", bandwidth_bps=3e6, latency_s=9.0)
    network = Network(graph, routes={1: ["b", "c", "core"]})
    assert [names(network, c, True) for c in range(3)] == [["a-agg", "agg-core"], ["b-c", "c-core"], ["c-core"]]
    assert network.delay_s(False).tolist() == [0.375, 9.25, 0.25]


@st.composite
def connected(draw):
    """A connected graph with equal weights here and there, its server and its clients."""
    n = draw(st.integers(2, 9))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    pairs = [(draw(st.integers(0, v - 1)), v) for v in range(1, n)]
    pairs += draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda p: p[0] != p[1]), max_size=8)
    )
    for u, v in pairs:
        graph.add_edge(
            u,
            v,
            bandwidth_bps=draw(st.floats(1.0, 10.0)),
            latency_s=draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])),
        )
    return graph, draw(st.permutations(range(n)))


@given(connected())
def test_every_route_is_a_shortest_path_and_its_columns_are_its_links(case):
    graph, (server, *clients) = case
    network = Network(graph, server=server, clients=clients)
    shortest = nx.single_source_dijkstra_path_length(graph, server, weight="latency_s")
    edge = {f"{u}-{v}": (u, v) for a, b in graph.edges for u, v in ((a, b), (b, a))}
    for (c, node), upward in itertools.product(enumerate(clients), (True, False)):
        hops = [edge[name] for name in names(network, c, upward)]
        path = [hops[0][0], *(v for _, v in hops)]
        assert path[0 if upward else -1] == node
        assert path[-1 if upward else 0] == server
        assert all(u == v for (_, u), (v, _) in itertools.pairwise(hops))
        assert network.delay_s(upward)[c] == shortest[node]
        assert network.bottleneck_bps(upward)[c] == min(graph.edges[hop]["bandwidth_bps"] for hop in hops)
        assert hops == [(v, u) for u, v in edge_list(network, edge, c, not upward)][::-1]  # the same in both directions


def edge_list(network, edge, client, upward):
    return [edge[name] for name in names(network, client, upward)]


def test_thousands_of_nodes_are_no_trouble():
    graph = nx.random_regular_graph(3, 3000, seed=1)
    nx.set_edge_attributes(graph, 1e6, "bandwidth_bps")
    nx.set_edge_attributes(graph, 0.01, "latency_s")
    network = Network(graph, server=0, clients=range(1, 3000))
    depth = nx.single_source_shortest_path_length(graph, 0)
    assert [len(network.route(c, True)) for c in range(2999)] == [depth[c + 1] for c in range(2999)]


# --- As one object ----------------------------------------------------------------------------------------


def test_routes_and_capacities_feed_the_flow_model():
    network = Network(metro())
    routes = [network.route(c, True) for c in range(3)]
    assert fs.network.finish_times is finish_times
    assert finish_times(network.capacities_bps, routes, 1e6, 0.0).tolist() == [2.0, 2.0, 0.5]


def test_a_network_is_frozen_can_be_pickled_and_keeps_its_graph():
    graph = metro()
    network = Network(graph)
    assert nx.utils.graphs_equal(network.graph, graph)
    with pytest.raises(dataclasses.FrozenInstanceError):
        network.clients = 4
    again = pickle.loads(pickle.dumps(network))
    assert again.route(1, True).tolist() == network.route(1, True).tolist()
    assert "graph" not in {field.name for field in dataclasses.fields(network)}


def test_it_describes_its_size_and_the_link_that_leaves_least_to_a_client():
    assert Network(metro()).describe() == "metro, 4 links; bottleneck agg-core 1 Mbit/s, 2 clients"
    graph = metro()
    del graph.graph["name"]
    graph["agg"]["core"]["bandwidth_bps"] = 4e10
    assert Network(graph).describe() == "4 links; bottleneck c-core 2 Mbit/s, 1 client"
    nx.set_edge_attributes(graph, math.inf, "bandwidth_bps")
    assert Network(graph).describe() == "4 links; all ideal"


# --- What is refused ---------------------------------------------------------------------------------------


def without(node, key):
    def change(graph):
        del graph.nodes[node][key]

    return change


def at(node, **data):
    return lambda graph: graph.nodes[node].update(data)


def along(u, v, **data):
    return lambda graph: graph.edges[u, v].update(data)


@pytest.mark.parametrize(
    "change, words",
    [
        (at("a", role="server"), r"found 2 \('core', 'a'\): mark one, or name it with server="),
        (at("core", client=3), "node 'core' is the server and client 3: give it one role"),
        (without("a", "client"), "no node has client=0 among 2 clients: number them 0, 1, 2"),
        (at("b", client=0), "nodes 'a' and 'b' are both client 0"),
        (at("b", client=7), "no node has client=1 among 3 clients"),
        (at("b", client=-1), "node 'b' has client=-1"),
        (at("b", client="1"), "node 'b' has client='1'"),
        (at("b", client=True), "node 'b' has client=True"),
        (
            along("a", "agg", bandwidth_bps=0.0),
            "edge 'a'-'agg' has bandwidth_bps 0.0: give a positive number of bit/s",
        ),
        (along("a", "agg", bandwidth_bps=-5), "edge 'a'-'agg' has bandwidth_bps -5"),
        (along("a", "agg", bandwidth_bps=math.nan), "edge 'a'-'agg' has bandwidth_bps nan"),
        (along("a", "agg", bandwidth_bps="fast"), "edge 'a'-'agg' has bandwidth_bps 'fast'"),
        (along("a", "agg", latency_s=-0.1), "edge 'a'-'agg' has latency_s -0.1: give seconds, at least 0"),
        (along("a", "agg", latency_s=math.inf), "edge 'a'-'agg' has latency_s inf"),
        (
            along("a", "agg", loss=1.0),
            "edge 'a'-'agg' has loss 1.0: give the fraction that is lost, at least 0 and below 1",
        ),
        (along("a", "agg", loss=-0.5), "edge 'a'-'agg' has loss -0.5"),
        (along("a", "agg", shared="yes"), "edge 'a'-'agg' has shared 'yes': give True or False"),
        (
            lambda g: g.edges["a", "agg"].pop("bandwidth_bps"),
            "edge 'a'-'agg' has no 'bandwidth_bps': set it, or name another",
        ),
        (
            lambda g: g.edges["a", "agg"].pop("latency_s"),
            "edge 'a'-'agg' has no 'latency_s': set it, or name another attribute with latency_s=",
        ),
        (
            lambda g: g.remove_edge("agg", "core"),
            "client 0 has no route from 'a' to 'core': add edges",
        ),
        (lambda g: g.add_edge("a", "a"), "edge 'a'-'a' leads back to where it starts: remove it"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused_with_the_place_and_the_remedy(change, words):
    graph = metro()
    change(graph)
    with pytest.raises(InvalidInput, match=words) as caught:
        Network(graph)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            {"server": "hub"},
            "the server 'hub' is not a node of the graph: name one of 'core', 'a', 'agg', 'b', 'c'",
        ),
        ({"server": ["core"]}, r"the server \['core'\] is not a node"),
        ({"clients": ["a", "z"]}, "client 1 'z' is not a node of the graph"),
        ({"clients": ["a", "b", "a"]}, "node 'a' is client 0 and client 2: list every node once"),
        ({"clients": ["a", "core"]}, "node 'core' is the server and client 1"),
        ({"clients": []}, "the network has no clients"),
        (
            {"bandwidth_bps": "capacity"},
            "edge 'core'-'c' has no 'capacity': set it, or name another attribute with bandwidth_bps=",
        ),
        ({"loss": "lost"}, "loss='lost': no edge has that attribute"),
        ({"shared": "radio"}, "shared='radio': no edge has that attribute"),
        (
            {"routes": {0: ["a", "core"]}},
            r"routes\[0\] needs 'a'-'core' in both directions: add the edge, or give another route",
        ),
        (
            {"routes": {0: ["a", "agg"]}},
            r"routes\[0\] is \['a', 'agg'\]: list the nodes from that client to the server 'core'",
        ),
        ({"routes": {1: ["a", "agg", "core"]}}, r"routes\[1\] is .*: list the nodes from that client"),
        ({"routes": {"z": ["z", "core"]}}, r"routes\['z'\] is"),
        ({"routes": {0: []}}, r"routes\[0\] is \[\]"),
        ({"routes": {0: ["a", "agg", "b", "agg", "core"]}}, r"routes\[0\] .*: pass every node once"),
    ],
)
def test_arguments_that_do_not_fit_the_graph_are_refused(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        Network(metro(), **arguments)


@pytest.mark.parametrize("graph", [nx.MultiGraph(), nx.MultiDiGraph(), {"a": "b"}, None, 5])
def test_only_simple_graphs_are_networks(graph):
    with pytest.raises(InvalidInput, match=f"is a {type(graph).__name__}: give a networkx Graph or DiGraph"):
        Network(graph)


def test_a_way_there_without_a_way_back_is_refused():
    graph = metro().to_directed()
    graph.remove_edge("agg", "b")
    with pytest.raises(InvalidInput, match="client 1 has no route from 'core' to 'b'"):
        Network(graph)


@pytest.mark.parametrize("back", [None, {"shared": False}, {"bandwidth_bps": 3.0}])
def test_half_a_shared_edge_is_refused(back):
    graph = metro(shared=True).to_directed()
    if back is None:
        graph.remove_edge("core", "agg")
    else:
        graph["core"]["agg"].update(back)
    with pytest.raises(InvalidInput, match=r"is shared: the edge .* must also be shared, with the same bandwidth"):
        Network(graph)


def test_columns_are_float64_and_links_int64():
    network = Network(metro())
    columns = (
        network.capacities_bps,
        network.delay_s(True),
        network.loss_factor(False),
        network.bottleneck_bps(True),
    )
    assert {column.dtype for column in columns} == {np.dtype(np.float64)}
    assert network.route(0, True).dtype == np.int64
