"""One learning problem over four networks: the rounds cost the same bits and very different times.

Twenty-four clients with equal access links are on a star, behind the edge servers of a tree, on one shared radio
channel, and on a wide-area network read from a GraphML file. All clients contribute to every round, so the samples are
bit-identical. The time of a round depends on which transfers share a link.
"""

import tempfile
from pathlib import Path

import networkx as nx

import fedsim as fs
from fedsim.analysis import figures, timeline

CLIENTS = 24
UP, DOWN = 20_000.0, 100_000.0  # bits per second of a client's own link
CITIES = {"Lisbon": 0.0, "Madrid": 0.5, "Paris": 1.5, "Milan": 2.0, "Vienna": 2.6, "Warsaw": 3.2}  # 1,000 km eastward
TRUNKS = [("Lisbon", "Madrid"), ("Madrid", "Paris"), ("Madrid", "Milan"), ("Paris", "Milan"), ("Milan", "Vienna"),
          ("Paris", "Warsaw"), ("Vienna", "Warsaw")]  # fmt: skip
grid = {"network": ["star", "tree", "multiple_access", "wan"]}


def scenario(*, network: str = "star", dimension: int = 20, rounds: int = 60, replicas: int = 30) -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(CLIENTS, dim=dimension, heterogeneity=0.5, samples=50, seed=3),
        algorithm=fs.algorithms.FALD(step_size=6e-6, local_steps=10),
        network=network_named(network),
        devices=fs.devices.lognormal(median_step_s=0.01, sigma=0.4),
        budget=fs.Budget(rounds=rounds),
        initial=[1.0] * dimension,
        replicas=replicas,
        seed=1,
        metrics=("w2",),
        record=fs.Record(events=True),
    )


def network_named(name: str):
    """Return the network; all but the star have shared links."""
    if name == "star":
        return fs.topologies.star(CLIENTS, uplink_bps=UP, downlink_bps=DOWN, latency_s=0.02)
    if name == "tree":
        return fs.topologies.tree(
            CLIENTS, edges=4, uplink_bps=UP, downlink_bps=DOWN, latency_s=0.01,
            edge_uplink_bps=1.5 * UP, edge_downlink_bps=1.5 * DOWN, edge_latency_s=0.01,
        )  # fmt: skip
    if name == "multiple_access":
        return fs.topologies.multiple_access(CLIENTS, capacity_bps=4 * UP, latency_s=0.02)
    if name == "wan":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "wan.graphml"
            nx.write_graphml(wan(), path)
            return fs.topologies.from_graphml(path, bandwidth_bps="capacity", latency_s="delay")
    raise fs.errors.InvalidInput(f"network={name!r}: choose star, tree, multiple_access or wan")


def wan() -> nx.DiGraph:
    """Return six cities with four clients each; trunks carry three clients' links at the latency of optical fibre."""
    graph = nx.DiGraph(name="wide-area network")
    graph.add_node("Paris", role="server")
    for a, b in TRUNKS:
        delay = 0.005 * abs(CITIES[a] - CITIES[b]) + 0.001
        for u, v in ((a, b), (b, a)):
            graph.add_edge(u, v, capacity=3 * UP, delay=delay)
    for c in range(CLIENTS):
        city = list(CITIES)[c % len(CITIES)]
        graph.add_node(f"client {c}", client=c)
        graph.add_edge(f"client {c}", city, capacity=UP, delay=0.015)
        graph.add_edge(city, f"client {c}", capacity=DOWN, delay=0.015)
    return graph


def figure(study):
    results = {settings.get("network", "star").replace("_", " "): result for settings, result in study.runs}
    fig = figures.blank(11, 5.2)
    curve, bars = fig.subplots(1, 2, width_ratios=(1.7, 1))
    figures.curves(curve, results, "w2", against="seconds", log="y")
    curve.set_title("Distance to the exact posterior (Wasserstein-2)", loc="left")
    curve.set_ylabel("")
    curve.legend(frameon=False)

    per_round = {
        name: {part: share * mean_round(result) for part, share in (timeline.shares(result) or {}).items()}
        for name, result in results.items()
    }
    figures.stacked(bars, per_round, "virtual seconds")
    bars.set_title("A client's round, on average", loc="left")
    return fig


def mean_round(result) -> float:
    return float((result.rounds["closed_s"] - result.rounds["opened_s"]).mean())
