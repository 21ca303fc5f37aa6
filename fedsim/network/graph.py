"""Reading a user's networkx graph: who is the server, who are the clients, what the edges can carry."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_float, call_function
from fedsim.errors import InvalidInput
from fedsim.network.varying import SLOWEST_BPS, Varying
from fedsim.text import short_repr, short_str

if TYPE_CHECKING:
    import networkx as nx

Attribute = str | Callable[[Any, Any, Mapping[str, Any]], Any]


def server_of(graph: nx.Graph, server: Hashable) -> Any:
    """The server's node; None where there is none, as sites that gossip need none."""
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
    """The clients' numbers by node, in order."""
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
    """The node itself, if the graph has it."""
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
    """Every edge, once for each direction in which it can be used."""

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
    for name, attribute in zip(_RULES, attributes, strict=True):
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
        alike = back >= 0 and rows[back][6] and (given[u, v] is given[v, u] or given[u, v] == given[v, u])
        if rows[arc][6] and not alike:
            raise InvalidInput(
                f"edge {short_repr(u)}-{short_repr(v)} is shared: the edge {short_repr(v)}-{short_repr(u)} must "
                "be shared, too, "
                "with the same bandwidth"
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
    """Bandwidth, latency, loss and whether it is shared, of one edge."""
    values = []
    for (name, (default, good, right)), attribute in zip(_RULES.items(), attributes, strict=True):
        if callable(attribute):
            value = call_function(f"{name}= of edge {short_repr(u)}-{short_repr(v)}", attribute, u, v, data)
        else:
            value = data.get(attribute, default)
        if value is None:
            raise InvalidInput(
                f"edge {short_repr(u)}-{short_repr(v)} has no {short_repr(attribute)}: set it, or say with {name}= "
                "what it is called"
            )
        if not good(value):
            raise InvalidInput(f"edge {short_repr(u)}-{short_repr(v)} has {name} {short_repr(value)}: {right}")
        values.append(value)
    return values[0], float(values[1]), float(values[2]), bool(values[3])


def _number(value: object) -> float:
    return as_float(value)


_RULES: dict[str, tuple[Any, Callable[[Any], bool], str]] = {
    "bandwidth_bps": (
        None,
        lambda x: isinstance(x, Varying) or _number(x) >= SLOWEST_BPS,
        "give a positive number of bit/s, inf for ideal",
    ),
    "latency_s": (None, lambda x: 0.0 <= _number(x) < math.inf, "give seconds, at least 0"),
    "loss": (0.0, lambda x: 0.0 <= _number(x) < 1.0, "give a share of what is sent, at least 0 and below 1"),
    "shared": (False, lambda x: isinstance(x, (bool, np.bool_)), "give True or False"),
}
