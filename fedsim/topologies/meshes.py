"""Networks with links between clients, for gossip, and networks of a user's own graph or GraphML file.

Every number is one for all links, or one per link in the order of the graph's edges. There is no server unless
`server=c` puts one beside client c, on an ideal link. `network.client_graph()` is the graph of client numbers that
`fs.exchanges.gossip` takes; the gossip graph may also be another.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.checks import check_allocation, check_float, check_int
from fedsim.errors import InvalidInput
from fedsim.network import Network
from fedsim.network.attributes import Bandwidths, Numbers, check_count, check_nodes, link_rows
from fedsim.network.graph import read_graphml
from fedsim.text import short_repr

if TYPE_CHECKING:
    import networkx as nx

EDGE_BYTES = 2000  # an edge of a networkx graph, and its routes

TINY = 1e-15  # below it 1 - probability is 1


def ring(
    clients: int,
    *,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | str | None = "member",
) -> Network:
    """Return a ring: server, client 0, client 1, ... and back to the server.

    The numbers of client c are those of the link that enters it; the link back to the server has the last client's.
    With server=None the ring has clients only, and client 0's numbers are those of the link that closes it.
    """
    import networkx

    clients = check_nodes("ring", clients)
    if not (isinstance(server, str) and server == "member"):
        closed = networkx.Graph()
        closed.add_nodes_from(range(clients))
        if clients > 2:
            closed.add_edge(clients - 1, 0)
        closed.add_edges_from((c - 1, c) for c in range(1, clients))
        return _network("ring", closed, bandwidth_bps, latency_s, loss, server)
    graph = networkx.Graph(name="ring")
    graph.add_node("server", role="server")
    numbers: dict[str, Bandwidths] = {"bandwidth_bps": bandwidth_bps, "latency_s": latency_s, "loss": loss}
    before = "server"
    for c, (bandwidth, latency, lost) in enumerate(link_rows("ring", numbers, clients)):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(before, f"client{c}", bandwidth_bps=bandwidth, latency_s=latency, loss=lost)
        before = f"client{c}"
    if clients > 1:
        graph.add_edge(before, "server", bandwidth_bps=bandwidth, latency_s=latency, loss=lost)
    return Network(graph)


def grid(
    rows: int,
    *,
    columns: int,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | None = None,
) -> Network:
    """Return a grid with client r * columns + c in row r and column c, linked to its neighbours in row and column."""
    import networkx

    rows, columns = check_count("grid", "rows", rows), check_count("grid", "columns", columns)
    check_nodes("grid", rows * columns)
    graph = networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(rows, columns), ordering="sorted")
    return _network("grid", graph, bandwidth_bps, latency_s, loss, server)


def complete(
    clients: int,
    *,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | None = None,
) -> Network:
    """Return a network with a link between any two clients."""
    import networkx

    clients = check_nodes("complete", clients)
    size = EDGE_BYTES * clients * clients / 2
    check_allocation(f"complete(clients={clients:,})", size, "ask for fewer clients, or use random_regular()")
    return _network("complete", networkx.complete_graph(clients), bandwidth_bps, latency_s, loss, server)


def random_regular(
    clients: int,
    *,
    degree: int,
    seed: int,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | None = None,
) -> Network:
    """Return a random network in which every client has links to `degree` others."""
    import networkx

    clients, degree = check_nodes("random_regular", clients), check_count("random_regular", "degree", degree)
    if degree >= clients or clients * degree % 2:
        raise InvalidInput(
            f"random_regular(clients={clients}, degree={degree}): give a degree below the number of clients, and one "
            "of the two even"
        )
    draw = networkx.random_regular_graph
    return _drawn("random_regular", draw, (degree, clients), seed, bandwidth_bps, latency_s, loss, server)


def erdos_renyi(
    clients: int,
    *,
    probability: float,
    seed: int,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | None = None,
) -> Network:
    """Return a random network in which any two clients have a link with this probability."""
    import networkx

    clients = check_nodes("erdos_renyi", clients)
    probability = check_float("erdos_renyi(probability={!r})", probability, 0.0, 1.0, "give a probability from 0 to 1")
    size = EDGE_BYTES * probability * clients * clients / 2
    check_allocation(f"erdos_renyi(clients={clients:,})", size, "ask for fewer clients, or for fewer links")
    sparse = TINY < probability < 0.2  # the fast algorithm divides by log(1 - probability)
    draw = networkx.fast_gnp_random_graph if sparse else networkx.gnp_random_graph
    return _drawn("erdos_renyi", draw, (clients, probability), seed, bandwidth_bps, latency_s, loss, server)


def small_world(
    clients: int,
    *,
    neighbours: int,
    rewired: float,
    seed: int,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | None = None,
) -> Network:
    """Return a ring in which clients have links to their nearest `neighbours`, a fraction of them rewired at random.

    Watts and Strogatz, Nature 1998.
    """
    import networkx

    clients, neighbours = check_nodes("small_world", clients), check_count("small_world", "neighbours", neighbours)
    rewired = check_float("small_world(rewired={!r})", rewired, 0.0, 1.0, "give a fraction from 0 to 1")
    if neighbours >= clients or neighbours % 2:
        raise InvalidInput(
            f"small_world(clients={clients}, neighbours={neighbours}): give an even number below that of clients"
        )
    draw, shape = networkx.watts_strogatz_graph, (clients, neighbours, rewired)
    return _drawn("small_world", draw, shape, seed, bandwidth_bps, latency_s, loss, server)


def from_graph(
    graph: nx.Graph,
    *,
    bandwidth_bps: Bandwidths = math.inf,
    latency_s: Numbers = 0.0,
    loss: Numbers = 0.0,
    server: int | None = None,
) -> Network:
    """Return a networkx graph as a network of clients: its nodes in their order, or by number if they are 0, 1, 2, ...

    Edges keep their own `bandwidth_bps`, `latency_s`, `loss` and `shared`; the arguments are for edges without.
    """
    if isinstance(graph, type) or not hasattr(graph, "is_multigraph") or graph.is_multigraph():
        raise InvalidInput(f"from_graph({type(graph).__name__}): give a networkx Graph or DiGraph, one edge per link")
    check_nodes("from_graph", len(graph))
    name = str(graph.graph.get("name", "")) or "graph"
    return _network("from_graph", graph, bandwidth_bps, latency_s, loss, server, name)


def from_graphml(path: str | os.PathLike[str], **network_arguments: Any) -> Network:
    """Return the network in a GraphML file; the arguments are those of `Network`."""
    return Network(read_graphml(path), **network_arguments)


def _drawn(factory: str, draw: Callable[..., Any], shape: tuple[Any, ...], seed: int, *rest: Any) -> Network:
    """Return a random network; a graph that is not connected is refused."""
    import networkx

    seed = check_int(f"{factory}(seed={{!r}})", seed, 0, "give an integer, at least 0", 2**32 - 1)
    graph = draw(*shape, seed=seed)
    if not networkx.is_connected(graph):
        parts = networkx.number_connected_components(graph)
        raise InvalidInput(
            f"{factory}(seed={seed}) is not connected ({parts} parts): ask for more links, or try another seed"
        )
    return _network(factory, graph, *rest)


def _network(
    factory: str,
    graph: nx.Graph,
    bandwidth_bps: Any,
    latency_s: Any,
    loss: Any,
    server: int | str | None,
    name: str = "",
) -> Network:
    """Return a network whose nodes are clients, with these numbers on its links."""
    import networkx

    ordered = sorted(graph) if set(graph) == set(range(len(graph))) else list(graph)
    place = {node: c for c, node in enumerate(ordered)}
    made = networkx.DiGraph() if graph.is_directed() else networkx.Graph()
    made.graph["name"] = name or factory.replace("_", " ")
    made.add_nodes_from((f"client{c}", {"client": c}) for c in range(len(ordered)))
    numbers = {"bandwidth_bps": bandwidth_bps, "latency_s": latency_s, "loss": loss}
    links = link_rows(factory, numbers, graph.number_of_edges())
    for (u, v, own), values in zip(graph.edges(data=True), links, strict=True):
        made.add_edge(f"client{place[u]}", f"client{place[v]}", **(dict(zip(numbers, values, strict=True)) | own))
    if server is not None:
        neighbour = server if isinstance(server, int | np.integer) and not isinstance(server, bool) else -1
        if not 0 <= neighbour < len(ordered):
            last = len(ordered) - 1
            raise InvalidInput(f"{factory}(server={short_repr(server)}): give the client beside it, 0 to {last}")
        made.add_node("server", role="server")
        for ends in (("server", f"client{neighbour}"), (f"client{neighbour}", "server")):
            made.add_edge(*ends, bandwidth_bps=math.inf, latency_s=0.0)
    return Network(made)
