"""Networks of clients with links to each other, as networks and as gossip graphs; groups behind edge servers; pictures."""

from __future__ import annotations

import io
import math

import networkx as nx
import pytest

import fedsim as fs
from fedsim import topologies
from fedsim.errors import InvalidInput
from fedsim.network import Network, Varying

SHAPES = {
    "ring": (lambda **kw: topologies.ring(5, **({"server": None} | kw)), nx.cycle_graph(5)),
    "grid": (
        lambda **kw: topologies.grid(2, columns=3, **kw),
        nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 3)),
    ),
    "complete": (lambda **kw: topologies.complete(4, **kw), nx.complete_graph(4)),
    "random regular": (
        lambda **kw: topologies.random_regular(8, degree=3, seed=1, **kw),
        nx.random_regular_graph(3, 8, seed=1),
    ),
    "erdos renyi": (
        lambda **kw: topologies.erdos_renyi(8, probability=0.6, seed=1, **kw),
        nx.gnp_random_graph(8, 0.6, seed=1),
    ),
    "small world": (
        lambda **kw: topologies.small_world(8, neighbours=4, rewired=0.3, seed=1, **kw),
        nx.watts_strogatz_graph(8, 4, 0.3, seed=1),
    ),
    "from graph": (lambda **kw: topologies.from_graph(nx.path_graph(4), **kw), nx.path_graph(4)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_topology_has_the_links_of_its_name_and_no_server(name):
    make, graph = SHAPES[name]
    network = make(bandwidth_bps=8.0, latency_s=0.5, loss=0.5)
    assert set(map(frozenset, network.client_graph().edges)) == set(map(frozenset, graph.edges))
    assert sorted(network.client_graph()) == list(range(len(graph)))
    assert not network.has_server
    a, b = next(iter(graph.edges))
    paths = network.paths([(network.nodes[a], network.nodes[b])])
    assert (paths.latency_s[0], paths.bottleneck_bps[0], paths.loss_factor[0]) == (0.5, 8.0, 2.0)


@pytest.mark.parametrize("name", SHAPES)
def test_a_server_may_sit_beside_a_client(name):
    network = SHAPES[name][0](bandwidth_bps=8.0, latency_s=0.5, server=2)
    assert network.has_server
    assert network.delay_s(True)[2] == 0.0
    assert network.bottleneck_bps(False)[2] == math.inf
    assert network.delay_s(True)[0] > 0.0
    assert fs.testing.check(network)
    assert "server" not in network.client_graph()


def test_links_have_numbers_of_their_own_in_the_order_of_the_graphs_edges():
    varying = Varying([0.0, 1.0], [1.0, 3.0], 2.0)
    network = topologies.from_graph(nx.path_graph(3), bandwidth_bps=[5.0, varying], latency_s=[1.0, 2.0])
    assert network.paths([("client0", "client1"), ("client2", "client1")]).bottleneck_bps.tolist() == [5.0, 2.0]
    assert list(network.varying.values()) == [varying, varying]  # each direction has all of it
    ring = topologies.ring(4, bandwidth_bps=[1.0, 2.0, 3.0, 4.0], server=None)
    assert ring.paths([("client0", "client1"), ("client3", "client0")]).bottleneck_bps.tolist() == [2.0, 1.0]


def test_attributes_of_an_edge_take_precedence():
    graph = nx.Graph()
    graph.add_edge("rome", "oslo", bandwidth_bps=7.0)
    graph.add_edge("oslo", "bern", latency_s=3.0, shared=True)
    network = topologies.from_graph(graph, bandwidth_bps=2.0, latency_s=1.0)
    paths = network.paths([("client0", "client1"), ("client1", "client2"), ("client2", "client1")])
    assert paths.bottleneck_bps.tolist() == [7.0, 2.0, 2.0]
    assert paths.latency_s.tolist() == [1.0, 3.0, 3.0]
    assert paths.route(1).tolist() == paths.route(2).tolist()


def test_equal_seeds_give_equal_graphs_and_others_do_not():
    one, two, other = (topologies.random_regular(20, degree=4, seed=seed).client_graph().edges for seed in (1, 1, 2))
    assert list(one) == list(two)
    assert set(one) != set(other)


def test_a_ring_of_two_or_one_is_no_circle():
    assert list(topologies.ring(2, server=None).client_graph().edges) == [(0, 1)]
    assert list(topologies.ring(1, server=None).client_graph().edges) == []


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: topologies.ring(3, server=3), r"ring\(server=3\): give the client beside it, 0 to 2"),
        (lambda: topologies.ring(3, server="moon"), r"ring\(server='moon'\)"),
        (lambda: topologies.grid(3, columns=3, server=True), r"grid\(server=True\)"),
        (lambda: topologies.grid(0, columns=3), r"grid\(rows=0\)"),
        (
            lambda: topologies.grid(2, columns=2, bandwidth_bps=[1.0] * 3),
            r"grid\(bandwidth_bps=...\) has shape \(3,\): .* 4",
        ),
        (lambda: topologies.complete(10**7), r"complete\(clients=10,000,000\)"),
        (
            lambda: topologies.random_regular(5, degree=3, seed=1),
            r"random_regular\(clients=5, degree=3\): give a degree below",
        ),
        (lambda: topologies.random_regular(4, degree=4, seed=1), "give a degree below the number of clients"),
        (lambda: topologies.random_regular(4, degree=2, seed=-1), r"random_regular\(seed=-1\)"),
        (lambda: topologies.random_regular(4, degree=2, seed="one"), r"random_regular\(seed='one'\)"),
        (
            lambda: topologies.erdos_renyi(9, probability=1.5, seed=1),
            r"erdos_renyi\(probability=1.5\): give a probability",
        ),
        (
            lambda: topologies.erdos_renyi(9, probability=0.0, seed=1),
            r"erdos_renyi\(seed=1\) is not connected .9 parts.: ask for more links",
        ),
        (
            lambda: topologies.small_world(9, neighbours=3, rewired=0.1, seed=1),
            "give an even number below that of clients",
        ),
        (lambda: topologies.small_world(9, neighbours=4, rewired=math.nan, seed=1), r"small_world\(rewired=nan\)"),
        (lambda: topologies.from_graph(nx.MultiGraph()), r"from_graph\(MultiGraph\): give a networkx Graph or DiGraph"),
        (lambda: topologies.from_graph(7), r"from_graph\(int\)"),
        (lambda: topologies.from_graph(nx.Graph()), r"from_graph\(clients=0\)"),
        (lambda: topologies.from_graph(nx.path_graph(2), latency_s=-1.0), r"from_graph\(latency_s=-1.0\)"),
    ],
)
def test_shapes_that_make_no_sense_are_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


# --- Groups ----------------------------------------------------------------------------------------------


def test_a_tree_groups_its_clients_by_their_edge_servers():
    tree = topologies.tree(5, edges=2)
    assert tree.edge_nodes == ("edge0", "edge1")
    assert tree.groups() == ("edge0", "edge0", "edge0", "edge1", "edge1")


def test_the_group_is_the_first_edge_server_on_the_route():
    graph = nx.Graph()
    for a, b in (("c0", "e0"), ("e0", "relay"), ("relay", "e1"), ("e1", "server"), ("c1", "relay")):
        graph.add_edge(a, b, bandwidth_bps=1.0, latency_s=1.0)
    for node, facts in {"server": {"role": "server"}, "e0": {"role": "edge"}, "e1": {"role": "edge"}}.items():
        graph.nodes[node].update(facts)
    graph.nodes["c0"]["client"], graph.nodes["c1"]["client"] = 0, 1
    assert Network(graph).groups() == ("e0", "e1")
    graph.add_edge("c1", "server", bandwidth_bps=1.0, latency_s=0.5)
    with pytest.raises(InvalidInput, match="client 1 has no edge server on its route"):
        Network(graph).groups()
    assert Network(graph, routes={1: ["c1", "relay", "e1", "server"]}).groups() == ("e0", "e1")


def test_networks_without_edge_servers_have_no_groups():
    with pytest.raises(InvalidInput, match="no edge servers: give their nodes role='edge'"):
        topologies.star(3).groups()
    with pytest.raises(InvalidInput, match="has no server"):
        topologies.ring(3, server=None).groups()


# --- Pictures ---------------------------------------------------------------------------------------------


def red(figure):
    """Labels of the edges that are marked."""
    return sorted(text.get_text() for text in figure.axes[0].texts if text.get_color() == "#cc3311")


def test_the_bottleneck_links_are_marked():
    tree = topologies.tree(
        6, edges=2, uplink_bps=1e6, downlink_bps=1e7, edge_uplink_bps=[1e6, 1e9], edge_downlink_bps=1e9
    )
    assert red(tree.draw()) == ["1 Mbit/s"]  # edge0's link up; behind edge1 the clients' own links are full
    assert red(topologies.star(3, uplink_bps=2e6, downlink_bps=1e9).draw()) == ["2 Mbit/s"] * 3
    assert red(topologies.star(3).draw()) == []


def test_a_picture_shows_the_gossip_over_the_network_and_marks_what_its_messages_fill():
    tree = topologies.tree(4, edges=2, uplink_bps=1e6, downlink_bps=1e6, edge_uplink_bps=1e5, edge_downlink_bps=1e9)
    across = nx.Graph([(0, 2), (1, 3)])
    figure = tree.draw(gossip=across)
    assert red(figure) == ["100 kbit/s"] * 2
    words = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert words == ["clients", "edge servers", "server", "gossip", "full when all transmit"]
    file = io.BytesIO()
    figure.savefig(file, dpi=20)
    assert file.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_can_be_drawn_with_and_without_bandwidths(name):
    for network in (SHAPES[name][0](), SHAPES[name][0](bandwidth_bps=1e6, server=0)):
        assert network.draw().axes[0].get_title() == network.describe()


def test_a_gossip_graph_is_drawn_alone():
    figure = fs.network.draw_gossip(nx.cycle_graph(6))
    assert figure.axes[0].get_title() == "gossip, 6 sites, 6 edges"


@pytest.mark.parametrize("graph, words", [(7, "gossip=int"), (nx.path_graph(["a", "b"]), "are not the client numbers")])
def test_a_gossip_graph_of_other_nodes_is_refused(graph, words):
    with pytest.raises(InvalidInput, match=words):
        topologies.ring(2, server=None).draw(gossip=graph)
