"""Networks around a server: a tree with edge servers, and one channel for all."""

from __future__ import annotations

import math

from fedsim.errors import InvalidInput
from fedsim.network import Network
from fedsim.topologies.numbers import Bandwidths, Numbers, column_of, count_of, nodes_for, rows_of


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
