"""A checked networkx graph: links with bandwidth, latency and loss, and everybody's way to the server.

What the engine asks of a network, so that anyone's class may stand in for `Network`:

    clients                  how many there are
    delay_s(upward)          per client, the latency of its route to the server (upward) or back
    loss_factor(upward)          per client, by how much loss lengthens a transfer: 1 / prod(1 - loss)
    bottleneck_bps(upward)   per client, the least capacity on its route
    contended                whether two transfers can meet on a link; if not, nothing below is needed
    capacities_bps           of every link, in one direction (a shared link: in both)
    varying                  {link: Varying} of those whose bandwidth changes in time; capacities_bps has their means
    route(client, upward)    the numbers of the links that a transfer uses
    describe()               one line for people

and, where models live at several sites, so that messages go between other nodes than a client and the server:

    has_server               whether there is one; if not, nothing above but clients and capacities_bps is asked
    nodes, server            the clients' nodes, client 0 first, and the server's
    edge_nodes               the nodes of edge servers
    paths(pairs)             the routes between pairs of nodes, over the same links: `Paths`, a row a pair
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.network.drawing import SKETCHED, draw_gossip, rate, sketch
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

__all__ = ["SKETCHED", "Flows", "Network", "Paths", "Varying", "draw_gossip", "finish_times"]


@dataclass(frozen=True, init=False, eq=False)
class Network:
    """The network that a graph describes.

    `bandwidth_bps`, `latency_s`, `loss` and `shared` name edge attributes or are functions (u, v, data) ->
    value; loss and shared may be missing and are then 0 and False, a bandwidth is a number or a `Varying`.
    `server` is a node and `clients` lists the clients' nodes, client 0 first; without them the server is the node
    with role="server" and client c the one with client=c; where messages go between clients alone, there may be no
    server. Edge servers are the nodes with role="edge". All other nodes are relays. In a Graph every edge is full
    duplex, each direction with the whole bandwidth; a DiGraph tells the directions apart. An edge with shared=True
    has one bandwidth for both. Routes have the least latency, then the fewest links, then the first nodes in the
    graph's order; `routes` gives some clients another one, {client: [its node, ..., the server]}, which is also
    taken on the way back.
    """

    name: str = field(init=False)
    clients: int = field(init=False)
    server: Any = field(init=False)  # None: there is none
    nodes: tuple[Any, ...] = field(init=False, repr=False)  # of client 0, 1, ...
    edge_nodes: tuple[Any, ...] = field(init=False, repr=False)  # of edge servers, in the graph's order
    edges: int = field(init=False)  # pairs of nodes, whichever way they are connected
    capacities_bps: Array = field(init=False, repr=False)  # their means where they vary
    varying: dict[int, Varying] = field(init=False, repr=False)  # by link
    link_names: tuple[str, ...] = field(init=False, repr=False)
    contended: bool = field(init=False)  # of clients and the server; see `Paths.contended` for other messages
    up: Paths | None = field(init=False, repr=False)  # None: there is no server
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
        """The graph it was made from."""
        return self.__dict__["_graph"]

    @property
    def has_server(self) -> bool:
        return self.server is not None

    def paths(self, pairs: Iterable[tuple[Any, Any]]) -> Paths:
        """The routes of messages between pairs of nodes, [(from, to), ...]: row i is pair i's.

        `nodes[c]` is client c's node, `server` the server's, `edge_nodes` are those of edge servers. A row has the
        latency, the bottleneck and the stretch by loss of its route, and `paths.route(i)` are the numbers of its
        links in `capacities_bps`, the same numbers that `route(client, upward)` uses: put all flows into one `Flows`
        and they share max-min fairly, whoever they are between. From a node to itself there is no link and no
        latency. A pair of a client and the server has that client's own route.
        """
        numbers = {node: c for c, node in enumerate(self.nodes)}
        own: dict[int, list[Any]] = self.__dict__["_own"]
        router: Router = self.__dict__["_router"]
        return router.between(pairs, self.server, numbers, own)

    def groups(self) -> tuple[Any, ...]:
        """Every client's edge server: the first node with role="edge" on its route to the server, for `tiers`."""
        self._ways(True)
        if not self.edge_nodes:
            raise InvalidInput("the network has no edge servers: give their nodes role='edge'")
        edges, numbers = set(self.edge_nodes), {node: c for c, node in enumerate(self.nodes)}
        router: Router = self.__dict__["_router"]
        found = []
        for c, stops in enumerate(router.stops(numbers, self.server, self.__dict__["_own"])):
            if not (passed := [node for node in stops if node in edges]):
                raise InvalidInput(
                    f"client {c} passes no edge server on its way to the server: give a node there role='edge', or "
                    "write the groups yourself"
                )
            found.append(passed[0])
        return tuple(found)

    def client_graph(self) -> Any:
        """The links between clients as a networkx graph of client numbers, for `gossip`."""
        import networkx

        numbers = {node: c for c, node in enumerate(self.nodes)}
        graph = networkx.Graph(name=self.name)
        graph.add_nodes_from(range(self.clients))
        for u, v in self.graph.edges:
            if u in numbers and v in numbers and self.graph.has_edge(v, u):
                graph.add_edge(numbers[u], numbers[v])
        return graph

    def draw(self, ax: Axes | None = None, gossip: object = None) -> Figure:
        """A picture, with the links marked that hold everybody up when all transmit at once.

        `gossip`, a graph of client numbers, is drawn over it, and then its messages are what is transmitted.
        """
        from fedsim.network.drawing import draw_network

        return draw_network(self, ax, gossip)

    def route(self, client: int, upward: bool) -> Array:
        """The links between a client and the server, in the order of travel."""
        return self._ways(upward).route(client)

    def to_columns(self) -> RouteColumns:
        """Return all routes."""
        down, up = self._ways(False), self._ways(True)
        return RouteColumns(self.capacities_bps, down.links, down.starts, up.links, up.starts)

    def delay_s(self, upward: bool) -> Array:
        """Each client's latency on the way to the server, or back."""
        return self._ways(upward).latency_s

    def bottleneck_bps(self, upward: bool) -> Array:
        """The least bandwidth on each client's route."""
        return self._ways(upward).bottleneck_bps

    def loss_factor(self, upward: bool) -> Array:
        """By how much loss lengthens each client's transfers."""
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
        """How many clients' transfers pass each link in the busier direction; none where there is no server."""
        if not self.has_server:
            return np.zeros(len(self.link_names), np.int64)
        return np.maximum(self._passing(True), self._passing(False))

    def _passing(self, upward: bool) -> Array:
        return np.bincount(self._ways(upward).links, minlength=len(self.link_names))

    def sketch(self, passing: Array | None = None) -> dict[str, Any] | None:
        """Its nodes and links in plain data, for the manifest; None where there are too many to draw.

        `passing` are the transfers of an exchange that pass each link; None: all clients and the server.
        """
        return sketch(self, passing)

    def describe(self, passing: Array | None = None) -> str:
        """Its size, and the link that leaves least to a transfer if all transmit at once; `passing` as in `sketch`."""
        head = f"{self.name}, " * bool(self.name) + f"{self.edges:,} link{'s' * (self.edges != 1)}"
        if passing is None and not self.has_server:
            return f"{head}; no server"
        up, users = (self._passing(True), self.users()) if passing is None else (passing, passing)
        if not users.any():
            return f"{head}; all ideal"
        share = np.where(users > 0, self.capacities_bps / np.maximum(users, 1), np.inf)
        worst = np.lexsort((up == 0, share))[0]  # of the two directions, the one up
        sharing = int(users[worst])
        who = f"{sharing:,} {'client' if passing is None else 'transfer'}{'s' * (sharing != 1)}"
        return f"{head}; bottleneck {self.link_names[worst]} {rate(self.capacities_bps[worst])}, {who}"
