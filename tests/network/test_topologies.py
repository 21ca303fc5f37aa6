"""Networks by name, and GraphML files, friendly and hostile."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim import topologies
from fedsim.errors import InvalidInput
from fedsim.network import Network
from fedsim.network.finishing import finish_times

COLUMNS = ("delay_s", "loss_factor", "bottleneck_bps")


def names(network, client, upward):
    return [network.link_names[link] for link in network.route(client, upward)]


# --- Star -----------------------------------------------------------------------------------------------


def test_a_star_is_a_frozen_record_of_its_arguments():
    star = topologies.star(3, uplink_bps=1e6, downlink_bps=[1e7, 2e7, 3e7], latency_s=0.02, loss=0.1)
    assert [field.name for field in dataclasses.fields(star)] == [
        "clients",
        "uplink_bps",
        "downlink_bps",
        "latency_s",
        "loss",
    ]
    assert (star.clients, star.uplink_bps, star.latency_s, star.loss) == (3, 1e6, 0.02, 0.1)
    assert star.downlink_bps.tolist() == [1e7, 2e7, 3e7]
    with pytest.raises(dataclasses.FrozenInstanceError):
        star.loss = 0.0
    with pytest.raises(ValueError, match="read-only"):
        star.downlink_bps[0] = 5.0
    assert dataclasses.replace(star, loss=0.0).loss_factor(True).tolist() == [1.0, 1.0, 1.0]


def test_a_star_does_not_change_when_its_callers_list_does():
    latency = np.array([1.0, 2.0])
    star = topologies.star(2, latency_s=latency)
    latency[0] = 9.0
    assert star.delay_s(True).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "arguments",
    [
        {"uplink_bps": 1e6, "downlink_bps": 1e7, "latency_s": 0.02},
        {"uplink_bps": [1e6, 2e6, 3e6], "latency_s": [0.0, 1.0, 2.0], "loss": [0.0, 0.5, 0.1]},
        {},
    ],
)
def test_a_star_equals_the_network_of_its_graph(arguments):
    star = topologies.star(3, **arguments)
    drawn = Network(star.graph)
    assert star.contended is drawn.contended is False
    for upward in (True, False):
        for column in COLUMNS:
            assert getattr(star, column)(upward).tolist() == getattr(drawn, column)(upward).tolist()
    for c in range(3):
        capacity = [star.capacities_bps[k] for k in star.route(c, True)]
        assert [c for c in capacity if c < math.inf] == [drawn.capacities_bps[k] for k in drawn.route(c, True)]


def test_a_star_names_its_links():
    star = topologies.star(2, uplink_bps=[1.0, 2.0], downlink_bps=3.0)
    assert names(star, 1, True) == ["client1-server"]
    assert names(star, 1, False) == ["server-client1"]
    assert star.capacities_bps.tolist() == [1.0, 2.0, 3.0, 3.0]
    assert star.describe() == "star, 2 links"
    assert topologies.star(1).describe() == "star, 1 link"
    assert topologies.star(5000).describe() == "star, 5,000 links"


def test_a_star_of_a_million_clients_costs_columns_only():
    tracemalloc.start()
    star = topologies.star(1_000_000, uplink_bps=np.full(1_000_000, 1e6), latency_s=0.1)
    answers = [getattr(star, column)(upward)[999_999] for column in COLUMNS for upward in (True, False)]
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answers == [0.1, 0.1, 1.0, 1.0, 1e6, math.inf]
    assert used < 40e6


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"clients": 0}, r"star\(clients=0\): give an integer, at least 1"),
        ({"clients": 2.0}, r"star\(clients=2.0\)"),
        ({"clients": True}, r"star\(clients=True\)"),
        ({"uplink_bps": 0.0}, r"star\(uplink_bps=0.0\): give a positive number of bit/s, inf for ideal"),
        ({"downlink_bps": [1.0, -2.0, 3.0]}, r"star\(downlink_bps\[1\]=-2.0\)"),
        ({"uplink_bps": math.nan}, r"star\(uplink_bps=nan\)"),
        ({"latency_s": -1.0}, r"star\(latency_s=-1.0\): give seconds, at least 0"),
        ({"latency_s": math.inf}, r"star\(latency_s=inf\)"),
        (
            {"loss": [0.0, 0.5, 1.0]},
            r"star\(loss\[2\]=1.0\): give the fraction that is lost, at least 0 and below 1",
        ),
        ({"latency_s": [0.1, 0.2]}, r"star\(latency_s=...\) has shape \(2,\): give one number, or 3 of them"),
        ({"latency_s": "slow"}, r"star\(latency_s='slow'\): give a number, or one per client"),
        ({"latency_s": None}, r"star\(latency_s=nan\)|star\(latency_s=None\)"),
    ],
)
def test_a_star_that_makes_no_sense_is_refused(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        topologies.star(**{"clients": 3, **arguments})


# --- Tree, ring, multiple access -----------------------------------------------------------------------------


def test_a_tree_puts_clients_in_equal_blocks_behind_edges():
    tree = topologies.tree(
        5, edges=2, uplink_bps=[1.0, 2.0, 3.0, 4.0, 5.0], downlink_bps=9.0, latency_s=0.5, loss=0.5,
        edge_uplink_bps=[4.0, 1.5], edge_downlink_bps=8.0, edge_latency_s=[1.0, 2.0],
    )  # fmt: skip
    assert [names(tree, c, True)[1] for c in range(5)] == ["edge0-server"] * 3 + ["edge1-server"] * 2
    assert names(tree, 4, False) == ["server-edge1", "edge1-client4"]
    assert tree.delay_s(True).tolist() == [1.5, 1.5, 1.5, 2.5, 2.5]
    assert tree.bottleneck_bps(True).tolist() == [1.0, 2.0, 3.0, 1.5, 1.5]
    assert tree.bottleneck_bps(False).tolist() == [8.0] * 5
    assert tree.loss_factor(True).tolist() == [2.0] * 5
    assert tree.contended
    assert not topologies.tree(5, edges=2, uplink_bps=1.0).contended
    assert tree.describe() == "tree, 7 links; bottleneck edge1-server 1.5 bit/s, 2 clients"


def test_a_ring_goes_the_shorter_way_round():
    ring = topologies.ring(5, bandwidth_bps=[1.0, 2.0, 3.0, 4.0, 5.0], latency_s=1.0)
    assert names(ring, 1, True) == ["client1-client0", "client0-server"]
    assert names(ring, 3, False) == ["server-client4", "client4-client3"]
    assert ring.delay_s(True).tolist() == [1.0, 2.0, 3.0, 2.0, 1.0]
    assert ring.bottleneck_bps(True).tolist() == [1.0, 1.0, 1.0, 5.0, 5.0]
    assert ring.contended
    assert names(topologies.ring(1, bandwidth_bps=2.0), 0, True) == ["client0-server"]


def test_a_ring_of_clients_and_server_can_be_uneven():
    ring = topologies.ring(3, bandwidth_bps=1.0, latency_s=[9.0, 1.0, 1.0])
    assert names(ring, 0, True) == ["client0-client1", "client1-client2", "client2-server"]


def test_multiple_access_is_one_link_for_all_clients_in_both_directions():
    channel = topologies.multiple_access(3, capacity_bps=9.0, latency_s=[0.0, 1.0, 2.0], loss=0.5)
    routes = [channel.route(c, upward).tolist() for c in range(3) for upward in (True, False)]
    assert routes == [[0]] * 6
    assert channel.capacities_bps.tolist() == [9.0]
    assert channel.delay_s(False).tolist() == [0.0, 1.0, 2.0]
    assert channel.loss_factor(True).tolist() == [2.0] * 3
    assert channel.bottleneck_bps(True).tolist() == [9.0] * 3
    assert channel.contended
    assert topologies.multiple_access(1, capacity_bps=9.0).contended  # its way up meets its way down
    assert finish_times(channel.capacities_bps, routes[:3], 9.0, 0.0).tolist() == [3.0] * 3
    between = channel.paths([("client0", "client2")])  # what clients send each other is on the air as well
    assert between.route(0).tolist() == [0]
    assert between.latency_s.tolist() == [2.0]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: topologies.tree(3, edges=4), r"tree\(edges=4\): only 3 clients exist; use at most 3 edges"),
        (lambda: topologies.tree(3, edges=0), r"tree\(edges=0\)"),
        (
            lambda: topologies.tree(3, edges=2, edge_latency_s=[0.1] * 3),
            r"tree\(edge_latency_s=...\) has shape \(3,\): .* 2 of them",
        ),
        (lambda: topologies.tree(3, edges=2, edge_uplink_bps=-1.0), r"tree\(edge_uplink_bps=-1.0\)"),
        (lambda: topologies.tree(3, edges=2, edge_loss=1.5), r"tree\(edge_loss=1.5\)"),
        (lambda: topologies.ring(2, loss=2.0), r"ring\(loss=2.0\)"),
        (lambda: topologies.ring(0), r"ring\(clients=0\)"),
        (lambda: topologies.multiple_access(2, capacity_bps=0.0), r"multiple_access\(capacity_bps=0.0\)"),
        (
            lambda: topologies.multiple_access(2, capacity_bps=[1.0, 2.0]),
            r"the channel is one link; give one number for all",
        ),
    ],
)
def test_shapes_that_make_no_sense_are_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_the_module_exports_its_factories():
    assert fs.topologies.__all__ == sorted(fs.topologies.__all__)
    assert set(fs.topologies.__all__) == {
        "complete", "erdos_renyi", "from_graph", "from_graphml", "grid", "multiple_access", "random_regular", "ring",
        "small_world", "star", "tree",
    }  # fmt: skip


# --- GraphML ------------------------------------------------------------------------------------------


@pytest.fixture
def metro(tmp_path):
    graph = nx.Graph()
    graph.add_node("core", role="server")
    for c in range(2):
        graph.add_node(f"n{c}", client=c)
        graph.add_edge(f"n{c}", "core", bandwidth_bps=1e6, latency_s=0.01 * (c + 1), shared=c == 1)
    path = tmp_path / "metro.graphml"
    nx.write_graphml(graph, path)
    return path


def test_a_graphml_file_is_a_network_named_after_the_file(metro):
    network = topologies.from_graphml(metro)
    assert network.delay_s(True).tolist() == [0.01, 0.02]
    assert network.contended  # because of the shared edge
    assert network.describe() == "metro.graphml, 2 links; bottleneck n0-core 1 Mbit/s, 1 client"
    assert topologies.from_graphml(str(metro), server="n0", clients=["core", "n1"]).delay_s(True).tolist() == [
        0.01,
        0.03,
    ]


def hostile(tmp_path, text):
    path = tmp_path / "hostile.graphml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


LAUGHS = '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
) + "]><graphml>&j;</graphml>"  # fmt: skip
OUTSIDE = '<!DOCTYPE g [<!ENTITY x SYSTEM "file:///etc/hostname">]><graphml><graph id="&x;"/></graphml>'


@pytest.mark.parametrize(
    "text, words",
    [
        (LAUGHS, "has a DOCTYPE, which GraphML does not need: remove it"),
        (OUTSIDE, "has a DOCTYPE"),
        (OUTSIDE.encode("utf-16"), "has a DOCTYPE"),
        ('<!DOCTYPE g SYSTEM "http://example.org/g.dtd"><graphml/>', "has a DOCTYPE"),
        ("<graphml><graph>", r"is not well-formed XML \(no element found.*give a GraphML file, unpacked"),
        ("", "is not well-formed XML"),
        ("just text", "is not well-formed XML"),
        (b"\x1f\x8b\x08\x00 packed", "is not well-formed XML"),
        ("<graphml>&j;</graphml>", r"is not well-formed XML \(undefined entity"),
        ("<a>" * 500 + "</a>" * 500, "nests more than 64 elements"),
        ("<svg/>", "is XML but not a GraphML graph"),
        ("<graphml/>", "is XML but not a GraphML graph"),
    ],
)
def test_hostile_and_broken_files_are_refused_in_one_sentence(tmp_path, text, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        topologies.from_graphml(hostile(tmp_path, text))
    assert str(caught.value).startswith("hostile.graphml ")
    assert "\n" not in str(caught.value)


GRAPH = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="edge" attr.name="bandwidth_bps" '
    'attr.type="{kind}"/><graph edgedefault="undirected"><node id="a"/><node id="b"/>'
    '<edge source="a" target="b"><data key="{key}">{value}</data></edge>{more}</graph></graphml>'
)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"kind": "double", "key": "k", "value": "fast"}, "is XML but not a GraphML graph"),
        ({"kind": "tensor", "key": "k", "value": "1"}, "is XML but not a GraphML graph"),
        ({"kind": "double", "key": "nowhere", "value": "1"}, "is XML but not a GraphML graph"),
        ({"kind": "int", "key": "k", "value": "9" * 5000}, "is XML but not a GraphML graph"),
        (
            {"kind": "double", "key": "k", "value": "1", "more": '<edge source="a" target="b"/>'},
            "has parallel edges",
        ),
        ({"kind": "double", "key": "k", "value": "1"}, "edge 'a'-'b' has no 'latency_s'"),
        ({"kind": "double", "key": "k", "value": "NaN"}, "edge 'a'-'b' has bandwidth_bps nan"),
        ({"kind": "string", "key": "k", "value": "1e6"}, "edge 'a'-'b' has bandwidth_bps '1e6'"),
    ],
)
def test_graphml_with_nonsense_in_it_is_refused(tmp_path, change, words):
    path = hostile(tmp_path, GRAPH.format(**{"more": "", **change}))
    with pytest.raises(InvalidInput, match=words) as caught:
        topologies.from_graphml(path, server="a", clients=["b"])
    assert len(str(caught.value)) < 500


def test_files_that_are_missing_or_too_large_are_refused(tmp_path, metro, monkeypatch):
    with pytest.raises(InvalidInput, match=r"none.graphml cannot be read \(No such file"):
        topologies.from_graphml(tmp_path / "none.graphml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        topologies.from_graphml(tmp_path)
    monkeypatch.setattr("fedsim.network.graph.MAX_FILE_BYTES", 100)
    with pytest.raises(InvalidInput, match=r"metro\.graphml is larger than"):
        topologies.from_graphml(metro)
