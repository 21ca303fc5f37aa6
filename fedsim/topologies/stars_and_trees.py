"""A star of columns instead of a graph, so that a million clients cost a few megabytes.

Networks around a server: a tree with edge servers, and one channel for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.network import SKETCHED, Network, Paths
from fedsim.network.routes import ends_of
from fedsim.network.varying import Varying
from fedsim.topologies.numbers import Bandwidths, Numbers, bandwidths_of, column_of, count_of, nodes_for, rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def star(
    clients: int,
    uplink_bps: Bandwidths = math.inf,
    downlink_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
) -> Star:
    """One direct link from every client to the server, full duplex."""
    return Star(clients, uplink_bps=uplink_bps, downlink_bps=downlink_bps, latency_s=latency_s, loss=loss)


@dataclass(frozen=True, eq=False)
class Star:
    """What `star` makes; it answers as a `Network` does."""

    clients: int
    uplink_bps: Bandwidths = math.inf
    downlink_bps: Bandwidths = math.inf
    latency_s: Numbers = 0.0
    loss: Numbers = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", count_of("star", "clients", self.clients))
        varying: dict[int, Varying] = {}
        for name, first in (("uplink_bps", 0), ("downlink_bps", self.clients)):
            column, own = bandwidths_of("star", name, getattr(self, name), self.clients)
            object.__setattr__(self, f"_{name}", column)
            varying |= {first + c: bandwidth for c, bandwidth in own.items()}
            kept = tuple(own.get(c, bps) for c, bps in enumerate(column.tolist())) if own and column.ndim else column
            if not isinstance(getattr(self, name), Varying):
                object.__setattr__(self, name, kept if not isinstance(kept, np.ndarray) or kept.ndim else float(kept))
        object.__setattr__(self, "_varying", varying)
        for name in ("latency_s", "loss"):
            column = column_of("star", name, getattr(self, name), self.clients)
            object.__setattr__(self, name, column if column.ndim else float(column))

    contended = False  # nobody shares a link
    has_server, server, edge_nodes = True, "server", ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The clients' nodes."""
        return tuple(f"client{c}" for c in range(self.clients))

    def paths(self, pairs: Iterable[tuple[Any, Any]]) -> Paths:
        """The routes between pairs of nodes, see `Network.paths`: a message between two clients passes the server."""
        places = {"server": -1} | {name: c for c, name in enumerate(self.nodes)}
        ends = np.array(ends_of(pairs, places), np.int64).reshape(-1, 2)
        sender, receiver = ends.T
        legs = (ends >= 0) & (sender != receiver)[:, None]  # (pairs, 2) whether it goes up, and down
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
        """A star has no edge servers, and says so."""
        return Network(self.graph).groups()

    def client_graph(self) -> Any:
        """The links between clients: none."""
        return Network(self.graph).client_graph()

    def sketch(self, passing: Array | None = None) -> dict[str, Any] | None:
        """Its nodes and links in plain data, see `Network.sketch`."""
        if self.clients > SKETCHED:
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
        """A picture, see `Network.draw`."""
        return Network(self.graph).draw(ax, gossip)

    def delay_s(self, upward: bool) -> Array:
        """Each client's latency, the same both ways."""
        return np.broadcast_to(self.latency_s, self.clients)

    @property
    def varying(self) -> dict[int, Varying]:
        """The links whose bandwidth varies, by number."""
        found: dict[int, Varying] = self.__dict__["_varying"]
        return found

    def bottleneck_bps(self, upward: bool) -> Array:
        """Each client's bandwidth, its mean where it varies."""
        return np.broadcast_to(self.__dict__["_uplink_bps" if upward else "_downlink_bps"], self.clients)

    def loss_factor(self, upward: bool) -> Array:
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
            up_c, down_c = self.varying.get(c, float(up[c])), self.varying.get(self.clients + c, float(down[c]))
            graph.add_edge(f"client{c}", "server", bandwidth_bps=up_c, **shape)
            graph.add_edge("server", f"client{c}", bandwidth_bps=down_c, **shape)
        return graph


def tree(
    clients: int,
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
    """Clients in equal blocks behind edge servers, which have links to the server with numbers of their own.

    The edge servers' nodes have role="edge"; `network.groups()` says which client is behind which.
    """
    import networkx

    clients, edges = nodes_for("tree", clients), count_of("tree", "edges", edges)
    if edges > clients:
        raise InvalidInput(f"tree(edges={edges}): only {clients} clients exist; ask for at most {clients} edges")
    graph = networkx.DiGraph(name="tree")
    graph.add_node("server", role="server")
    near = {"uplink_bps": uplink_bps, "downlink_bps": downlink_bps, "latency_s": latency_s, "loss": loss}
    far = {
        "edge_uplink_bps": edge_uplink_bps, "edge_downlink_bps": edge_downlink_bps,
        "edge_latency_s": edge_latency_s, "edge_loss": edge_loss,
    }  # fmt: skip
    for e, (up, down, latency, lost) in enumerate(rows_of("tree", far, edges)):
        graph.add_node(f"edge{e}", role="edge")
        graph.add_edge(f"edge{e}", "server", bandwidth_bps=up, latency_s=latency, loss=lost)
        graph.add_edge("server", f"edge{e}", bandwidth_bps=down, latency_s=latency, loss=lost)
    for c, (up, down, latency, lost) in enumerate(rows_of("tree", near, clients)):
        edge = f"edge{c * edges // clients}"
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", edge, bandwidth_bps=up, latency_s=latency, loss=lost)
        graph.add_edge(edge, f"client{c}", bandwidth_bps=down, latency_s=latency, loss=lost)
    return Network(graph)


def multiple_access(clients: int, capacity_bps: float, latency_s: Numbers = 0.0, loss: Numbers = 0.0) -> Network:
    """One channel that everybody shares in both directions: the papers' multiple-access channel."""
    import networkx

    clients = nodes_for("multiple_access", clients)
    capacity = column_of("multiple_access", "capacity_bps", capacity_bps, clients)
    if capacity.ndim:
        raise InvalidInput("multiple_access(capacity_bps=...): the channel is one link; give one number for all")
    graph = networkx.DiGraph(name="multiple access")
    graph.add_node("server", role="server")
    graph.add_edge("channel", "air", bandwidth_bps=float(capacity), latency_s=0.0)  # all that anybody sends
    graph.add_edge("server", "channel", bandwidth_bps=math.inf, latency_s=0.0)
    graph.add_edge("air", "server", bandwidth_bps=math.inf, latency_s=0.0)
    for c, (latency, lost) in enumerate(rows_of("multiple_access", {"latency_s": latency_s, "loss": loss}, clients)):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", "channel", bandwidth_bps=math.inf, latency_s=latency, loss=lost)
        graph.add_edge("air", f"client{c}", bandwidth_bps=math.inf, latency_s=latency, loss=lost)
    return Network(graph)
