"""Networks by name, so that nobody has to draw a star. Every number is one for all, or one per client.

`star` keeps columns instead of a graph, so that a million clients cost a few megabytes; the others draw a graph
and hand it to `Network`. A client's node is called "client3", an edge server's "edge0", the server's "server".
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import floats_of, path_of, refuse_beyond_memory
from fedsim.errors import InvalidInput, quoted, refusal, shown, whole
from fedsim.network import Network
from fedsim.network.graph import SLOWEST_BPS

__all__ = ["from_graphml", "multiple_access", "ring", "star", "tree"]

Numbers = float | Sequence[float] | Array
LARGEST_FILE = 64 * 2**20  # bytes
MOST = 2**32  # clients, as many as a key of the random numbers tells apart
DRAWN_BYTES = 4000  # a client, its node and its edges in a networkx graph, and the routes that are read off it
DEEPEST_FILE = 64  # elements inside elements


def star(
    clients: int,
    uplink_bps: Numbers = math.inf,
    downlink_bps: Numbers = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
) -> Star:
    """One direct link from every client to the server, full duplex."""
    return Star(clients, uplink_bps, downlink_bps, latency_s, loss)


@dataclass(frozen=True, eq=False)
class Star:
    """What `star` makes; it answers as a `Network` does."""

    clients: int
    uplink_bps: Numbers = math.inf
    downlink_bps: Numbers = math.inf
    latency_s: Numbers = 0.0
    loss: Numbers = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", _count("star", "clients", self.clients))
        for name in ("uplink_bps", "downlink_bps", "latency_s", "loss"):
            column = _column("star", name, getattr(self, name), self.clients)
            object.__setattr__(self, name, column if column.ndim else float(column))

    contended = False  # nobody shares a link

    def delay_s(self, upward: bool) -> Array:
        """Each client's latency, the same both ways."""
        return np.broadcast_to(self.latency_s, self.clients)

    def bottleneck_bps(self, upward: bool) -> Array:
        """Each client's bandwidth."""
        return np.broadcast_to(self.uplink_bps if upward else self.downlink_bps, self.clients)

    def stretch(self, upward: bool) -> Array:
        """By how much loss lengthens each client's transfers."""
        return np.broadcast_to(1.0 / (1.0 - np.asarray(self.loss)), self.clients)

    @property
    def capacities_bps(self) -> Array:
        """Of all links up, then of all links down."""
        return np.concatenate([self.bottleneck_bps(True), self.bottleneck_bps(False)])

    @property
    def link_names(self) -> tuple[str, ...]:
        names = [f"client{c}" for c in range(self.clients)]
        return (*(f"{name}-server" for name in names), *(f"server-{name}" for name in names))

    def route(self, client: int, upward: bool) -> Array:
        """The one link that a transfer uses."""
        return np.array([client if upward else self.clients + client])

    def describe(self) -> str:
        return f"star, {self.clients:,} link{'s' * (self.clients != 1)}"

    @property
    def graph(self) -> Any:
        """The same network as a networkx graph, drawn when asked for."""
        import networkx

        graph = networkx.DiGraph(name="star")
        graph.add_node("server", role="server")
        delay, loss = self.delay_s(True), np.broadcast_to(self.loss, self.clients)
        up, down = self.bottleneck_bps(True), self.bottleneck_bps(False)
        for c in range(self.clients):
            graph.add_node(f"client{c}", client=c)
            shape = {"latency_s": float(delay[c]), "loss": float(loss[c])}
            graph.add_edge(f"client{c}", "server", bandwidth_bps=float(up[c]), **shape)
            graph.add_edge("server", f"client{c}", bandwidth_bps=float(down[c]), **shape)
        return graph


def tree(
    clients: int,
    edges: int,
    uplink_bps: Numbers = math.inf,
    downlink_bps: Numbers = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    edge_uplink_bps: Numbers = math.inf,
    edge_downlink_bps: Numbers = math.inf,
    edge_latency_s: Numbers = 0.0,
    edge_loss: Numbers = 0.0,
) -> Network:
    """Clients in equal blocks behind edge servers, which have links to the server with numbers of their own."""
    import networkx

    clients, edges = _drawn("tree", clients), _count("tree", "edges", edges)
    if edges > clients:
        raise InvalidInput(f"tree(edges={edges}): only {clients} clients exist; ask for at most {clients} edges")
    graph = networkx.DiGraph(name="tree")
    graph.add_node("server", role="server")
    near = {"uplink_bps": uplink_bps, "downlink_bps": downlink_bps, "latency_s": latency_s, "loss": loss}
    far = {
        "edge_uplink_bps": edge_uplink_bps, "edge_downlink_bps": edge_downlink_bps,
        "edge_latency_s": edge_latency_s, "edge_loss": edge_loss,
    }  # fmt: skip
    for e, (up, down, latency, lost) in enumerate(_rows("tree", far, edges)):
        graph.add_edge(f"edge{e}", "server", bandwidth_bps=up, latency_s=latency, loss=lost)
        graph.add_edge("server", f"edge{e}", bandwidth_bps=down, latency_s=latency, loss=lost)
    for c, (up, down, latency, lost) in enumerate(_rows("tree", near, clients)):
        edge = f"edge{c * edges // clients}"
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", edge, bandwidth_bps=up, latency_s=latency, loss=lost)
        graph.add_edge(edge, f"client{c}", bandwidth_bps=down, latency_s=latency, loss=lost)
    return Network(graph)


def ring(clients: int, bandwidth_bps: Numbers = math.inf, latency_s: Numbers = 0.0, loss: Numbers = 0.0) -> Network:
    """Server, client 0, client 1, ... and back to the server.

    Client c's numbers are those of the link that enters it; the link back to the server has the last client's.
    """
    import networkx

    clients = _drawn("ring", clients)
    graph = networkx.Graph(name="ring")
    graph.add_node("server", role="server")
    numbers = {"bandwidth_bps": bandwidth_bps, "latency_s": latency_s, "loss": loss}
    before = "server"
    for c, (bandwidth, latency, lost) in enumerate(_rows("ring", numbers, clients)):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(before, f"client{c}", bandwidth_bps=bandwidth, latency_s=latency, loss=lost)
        before = f"client{c}"
    if clients > 1:
        graph.add_edge(before, "server", bandwidth_bps=bandwidth, latency_s=latency, loss=lost)
    return Network(graph)


def multiple_access(clients: int, capacity_bps: float, latency_s: Numbers = 0.0, loss: Numbers = 0.0) -> Network:
    """One channel that everybody shares in both directions: the papers' multiple-access channel."""
    import networkx

    clients = _drawn("multiple_access", clients)
    capacity = _column("multiple_access", "capacity_bps", capacity_bps, clients)
    if capacity.ndim:
        raise InvalidInput("multiple_access(capacity_bps=...): the channel is one link; give one number for all")
    graph = networkx.Graph(name="multiple access")
    graph.add_node("server", role="server")
    graph.add_edge("channel", "server", bandwidth_bps=float(capacity), latency_s=0.0, shared=True)
    for c, (latency, lost) in enumerate(_rows("multiple_access", {"latency_s": latency_s, "loss": loss}, clients)):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", "channel", bandwidth_bps=math.inf, latency_s=latency, loss=lost)
    return Network(graph)


def from_graphml(path: str | os.PathLike[str], **network_arguments: Any) -> Network:
    """The network in a GraphML file; the arguments are those of `Network`. Nodes are named by their ids."""
    import io

    import networkx

    path = path_of("from_graphml(path)", path)
    name = shown(path.name)
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read ({error.strerror}): give the path of a GraphML file") from error
    if len(data) > LARGEST_FILE:
        raise InvalidInput(f"{name} is larger than {LARGEST_FILE >> 20} MiB: leave out what is not nodes and links")
    _check_xml(name, data)
    try:
        graph = networkx.read_graphml(io.BytesIO(data))
    except Exception as error:  # the reader raises whatever a strange file makes it stumble over
        raise InvalidInput(
            f"{name} is XML but not a GraphML graph ({shown(error)}): export it as GraphML again"
        ) from error
    if graph.is_multigraph():
        raise InvalidInput(f"{name} has parallel edges: merge them into one edge each with their bandwidth")
    graph.graph.setdefault("name", name)
    return Network(graph, **network_arguments)


def _check_xml(name: str, data: bytes) -> None:
    """Refuse XML that is not well-formed, or that can hurt: declared entities, bottomless nesting."""
    from xml.parsers.expat import ExpatError, ParserCreate

    depth = 0

    def declares(*_: Any) -> None:
        raise InvalidInput(f"{name} has a DOCTYPE, which GraphML does not need: remove it")

    def opens(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST_FILE:
            raise InvalidInput(f"{name} nests more than {DEEPEST_FILE} elements: give a plain GraphML graph")

    def closes(*_: Any) -> None:
        nonlocal depth
        depth -= 1

    parser = ParserCreate()
    parser.StartDoctypeDeclHandler = declares
    parser.StartElementHandler, parser.EndElementHandler = opens, closes
    try:
        parser.Parse(data, True)
    except InvalidInput:
        raise
    except (ExpatError, ValueError, LookupError) as error:  # the last two: an encoding that the parser does not know
        raise InvalidInput(f"{name} is not well-formed XML ({shown(error)}): give a GraphML file, unpacked") from error


# --- Numbers ------------------------------------------------------------------------------------------


def _count(maker: str, name: str, value: object) -> int:
    if not isinstance(value, Integral):
        raise refusal(f"{maker}({name}={{!r}})", value, "give a whole number, at least 1")
    return whole(f"{maker}({name}={{!r}})", value, 1, f"give a whole number, at least 1 and below {MOST:,}", MOST - 1)


def _drawn(maker: str, clients: object) -> int:
    """How many clients, of which every one becomes a node of a graph."""
    count = _count(maker, "clients", clients)
    remedy = "ask for fewer clients, or use star(), which draws no graph"
    refuse_beyond_memory(f"{maker}(clients={count:,})", DRAWN_BYTES * count, remedy)
    return count


def _column(maker: str, name: str, value: Numbers, rows: int) -> Array:
    """One number, or a read-only column of one per client."""
    column = floats_of(value)
    if column is None:
        raise InvalidInput(f"{maker}({name}={quoted(value)}): give a number, or one per client")
    if column.shape not in ((), (rows,)):
        raise InvalidInput(f"{maker}({name}=...) has shape {column.shape}: give one number, or {rows} of them")
    if name.endswith("bps"):
        good, right = column >= SLOWEST_BPS, "give positive bit/s, inf for ideal"
    elif name.endswith("loss"):
        good, right = (column >= 0.0) & (column < 1.0), "give a share of what is sent, at least 0 and below 1"
    else:
        good, right = (column >= 0.0) & (column < math.inf), "give seconds, at least 0"
    if not good.all():
        row = int(np.argmin(good))
        where = f"[{row}]" if column.ndim else ""
        raise InvalidInput(f"{maker}({name}{where}={column.flat[row]}): {right}")
    column.flags.writeable = False
    return column


def _rows(maker: str, columns: dict[str, Numbers], rows: int) -> list[tuple[float, ...]]:
    """The columns side by side, one tuple per row."""
    checked = (_column(maker, name, value, rows) for name, value in columns.items())
    return list(zip(*(np.broadcast_to(column, rows).tolist() for column in checked), strict=True))
