"""A checked networkx graph: links with bandwidth, latency and loss, and everybody's way to the server.

What the engine asks of a network, so that anyone's class may stand in for `Network`:

    clients                  how many there are
    delay_s(upward)          per client, the latency of its route to the server (upward) or back
    stretch(upward)          per client, by how much loss lengthens a transfer: 1 / prod(1 - loss)
    bottleneck_bps(upward)   per client, the least capacity on its route
    contended                whether two transfers can meet on a link; if not, nothing below is needed
    capacities_bps           of every link, in one direction (a shared link: in both)
    route(client, upward)    the numbers of the links that a transfer uses
    describe()               one line for people
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, quoted
from fedsim.kernels.clock.parts import RouteArrays
from fedsim.network.flows import Flows, finish_times
from fedsim.network.graph import Attribute, arcs_of, clients_of, server_of
from fedsim.network.routes import Paths, own_routes, paths_of

__all__ = ["Flows", "Network", "finish_times"]


@dataclass(frozen=True, init=False, eq=False)
class Network:
    """The network that a graph describes.

    `bandwidth_bps`, `latency_s`, `loss` and `shared` name edge attributes or are functions (u, v, data) ->
    value; loss and shared may be missing and are then 0 and False. `server` is a node and `clients` lists the
    clients' nodes, client 0 first; without them the server is the node with role="server" and client c the one
    with client=c. All other nodes are relays. In a Graph every edge is full duplex, each direction with the
    whole bandwidth; a DiGraph tells the directions apart. An edge with shared=True has one bandwidth for both.
    Routes have the least latency, then the fewest links, then the first nodes in the graph's order; `routes`
    gives some clients another one, {client: [its node, ..., the server]}, which is also taken on the way back.
    """

    name: str = field(init=False)
    clients: int = field(init=False)
    server: Any = field(init=False)
    nodes: tuple[Any, ...] = field(init=False, repr=False)  # of client 0, 1, ...
    edges: int = field(init=False)  # pairs of nodes, whichever way they are connected
    capacities_bps: Array = field(init=False, repr=False)
    link_names: tuple[str, ...] = field(init=False, repr=False)
    contended: bool = field(init=False)
    up: Paths = field(init=False, repr=False)
    down: Paths = field(init=False, repr=False)

    def __init__(
        self,
        graph: Any,
        server: Any = None,
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
        if server in numbers:
            raise InvalidInput(f"node {quoted(server)} is the server and client {numbers[server]}: give it one role")
        arcs = arcs_of(graph, bandwidth_bps, latency_s, loss, shared)
        own = own_routes({} if routes is None else routes, numbers, server, arcs)
        paths = {upward: paths_of(arcs, graph, numbers, server, upward, own) for upward in (True, False)}
        uses = sum(np.bincount(way.links, minlength=len(arcs.names)) for way in paths.values())
        for name, value in {
            "_graph": graph, "name": str(graph.graph.get("name", "")),
            "clients": len(numbers), "server": server, "nodes": tuple(numbers),
            "edges": len({frozenset(ends) for ends in arcs.between}),
            "capacities_bps": arcs.capacities_bps, "link_names": arcs.names,
            "contended": bool(np.any(uses > 1)), "up": paths[True], "down": paths[False],
        }.items():  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def graph(self) -> Any:
        """The graph it was made from."""
        return self.__dict__["_graph"]

    def route(self, client: int, upward: bool) -> Array:
        """The links between a client and the server, in the order of travel."""
        paths = self.up if upward else self.down
        return paths.links[paths.starts[client] : paths.starts[client + 1]]

    def as_arrays(self) -> RouteArrays:
        """Everybody's routes."""
        return RouteArrays(self.capacities_bps, self.down.links, self.down.starts, self.up.links, self.up.starts)

    def delay_s(self, upward: bool) -> Array:
        """Each client's latency on the way to the server, or back."""
        return (self.up if upward else self.down).latency_s

    def bottleneck_bps(self, upward: bool) -> Array:
        """The least bandwidth on each client's route."""
        return (self.up if upward else self.down).bottleneck_bps

    def stretch(self, upward: bool) -> Array:
        """By how much loss lengthens each client's transfers."""
        return (self.up if upward else self.down).stretch

    def describe(self) -> str:
        """Its size, and the link that leaves least to a client if all transmit at once."""
        head = f"{self.name}, " * bool(self.name) + f"{self.edges:,} link{'s' * (self.edges != 1)}"
        up, down = (np.bincount(path.links, minlength=len(self.link_names)) for path in (self.up, self.down))
        users = np.maximum(up, down)
        if not users.any():
            return f"{head}; all ideal"
        share = np.where(users > 0, self.capacities_bps / np.maximum(users, 1), np.inf)
        worst = np.lexsort((up == 0, share))[0]  # of the two directions, the one up
        sharing = int(users[worst])
        who = f"{sharing:,} client{'s' * (sharing != 1)}"
        return f"{head}; bottleneck {self.link_names[worst]} {_rate(self.capacities_bps[worst])}, {who}"


def _rate(bps: float) -> str:
    """A bandwidth for people: 40 Mbit/s."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= size:
            return f"{bps / size:.4g} {unit}"
    return f"{bps:.4g} bit/s"
