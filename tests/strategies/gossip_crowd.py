"""Gossip of many flaky sites on links that their messages fill."""

from __future__ import annotations

import networkx as nx
import numpy as np

import fedsim as fs

LOSSES = {"before": 0.02, "compute": 0.05, "upload": 0.1}


def crowd(sites):
    """Many clients behind a few edge servers, on links that their messages fill."""
    graph, draw = nx.Graph(), np.random.default_rng(0)
    graph.add_node("server", role="server")
    for e in range(5):
        graph.add_node(f"e{e}", role="edge")
        graph.add_edge(f"e{e}", "server", bandwidth_bps=draw.uniform(2e3, 2e4), latency_s=0.01, shared=bool(e % 2))
    for c in range(sites):
        graph.add_node(c, client=c)
        graph.add_edge(c, f"e{c % 5}", bandwidth_bps=draw.uniform(1e3, 1e4), latency_s=0.05, shared=bool(c % 2))
    return fs.Network(graph)


CROWD = fs.Scenario(
    problem=fs.problems.Payload(40, parameters=8),
    algorithm=fs.algorithms.FALD(1e-3, local_steps=2),
    network=crowd(40),
    devices=fs.devices.lognormal(0.05, sigma=0.8, dropout=LOSSES, availability=fs.devices.markov(1.5, off_s=0.4)),
    exchange=fs.exchanges.gossip(nx.random_regular_graph(4, 40, seed=1)),
    budget=fs.Budget(rounds=12),
    record=fs.Record(events=True),
    replicas=2,
)
