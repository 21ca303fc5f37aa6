"""Networks around a server: a star, a tree with edge servers, and one channel for all.

A star has columns instead of a graph, so that a million clients take a few megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.network import Network
from fedsim.network.attributes import (
    Bandwidths,
    Numbers,
    bandwidth_column,
    check_count,
    check_nodes,
    link_rows,
    number_column,
)
from fedsim.network.drawing import MAX_SKETCH_LINKS
from fedsim.network.routes import Paths, ends_of
from fedsim.network.varying import Varying

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def star(
    clients: int,
    *,
    uplink_bps: Bandwidths = math.inf,
    downlink_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
) -> Star:
    """Return one direct full-duplex link from every client to the server."""
    return Star(clients, uplink_bps=uplink_bps, downlink_bps=downlink_bps, latency_s=latency_s, loss=loss)


@dataclass(frozen=True, eq=False)
class Star:
    """A star of links, with the members of a `Network`."""

    clients: int
    _: KW_ONLY
    uplink_bps: Bandwidths = math.inf
    downlink_bps: Bandwidths = math.inf
    latency_s: Numbers = 0.0
    loss: Numbers = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", check_count("star", "clients", self.clients))
        varying: dict[int, Varying] = {}
        for name, first in (("uplink_bps", 0), ("downlink_bps", self.clients)):
            column, varies = bandwidth_column("star", name, getattr(self, name), self.clients)
            object.__setattr__(self, f"_{name}", column)
            varying |= {first + c: bandwidth for c, bandwidth in varies.items()}
            each = (
                tuple(varies.get(c, bps) for c, bps in enumerate(column.tolist())) if varies and column.ndim else column
            )
            if not isinstance(getattr(self, name), Varying):
                object.__setattr__(self, name, each if not isinstance(each, np.ndarray) or each.ndim else float(each))
        object.__setattr__(self, "_varying", varying)
        for name in ("latency_s", "loss"):
            column = number_column("star", name, getattr(self, name), self.clients)
            object.__setattr__(self, name, column if column.ndim else float(column))

    contended = False  # no two clients share a link
    has_server, server, edge_nodes = True, "server", ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The clients' nodes."""
        return tuple(f"client{c}" for c in range(self.clients))

    def paths(self, pairs: Iterable[tuple[Any, Any]]) -> Paths:
        """Return the routes between pairs of nodes, as `Network.paths`; messages between clients pass the server."""
        places = {"server": -1} | {name: c for c, name in enumerate(self.nodes)}
        ends = np.array(ends_of(pairs, places), np.int64).reshape(-1, 2)
        sender, receiver = ends.T
        legs = (ends >= 0) & (sender != receiver)[:, None]  # (pairs, 2): uplinks and downlinks in use
        bps = np.stack([self.bottleneck_bps(True)[sender], self.bottleneck_bps(False)[receiver]], axis=1)
        real = legs & np.isfinite(bps)
        return Paths(
            links=np.stack([sender, self.clients + receiver], axis=1)[real],
            starts=np.concatenate([[0], np.cumsum(real.sum(axis=1))]),
            latency_s=np.where(legs, self.delay_s(True)[ends], 0.0).sum(axis=1),
            bottleneck_bps=np.where(legs, bps, math.inf).min(axis=1),
            loss_factor=np.where(legs, self.loss_factor(True)[ends], 1.0).prod(axis=1),
        )

    def groups(self) -> tuple[Any, ...]:
        """Refuse: a star has no edge servers."""
        return Network(self.graph).groups()

    def client_graph(self) -> Any:
        """Return the links between clients: none."""
        return Network(self.graph).client_graph()

    def sketch(self, passing: Array | None = None) -> dict[str, Any] | None:
        """Return its nodes and links as plain data, as `Network.sketch`."""
        if self.clients > MAX_SKETCH_LINKS:
            return None
        counts = [1] * self.clients
        if passing is not None:
            counts = np.maximum(passing[: self.clients], passing[self.clients :]).tolist()
        slower = np.minimum(self.bottleneck_bps(True), self.bottleneck_bps(False)).tolist()
        return {
            "title": self.describe(),
            "nodes": [["server", "server"], *([node, "client"] for node in self.nodes)],
            "links": [[c + 1, 0, bps, count] for c, (bps, count) in enumerate(zip(slower, counts, strict=True))],
        }

    def draw(self, ax: Axes | None = None, gossip: object = None) -> Figure:
        """Return a picture, as `Network.draw`."""
        return Network(self.graph).draw(ax, gossip)

    def delay_s(self, upward: bool) -> Array:
        """Return each client's latency, the same in both directions."""
        return np.broadcast_to(self.latency_s, self.clients)

    @property
    def varying(self) -> dict[int, Varying]:
        """The links whose bandwidth varies, by number."""
        found: dict[int, Varying] = self.__dict__["_varying"]
        return found

    def bottleneck_bps(self, upward: bool) -> Array:
        """Return each client's bandwidth, its mean where it varies."""
        return np.broadcast_to(self.__dict__["_uplink_bps" if upward else "_downlink_bps"], self.clients)

    def loss_factor(self, upward: bool) -> Array:
        """Return the factor by which loss lengthens each client's transfers."""
        return np.broadcast_to(1.0 / (1.0 - np.asarray(self.loss)), self.clients)

    @property
    def capacities_bps(self) -> Array:
        """The bandwidths of all uplinks, then of all downlinks."""
        return np.concatenate([self.bottleneck_bps(True), self.bottleneck_bps(False)])

    @property
    def link_names(self) -> tuple[str, ...]:
        names = [f"client{c}" for c in range(self.clients)]
        return (*(f"{name}-server" for name in names), *(f"server-{name}" for name in names))

    def route(self, client: int, upward: bool) -> Array:
        """Return the one link that a transfer uses."""
        return np.array([client if upward else self.clients + client])

    def describe(self) -> str:
        return f"star, {self.clients:,} link{'s' * (self.clients != 1)}"

    @property
    def graph(self) -> Any:
        """The same network as a networkx graph, made on every access."""
        import networkx

        graph = networkx.DiGraph(name="star")
        graph.add_node("server", role="server")
        delay, loss = self.delay_s(True), np.broadcast_to(self.loss, self.clients)
        up, down = self.bottleneck_bps(True), self.bottleneck_bps(False)
        for c in range(self.clients):
            graph.add_node(f"client{c}", client=c)
            shape = {"latency_s": float(delay[c]), "loss": float(loss[c])}
            up_c, down_c = self.varying.get(c, float(up[c])), self.varying.get(self.clients + c, float(down[c]))
            graph.add_edge(f"client{c}", "server", bandwidth_bps=up_c, **shape)
            graph.add_edge("server", f"client{c}", bandwidth_bps=down_c, **shape)
        return graph


def tree(
    clients: int,
    *,
    edges: int,
    uplink_bps: Bandwidths = math.inf,
    downlink_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    edge_uplink_bps: Bandwidths = math.inf,
    edge_downlink_bps: Bandwidths = math.inf,
    edge_latency_s: Numbers = 0.0,
    edge_loss: Numbers = 0.0,
) -> Network:
    """Return clients in equal blocks behind edge servers, which have their own links to the server.

    The edge servers' nodes have role="edge"; `network.groups()` returns the edge server of every client.
    """
    import networkx

    clients, edges = check_nodes("tree", clients), check_count("tree", "edges", edges)
    if edges > clients:
        raise InvalidInput(f"tree(edges={edges}): only {clients} clients exist; use at most {clients} edges")
    graph = networkx.DiGraph(name="tree")
    graph.add_node("server", role="server")
    client_links = {"uplink_bps": uplink_bps, "downlink_bps": downlink_bps, "latency_s": latency_s, "loss": loss}
    edge_links = {
        "edge_uplink_bps": edge_uplink_bps, "edge_downlink_bps": edge_downlink_bps,
        "edge_latency_s": edge_latency_s, "edge_loss": edge_loss,
    }  # fmt: skip
    for e, (up, down, latency, lost) in enumerate(link_rows("tree", edge_links, edges)):
        graph.add_node(f"edge{e}", role="edge")
        graph.add_edge(f"edge{e}", "server", bandwidth_bps=up, latency_s=latency, loss=lost)
        graph.add_edge("server", f"edge{e}", bandwidth_bps=down, latency_s=latency, loss=lost)
    for c, (up, down, latency, lost) in enumerate(link_rows("tree", client_links, clients)):
        edge = f"edge{c * edges // clients}"
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", edge, bandwidth_bps=up, latency_s=latency, loss=lost)
        graph.add_edge(edge, f"client{c}", bandwidth_bps=down, latency_s=latency, loss=lost)
    return Network(graph)


def multiple_access(clients: int, *, capacity_bps: float, latency_s: Numbers = 0.0, loss: Numbers = 0.0) -> Network:
    """Return one channel that all clients share in both directions: the papers' multiple-access channel."""
    import networkx

    clients = check_nodes("multiple_access", clients)
    capacity = number_column("multiple_access", "capacity_bps", capacity_bps, clients)
    if capacity.ndim:
        raise InvalidInput("multiple_access(capacity_bps=...): the channel is one link; give one number for all")
    graph = networkx.DiGraph(name="multiple access")
    graph.add_node("server", role="server")
    graph.add_edge("channel", "air", bandwidth_bps=float(capacity), latency_s=0.0)  # the only link with a capacity
    graph.add_edge("server", "channel", bandwidth_bps=math.inf, latency_s=0.0)
    graph.add_edge("air", "server", bandwidth_bps=math.inf, latency_s=0.0)
    for c, (latency, lost) in enumerate(link_rows("multiple_access", {"latency_s": latency_s, "loss": loss}, clients)):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", "channel", bandwidth_bps=math.inf, latency_s=latency, loss=lost)
        graph.add_edge("air", f"client{c}", bandwidth_bps=math.inf, latency_s=latency, loss=lost)
    return Network(graph)
