"""Star, tiers and gossip over the same clients, links and clock.

Twelve clients are behind three edge servers, whose links to the server are narrow and slow; neighbouring clients also
have direct links. With a star every model crosses the backhaul in every round. With tiers the edges average their own
clients and merge at the cloud now and then. With gossip the clients average with their neighbours, without a server.
"""

import networkx as nx
import numpy as np

import fedsim as fs
from fedsim.analysis import figures

CLIENTS, EDGES = 12, 3
ACCESS_BPS, BACKHAUL_BPS, NEIGHBOUR_BPS = 100_000.0, 40_000.0, 50_000.0
grid = {"shape": ["star", "tiers", "gossip"]}


def scenario(
    *, shape: str = "star", every: int = 5, dimension: int = 10, rounds: int = 60, replicas: int = 100
) -> fs.Scenario:
    return fs.Scenario(
        problem=problem(dimension),
        algorithm=fs.algorithms.FALD(step_size=5e-5, local_steps=10),
        network=network(),
        devices=fs.devices.lognormal(median_step_s=0.01, sigma=0.4),
        exchange=exchange(shape, every),
        budget=fs.Budget(rounds=rounds),
        initial=[1.0] * dimension,
        replicas=replicas,
        seed=1,
        metrics=("w2", "consensus"),
    )


def problem(dimension: int) -> fs.problems.GaussianMean:
    """Return clients whose noise differs by up to a factor of ten, so that the mixing matters."""
    noise = np.geomspace(0.5, 5.0, CLIENTS)[:, None, None] * np.eye(dimension)
    return fs.problems.GaussianMean.synthetic(
        CLIENTS, dim=dimension, heterogeneity=0.3, samples=40, seed=3, covariance=noise
    )


def exchange(shape: str, every: int) -> fs.exchanges.Exchange:
    if shape == "star":
        return fs.exchanges.star()
    if shape == "tiers":
        return fs.exchanges.tiers(every=every)
    if shape == "gossip":
        return fs.exchanges.gossip(nx.cycle_graph(CLIENTS))
    raise fs.errors.InvalidInput(f"shape={shape!r}: choose star, tiers or gossip")


def network() -> fs.Network:
    """Return access links to the edges, a slow backhaul, and a ring of links between neighbouring clients."""
    graph = nx.Graph(name="neighbourhoods")
    graph.add_node("server", role="server")
    for e in range(EDGES):
        graph.add_node(f"edge{e}", role="edge")
        graph.add_edge("server", f"edge{e}", bandwidth_bps=BACKHAUL_BPS, latency_s=0.05)
    for c in range(CLIENTS):
        graph.add_node(f"client{c}", client=c)
        graph.add_edge(f"client{c}", f"edge{c * EDGES // CLIENTS}", bandwidth_bps=ACCESS_BPS, latency_s=0.005)
    for c in range(CLIENTS):
        graph.add_edge(f"client{c}", f"client{(c + 1) % CLIENTS}", bandwidth_bps=NEIGHBOUR_BPS, latency_s=0.002)
    return fs.Network(
        graph, routes={c: [f"client{c}", f"edge{c * EDGES // CLIENTS}", "server"] for c in range(CLIENTS)}
    )


def figure(study):
    results = {settings.get("shape", "star"): result for settings, result in study.runs}
    fig = figures.blank(12, 8)
    places = fig.subplots(2, 3, height_ratios=(1, 1.2))
    for axes, shape in zip(places[0], results, strict=False):
        network().draw(axes, gossip=nx.cycle_graph(CLIENTS) if shape == "gossip" else None)
        axes.set_title(f"{shape}: {HELD[shape]}")
    seconds, bits, apart = places[1]
    figures.curves(seconds, results, "w2", against="seconds", log="y")
    seconds.set_title("Distance to the posterior (w2)", loc="left")
    between = {shape: result for shape, result in results.items() if result.rounds["backhaul_bits"].any()}
    figures.curves(bits, between, "w2", against="backhaul_bits", log="y")
    bits.set_title("The same against bits between sites", loc="left")
    figures.curves(apart, between, "consensus", against="seconds", log="")
    apart.set_title("How far apart the sites are", loc="left")
    for axes in places[1]:
        axes.set_ylabel("")
        axes.legend(frameon=False)
    return fig


HELD = {"star": "one model", "tiers": "a model an edge", "gossip": "a model a client"}
