"""Reading of a networkx graph or a GraphML file: the server, the clients, and the attributes of the edges."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_float, call_function, check_path
from fedsim.errors import InvalidInput
from fedsim.network.attributes import rule_of
from fedsim.network.varying import Varying
from fedsim.text import short_repr, short_str

if TYPE_CHECKING:
    import networkx as nx

Attribute = str | Callable[[Any, Any, Mapping[str, Any]], Any]
DEFAULTS: dict[str, Any] = {"bandwidth_bps": None, "latency_s": None, "loss": 0.0, "shared": False}
MAX_FILE_BYTES = 64 * 2**20
MAX_DEPTH = 64  # of elements in a GraphML file


def server_of(graph: nx.Graph, server: Hashable) -> Any:
    """Return the server's node; None if there is none, which gossip allows."""
    if server is not None:
        return known_node(graph, server, "the server")
    named = nodes_with_role(graph, "server")
    if len(named) > 1:
        raise InvalidInput(
            f"one node may have role='server', found {len(named)} ({_some(named)}): mark one, or name it with server="
        )
    return named[0] if named else None


def nodes_with_role(graph: nx.Graph, role: str) -> list[Any]:
    return [node for node, found in graph.nodes(data="role") if isinstance(found, str) and found == role]


def clients_of(graph: nx.Graph, clients: Sequence[Any] | None) -> dict[Any, int]:
    """Return the clients' numbers by node, in order."""
    if clients is None:
        named = [(node, number) for node, number in graph.nodes(data="client") if number is not None]
    else:
        if isinstance(clients, str | bytes) or not isinstance(clients, Iterable):
            raise InvalidInput(f"clients={short_repr(clients)}: list the clients' nodes, client 0 first")
        named = [(known_node(graph, node, f"client {c}"), c) for c, node in enumerate(clients)]
    nodes: dict[int, Any] = {}
    numbers: dict[Any, int] = {}
    for node, number in named:
        if not isinstance(number, Integral) or isinstance(number, bool) or number < 0:
            raise InvalidInput(
                f"node {short_repr(node)} has client={short_repr(number)}: number the clients 0, 1, 2, ..."
            )
        if number in nodes:
            raise InvalidInput(
                f"nodes {short_repr(nodes[int(number)])} and {short_repr(node)} are both client {number}: renumber one"
            )
        if node in numbers:
            raise InvalidInput(
                f"node {short_repr(node)} is client {numbers[node]} and client {number}: list every node once"
            )
        nodes[int(number)], numbers[node] = node, int(number)
    for c in range(len(nodes)):
        if c not in nodes:
            raise InvalidInput(f"no node has client={c} among {len(nodes)} clients: number them 0, 1, 2, ...")
    if not nodes:
        raise InvalidInput("the network has no clients: give nodes client=0, 1, 2, ..., or list them with clients=")
    return {nodes[c]: c for c in range(len(nodes))}


def known_node(graph: nx.Graph, node: Hashable, what: str) -> Any:
    """Return the node if the graph has it."""
    try:
        known = node in graph
    except TypeError:
        known = False
    if not known:
        raise InvalidInput(f"{what} {short_repr(node)} is not a node of the graph: name one of {_some(graph)}")
    return node


def _some(items: Iterable[Any]) -> str:
    names = [short_repr(item, 40) for item in items]
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


@dataclass(frozen=True)
class Arcs:
    """All edges, once for each direction in which messages can use them."""

    tail: Array  # node numbers, in the graph's order
    head: Array
    bandwidth_bps: Array
    latency_s: Array
    loss: Array
    link: Array  # its number, -1: ideal; an edge that is shared is one link
    between: dict[tuple[Any, Any], int]
    capacities_bps: Array  # by link, its mean where it varies
    varying: dict[int, Varying]  # by link, where it does
    names: tuple[str, ...]


def arcs_of(graph: nx.Graph, *attributes: Attribute) -> Arcs:
    for name, attribute in zip(DEFAULTS, attributes, strict=True):
        if isinstance(attribute, type) or not (callable(attribute) or isinstance(attribute, str)):
            raise InvalidInput(
                f"{name}={short_repr(attribute)}: name an edge attribute, or give a function of (u, v, data)"
            )
    for name, attribute in zip(("loss", "shared"), attributes[2:], strict=True):
        optional = callable(attribute) or attribute == name or not graph.edges
        if not optional and not any(attribute in data for _, _, data in graph.edges(data=True)):
            raise InvalidInput(f"{name}={short_repr(attribute)}: no edge has that attribute; name one that edges have")
    index = {node: i for i, node in enumerate(graph)}
    between: dict[tuple[Any, Any], int] = {}
    names: list[str] = []
    capacities: list[float] = []
    varying: dict[int, Varying] = {}
    given: dict[tuple[Any, Any], Any] = {}  # bandwidths
    rows: list[tuple[Any, ...]] = []
    for u, v, data in graph.edges(data=True):
        if u == v:
            raise InvalidInput(f"edge {short_repr(u)}-{short_repr(v)} leads back to where it starts: remove it")
        width, latency, loss, shared = _read(u, v, data, attributes)
        bandwidth = width.mean_bps if isinstance(width, Varying) else as_float(width)
        for a, b in ((u, v),) if graph.is_directed() else ((u, v), (v, u)):
            link = rows[between[b, a]][5] if shared and (b, a) in between else len(names)
            if bandwidth == math.inf:
                link = -1
            elif link == len(names):
                names.append(f"{short_str(a)}-{short_str(b)}")
                capacities.append(bandwidth)
                if isinstance(width, Varying):
                    varying[link] = width
            between[a, b], given[a, b] = len(rows), width
            rows.append((index[a], index[b], bandwidth, latency, loss, link, shared))
    for (u, v), arc in between.items():
        back = between.get((v, u), -1)
        same = back >= 0 and rows[back][6] and (given[u, v] is given[v, u] or given[u, v] == given[v, u])
        if rows[arc][6] and not same:
            raise InvalidInput(
                f"edge {short_repr(u)}-{short_repr(v)} is shared: the edge {short_repr(v)}-{short_repr(u)} must "
                "also be shared, with the same bandwidth"
            )
    tail, head, bandwidth_bps, latency_s, losses, link_of = np.array(rows, np.float64).reshape(-1, 7).T[:6]
    return Arcs(
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        bandwidth_bps=bandwidth_bps,
        latency_s=latency_s,
        loss=losses,
        link=link_of.astype(np.int64),
        between=between,
        capacities_bps=np.array(capacities, np.float64),
        varying=varying,
        names=tuple(names),
    )


def _read(
    u: Hashable, v: Hashable, data: Mapping[str, Any], attributes: Sequence[Attribute]
) -> tuple[Any, float, float, bool]:
    """Return bandwidth, latency, loss and shared of one edge."""
    values = []
    for (name, default), attribute in zip(DEFAULTS.items(), attributes, strict=True):
        if callable(attribute):
            value = call_function(f"{name}= of edge {short_repr(u)}-{short_repr(v)}", attribute, u, v, data)
        else:
            value = data.get(attribute, default)
        if value is None:
            raise InvalidInput(
                f"edge {short_repr(u)}-{short_repr(v)} has no {short_repr(attribute)}: set it, or name another "
                f"attribute with {name}="
            )
        if remedy := _remedy(name, value):
            raise InvalidInput(f"edge {short_repr(u)}-{short_repr(v)} has {name} {short_repr(value)}: {remedy}")
        values.append(value)
    return values[0], float(values[1]), float(values[2]), bool(values[3])


def _remedy(name: str, value: object) -> str:
    """Return what to do about an invalid value, "" for a valid one."""
    if name == "shared":
        return "" if isinstance(value, (bool, np.bool_)) else "give True or False"
    valid, remedy = rule_of(name)
    varies = name == "bandwidth_bps" and isinstance(value, Varying)
    return "" if varies or valid(as_float(value)) else remedy


def read_graphml(path: str | os.PathLike[str]) -> nx.Graph:
    """Return the graph in a GraphML file, which is not trusted; nodes are named by their ids."""
    import networkx

    path = check_path("from_graphml(path)", path)
    name = short_str(path.name)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read ({error.strerror}): give the path of a GraphML file") from error
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"{name} is larger than {MAX_FILE_BYTES >> 20} MiB: remove all but nodes and links")
    _check_xml(name, data)
    try:
        graph = networkx.read_graphml(io.BytesIO(data))
    except Exception as error:  # networkx raises exceptions of any kind
        raise InvalidInput(
            f"{name} is XML but not a GraphML graph ({short_str(error)}): export it as GraphML again"
        ) from error
    if graph.is_multigraph():
        raise InvalidInput(f"{name} has parallel edges: merge them into one edge each with their bandwidth")
    graph.graph.setdefault("name", name)
    return graph


def _check_xml(name: str, data: bytes) -> None:
    """Refuse XML that is not well-formed, declares entities or nests too deeply."""
    from xml.parsers.expat import ExpatError, ParserCreate

    depth = 0

    def declares(*_: object) -> None:
        raise InvalidInput(f"{name} has a DOCTYPE, which GraphML does not need: remove it")

    def opens(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidInput(f"{name} nests more than {MAX_DEPTH} elements: give a plain GraphML graph")

    def closes(*_: object) -> None:
        nonlocal depth
        depth -= 1

    parser = ParserCreate()
    parser.StartDoctypeDeclHandler = declares
    parser.StartElementHandler, parser.EndElementHandler = opens, closes
    try:
        parser.Parse(data, True)
    except InvalidInput:
        raise
    except (ExpatError, ValueError, LookupError) as error:  # the last two: an unknown encoding
        raise InvalidInput(
            f"{name} is not well-formed XML ({short_str(error)}): give a GraphML file, unpacked"
        ) from error
