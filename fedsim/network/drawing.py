"""Pictures of networks and of gossip graphs, with the bottleneck links marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.network.flows import Flows
from fedsim.text import short_repr, short_str

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedsim.network import Network

# Distinct without colour vision, and in grey by their lightness (Okabe and Ito).
CLIENT, EDGE, SERVER, RELAY, LINK, FULL, GOSSIP = (
    "#56b4e9", "#e69f00", "#009e73", "#bbbbbb", "#8a8a8a", "#cc3311", "#882255",
)  # fmt: skip
MAX_LABELS = 40  # nodes with a label in a picture
MAX_SKETCH_LINKS = 400  # on a page
MAX_SLOW_LAYOUT = 200  # nodes up to which the better, slower layout is used


def draw_network(network: Network, ax: Axes | None = None, gossip: Any = None) -> Figure:
    """Draw a network: see `Network.draw`."""
    import networkx

    graph = networkx.Graph(network.graph)
    if gossip is not None:
        check_gossip(gossip, network.clients)
    figure, ax = _axes(ax)
    at = positions(graph, network.server)
    full = _full(network, gossip)
    plain = [edge for edge in graph.edges if frozenset(edge) not in full]
    networkx.draw_networkx_edges(graph, at, plain, ax=ax, edge_color=LINK, width=1.0)
    marked = [edge for edge in graph.edges if frozenset(edge) in full]
    networkx.draw_networkx_edges(graph, at, marked, ax=ax, edge_color=FULL, width=3.0)
    if len(marked) <= MAX_LABELS:
        labels = {edge: full[frozenset(edge)] for edge in marked}
        networkx.draw_networkx_edge_labels(graph, at, labels, ax=ax, font_size=7, font_color=FULL)
    clients = dict(enumerate(network.nodes))
    edges = set(network.edge_nodes)
    kinds = (
        ("clients", [n for n in graph if n in set(network.nodes)], CLIENT, "o", 90),
        ("relays", [n for n in graph if n not in edges | set(network.nodes) | {network.server}], RELAY, "o", 40),
        ("edge servers", [n for n in graph if n in edges], EDGE, "D", 130),
        ("server", [n for n in graph if network.has_server and n == network.server], SERVER, "s", 220),
    )
    for label, nodes, colour, shape, size in kinds:
        if nodes:
            networkx.draw_networkx_nodes(
                graph, at, nodes, ax=ax, node_color=colour, node_shape=shape, node_size=size, label=label
            )
    if gossip is not None:
        over = networkx.relabel_nodes(networkx.Graph(gossip), clients)
        lines = networkx.draw_networkx_edges(
            over.to_directed(), at, list(over.edges), ax=ax, edge_color=GOSSIP, style=":", width=1.4,
            arrowstyle="-", connectionstyle="arc3,rad=0.18", node_size=90,
        )  # fmt: skip
        assert lines is not None
        ax.plot([], [], ":", color=GOSSIP, label="gossip")
    if marked:
        ax.plot([], [], color=FULL, linewidth=3.0, label="full when all transmit")
    if len(graph) <= MAX_LABELS:
        names = {node: str(c) for c, node in clients.items()}
        networkx.draw_networkx_labels(graph, at, names, ax=ax, font_size=7)
    _finish(ax, network.describe())
    return figure


def sketch(network: Network, passing: Array | None = None) -> dict[str, Any] | None:
    """Return nodes and links as plain data for the report page; None if there are too many to draw.

    `nodes` are [name, kind]; `links` are [one end, other end, bit/s, transfers that pass in the busier direction], ends
    by number. `passing` are those of an exchange by link; None: those between all clients and the server.
    """
    if network.edges > MAX_SKETCH_LINKS:
        return None
    place = {node: i for i, node in enumerate(network.graph)}
    clients, edges = set(network.nodes), set(network.edge_nodes)
    kinds = [
        "client" if n in clients else "edge" if n in edges else "server" if n == network.server else "relay"
        for n in place
    ]
    users = network.users() if passing is None else passing
    links: dict[frozenset[Any], list[Any]] = {}
    for name, bps, count in zip(network.link_names, network.capacities_bps.tolist(), users.tolist(), strict=True):
        u, v = _ends(network)[name]
        known = links.setdefault(frozenset((u, v)), [place[u], place[v], bps, 0])
        known[2:] = min(known[2], bps), max(known[3], count)
    nodes = [[short_str(node), kind] for node, kind in zip(place, kinds, strict=True)]
    return {"title": network.describe(passing), "nodes": nodes, "links": list(links.values())}


def draw_gossip(graph: nx.Graph, ax: Axes | None = None) -> Figure:
    """Draw a gossip graph without its network."""
    import networkx

    check_gossip(graph)
    figure, ax = _axes(ax)
    plain = networkx.Graph(graph)
    at = positions(plain, None)
    networkx.draw_networkx_edges(plain, at, ax=ax, edge_color=GOSSIP, style=":", width=1.4)
    networkx.draw_networkx_nodes(plain, at, ax=ax, node_color=CLIENT, node_size=90, label="clients")
    if len(plain) <= MAX_LABELS:
        networkx.draw_networkx_labels(plain, at, ax=ax, font_size=7)
    ax.plot([], [], ":", color=GOSSIP, label="gossip")
    _finish(ax, f"gossip, {len(plain):,} sites, {plain.number_of_edges():,} edges")
    return figure


def check_gossip(graph: nx.Graph, clients: int | None = None) -> None:
    """Refuse a gossip graph whose nodes are not the clients' numbers; by default as many as there are nodes."""
    if isinstance(graph, type) or not hasattr(graph, "is_multigraph"):
        raise InvalidInput(f"gossip={type(graph).__name__}: give a networkx graph whose nodes are client numbers")
    clients = len(graph) if clients is None else clients
    if set(graph) != set(range(clients)):
        raise InvalidInput(f"the gossip graph's nodes are not the client numbers 0 to {clients - 1}: renumber them")


def positions(graph: nx.Graph, server: object) -> dict[Any, Array]:
    """Return the positions of nodes: rings around the server for a tree, else a spring layout."""
    import networkx

    if server is not None and networkx.is_tree(graph):
        return _radial(graph, server)
    if len(graph) <= MAX_SLOW_LAYOUT and networkx.is_connected(graph):
        return dict(networkx.kamada_kawai_layout(graph, weight=None))
    return dict(networkx.spring_layout(graph, seed=0))


def _radial(graph: nx.Graph, root: object) -> dict[Any, Array]:
    """Return a tree in rings around its root, the angle of a branch in proportion to its leaves."""
    import networkx

    onward = networkx.bfs_tree(graph, root)
    depth = networkx.shortest_path_length(onward, root)
    leaves: dict[Any, int] = {}
    for node in reversed(list(networkx.topological_sort(onward))):
        leaves[node] = sum(leaves[child] for child in onward[node]) or 1
    at, begin = {root: np.zeros(2)}, {root: 0.0}
    for node in networkx.topological_sort(onward):
        angle = begin[node]
        for child in onward[node]:
            begin[child] = angle
            middle = 2 * np.pi * (angle + leaves[child] / 2) / leaves[root]
            at[child] = depth[child] * np.array([np.cos(middle), np.sin(middle)])
            angle += leaves[child]
    return at


def _full(network: Network, gossip: Any) -> dict[frozenset[Any], str]:
    """Return the edges that are full when all transmit at once and their bandwidths, only the shared ones if any is."""
    if gossip is None and network.has_server:
        both = [[network.route(c, upward) for c in range(network.clients)] for upward in (True, False)]
    else:
        graph = network.client_graph() if gossip is None else gossip
        pairs = [(network.nodes[a], network.nodes[b]) for u, v in graph.edges for a, b in ((u, v), (v, u)) if a != b]
        paths = network.paths(pairs)
        both = [[paths.route(row) for row in range(len(paths))]]
    capacity = network.capacities_bps
    users, taken = np.zeros(len(capacity), np.int64), np.zeros(len(capacity))
    for routes in both:
        flows = Flows(capacity)
        started = [(flows.start(0.0, route, 1.0), route) for route in routes if len(route)]
        here = np.zeros(len(capacity))
        for flow, route in started:
            here[route] += flows.rate_bps(flow)
            users[route] += 1
        taken = np.maximum(taken, here)
    held = (taken >= capacity * (1 - 1e-9)) & (users > 0)
    if (held & (users > len(both))).any():
        held &= users > len(both)
    names = {network.link_names[link]: link for link in np.flatnonzero(held).tolist()}
    ends = _ends(network)
    return {frozenset(ends[name]): rate(capacity[link]) for name, link in names.items() if name in ends}


def _ends(network: Network) -> dict[str, tuple[Any, Any]]:
    """Return the ends of every link, by its name."""
    return {f"{short_str(a)}-{short_str(b)}": (u, v) for u, v in network.graph.edges for a, b in ((u, v), (v, u))}


def rate(bps: float) -> str:
    """Return a bandwidth as text: 40 Mbit/s."""
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bps >= size:
            return f"{bps / size:.4g} {unit}"
    return f"{bps:.4g} bit/s"


def _axes(ax: Axes | None) -> tuple[Figure, Axes]:
    from matplotlib.axes import Axes as AnyAxes
    from matplotlib.figure import Figure as Blank

    if ax is None:
        ax = Blank(figsize=(7, 7), layout="constrained", facecolor="white").add_subplot()
    figure = ax.get_figure(root=True) if isinstance(ax, AnyAxes) else None
    if figure is None:
        raise InvalidInput(f"draw(ax={short_repr(ax)}): give axes of a matplotlib figure, or None for a new one")
    return figure, ax


def _finish(ax: Axes, title: str) -> None:
    ax.set_title(title, fontsize=10)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.margins(0.08)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, frameon=False, fontsize=8)
