"""The network: a checked networkx graph with bandwidth, latency and loss on its links, and the clients' routes.

A class of your own may replace `Network`. Its members:

    clients                  the number of clients
    delay_s(upward)          per client, the latency of its route to the server (upward) or back
    loss_factor(upward)      per client, the factor by which loss lengthens a transfer: 1 / prod(1 - loss)
    bottleneck_bps(upward)   per client, the least bandwidth on its route
    contended                whether two transfers can share a link; if not, the members below are not needed
    capacities_bps           of every link, in one direction (of a shared link, in both)
    varying                  {link: Varying} of links whose bandwidth varies; capacities_bps has their means
    route(client, upward)    the numbers of the links that a transfer uses
    describe()               one line of text

For tiers and gossip, where messages go between other nodes than a client and the server:

    has_server               whether there is a server; if not, only clients and capacities_bps are used of the above
    nodes, server            the clients' nodes, client 0 first, and the server's
    edge_nodes               the nodes of edge servers
    paths(pairs)             the routes between pairs of nodes over the same links: `Paths`, one row per pair
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.network.drawing import draw_gossip, rate, sketch
from fedsim.network.finishing import finish_times
from fedsim.network.flows import Flows
from fedsim.network.graph import Attribute, arcs_of, clients_of, nodes_with_role, server_of
from fedsim.network.routes import Paths, Router, own_routes
from fedsim.network.varying import Varying
from fedsim.protocols import RouteColumns
from fedsim.text import short_repr

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Flows", "Network", "Varying", "draw_gossip", "finish_times"]


@dataclass(frozen=True, init=False, eq=False)
class Network:
    """The network of a graph.

    graph: a networkx Graph, in which every edge is full duplex, or a DiGraph with one edge per direction.
    server: its node; None: the node with role="server". Gossip needs no server.
    clients: their nodes, client 0 first; None: client c is the node with client=c.
    bandwidth_bps, latency_s, loss, shared: names of edge attributes, or functions (u, v, data) -> value. A bandwidth
        is a number or a `Varying`; loss and shared default to 0 and False. A shared edge has one bandwidth for both
        directions.
    routes: {client: [its node, ..., the server]}, for clients that do not use the default route, in both directions.

    Edge servers are the nodes with role="edge", all other nodes are relays. The default route has the least latency,
    then the fewest links, then the first nodes in the graph's order.
    """

    name: str = field(init=False)
    clients: int = field(init=False)
    server: Any = field(init=False)  # None: there is none
    nodes: tuple[Any, ...] = field(init=False, repr=False)  # of client 0, 1, ...
    edge_nodes: tuple[Any, ...] = field(init=False, repr=False)  # of edge servers, in the graph's order
    edges: int = field(init=False)  # pairs of connected nodes
    capacities_bps: Array = field(init=False, repr=False)  # their means where they vary
    varying: dict[int, Varying] = field(init=False, repr=False)  # by link
    link_names: tuple[str, ...] = field(init=False, repr=False)
    contended: bool = field(init=False)  # of clients and the server; see `Paths.contended` for other messages
    up: Paths | None = field(init=False, repr=False)  # None: no server
    down: Paths | None = field(init=False, repr=False)

    def __init__(
        self,
        graph: nx.Graph,
        server: Hashable | None = None,
        clients: Sequence[Any] | None = None,
        bandwidth_bps: Attribute = "bandwidth_bps",
        latency_s: Attribute = "latency_s",
        loss: Attribute = "loss",
        shared: Attribute = "shared",
        routes: Mapping[Any, Sequence[Any]] | None = None,
    ) -> None:
        if isinstance(graph, type) or not hasattr(graph, "is_multigraph") or graph.is_multigraph():
            kind = type(graph).__name__
            raise InvalidInput(f"the network's graph is a {kind}: give a networkx Graph or DiGraph, one edge per link")
        graph = graph.copy()  # later changes of the caller's graph change nothing
        server = server_of(graph, server)
        numbers = clients_of(graph, clients)
        if server is not None and server in numbers:
            raise InvalidInput(
                f"node {short_repr(server)} is the server and client {numbers[server]}: give it one role"
            )
        arcs = arcs_of(graph, bandwidth_bps, latency_s, loss, shared)
        own = own_routes({} if routes is None else routes, numbers, server, arcs)
        router, up, down, meets = Router(arcs, graph), None, None, False
        if server is not None:
            up, down = (router.of_clients(numbers, server, upward, own) for upward in (True, False))
            meets = bool(np.any(np.bincount(np.concatenate([up.links, down.links])) > 1))
        for name, value in {
            "_graph": graph, "_router": router, "_own": own, "name": str(graph.graph.get("name", "")),
            "clients": len(numbers), "server": server, "nodes": tuple(numbers),
            "edge_nodes": tuple(nodes_with_role(graph, "edge")),
            "edges": len({frozenset(ends) for ends in arcs.between}),
            "capacities_bps": arcs.capacities_bps, "varying": arcs.varying, "link_names": arcs.names,
            "contended": meets, "up": up, "down": down,
        }.items():  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def graph(self) -> Any:
        """The graph that it was made from."""
        return self.__dict__["_graph"]

    @property
    def has_server(self) -> bool:
        return self.server is not None

    def paths(self, pairs: Iterable[tuple[Any, Any]]) -> Paths:
        """Return the routes of messages between pairs of nodes, [(from, to), ...], one row per pair.

        Nodes are those of `nodes`, `server` and `edge_nodes`. A row has the latency, the bottleneck and the loss factor
        of its route, and `paths.route(i)` returns its links as numbers in `capacities_bps`, as `route(client, upward)`
        does. Flows of all pairs in one `Flows` share links max-min fairly. A route from a node to itself has no links
        and no latency. A pair of a client and the server has that client's route.
        """
        numbers = {node: c for c, node in enumerate(self.nodes)}
        own: dict[int, list[Any]] = self.__dict__["_own"]
        router: Router = self.__dict__["_router"]
        return router.between(pairs, self.server, numbers, own)

    def groups(self) -> tuple[Any, ...]:
        """Return every client's edge server, the first node with role="edge" on its route, for `tiers`."""
        self._ways(True)
        if not self.edge_nodes:
            raise InvalidInput("the network has no edge servers: give their nodes role='edge'")
        edges, numbers = set(self.edge_nodes), {node: c for c, node in enumerate(self.nodes)}
        router: Router = self.__dict__["_router"]
        found = []
        for c, stops in enumerate(router.stops(numbers, self.server, self.__dict__["_own"])):
            if not (passed := [node for node in stops if node in edges]):
                raise InvalidInput(
                    f"client {c} has no edge server on its route to the server: give a node there role='edge', or "
                    "set groups="
                )
            found.append(passed[0])
        return tuple(found)

    def client_graph(self) -> Any:
        """Return the links between clients as a networkx graph of client numbers, for `gossip`."""
        import networkx

        numbers = {node: c for c, node in enumerate(self.nodes)}
        graph = networkx.Graph(name=self.name)
        graph.add_nodes_from(range(self.clients))
        for u, v in self.graph.edges:
            if u in numbers and v in numbers and self.graph.has_edge(v, u):
                graph.add_edge(numbers[u], numbers[v])
        return graph

    def draw(self, ax: Axes | None = None, gossip: object = None) -> Figure:
        """Return a picture, with the links marked that are full when all clients transmit at once.

        `gossip`, a graph of client numbers, is drawn over it, and then its messages are transmitted.
        """
        from fedsim.network.drawing import draw_network

        return draw_network(self, ax, gossip)

    def route(self, client: int, upward: bool) -> Array:
        """Return the links between a client and the server, in the order of travel."""
        return self._ways(upward).route(client)

    def to_columns(self) -> RouteColumns:
        """Return all routes."""
        down, up = self._ways(False), self._ways(True)
        return RouteColumns(self.capacities_bps, down.links, down.starts, up.links, up.starts)

    def delay_s(self, upward: bool) -> Array:
        """Return each client's latency to the server, or back."""
        return self._ways(upward).latency_s

    def bottleneck_bps(self, upward: bool) -> Array:
        """Return the least bandwidth on each client's route."""
        return self._ways(upward).bottleneck_bps

    def loss_factor(self, upward: bool) -> Array:
        """Return the factor by which loss lengthens each client's transfers."""
        return self._ways(upward).loss_factor

    def _ways(self, upward: bool) -> Paths:
        paths = self.up if upward else self.down
        if paths is None:
            raise InvalidInput(
                "the network has no server: mark its node with role='server', name it with server=, or let clients "
                "gossip"
            )
        return paths

    def users(self) -> Array:
        """Return the number of clients that use each link in the busier direction; 0 without a server."""
        if not self.has_server:
            return np.zeros(len(self.link_names), np.int64)
        return np.maximum(self._passing(True), self._passing(False))

    def _passing(self, upward: bool) -> Array:
        return np.bincount(self._ways(upward).links, minlength=len(self.link_names))

    def sketch(self, passing: Array | None = None) -> dict[str, Any] | None:
        """Return nodes and links as plain data, for the manifest; None if there are too many to draw.

        `passing` is the number of transfers of an exchange on each link; None: between all clients and the server.
        """
        return sketch(self, passing)

    def describe(self, passing: Array | None = None) -> str:
        """Return its size and its bottleneck when all clients transmit at once; `passing` as in `sketch`."""
        head = f"{self.name}, " * bool(self.name) + f"{self.edges:,} link{'s' * (self.edges != 1)}"
        if passing is None and not self.has_server:
            return f"{head}; no server"
        up, users = (self._passing(True), self.users()) if passing is None else (passing, passing)
        if not users.any():
            return f"{head}; all ideal"
        share = np.where(users > 0, self.capacities_bps / np.maximum(users, 1), np.inf)
        worst = np.lexsort((up == 0, share))[0]  # of two equal directions, upward
        sharing = int(users[worst])
        who = f"{sharing:,} {'client' if passing is None else 'transfer'}{'s' * (sharing != 1)}"
        return f"{head}; bottleneck {self.link_names[worst]} {rate(self.capacities_bps[worst])}, {who}"
