"""Networks in which clients have links to each other."""

from __future__ import annotations

import math

from fedsim.network import Network
from fedsim.topologies.numbers import Bandwidths, Numbers, nodes_for, rows_of


def ring(clients: int, bandwidth_bps: Bandwidths = math.inf, latency_s: Numbers = 0.0, loss: Numbers = 0.0) -> Network:
    """Server, client 0, client 1, ... and back to the server.

    Client c's numbers are those of the link that enters it; the link back to the server has the last client's.
    """
    import networkx

    clients = nodes_for("ring", clients)
    graph = networkx.Graph(name="ring")
    graph.add_node("server", role="server")
    numbers = {"bandwidth_bps": bandwidth_bps, "latency_s": latency_s, "loss": loss}
    before = "server"
    for c, (bandwidth, latency, lost) in enumerate(rows_of("ring", numbers, clients)):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(before, f"client{c}", bandwidth_bps=bandwidth, latency_s=latency, loss=lost)
        before = f"client{c}"
    if clients > 1:
        graph.add_edge(before, "server", bandwidth_bps=bandwidth, latency_s=latency, loss=lost)
    return Network(graph)
