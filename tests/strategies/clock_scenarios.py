"""Random scenarios of stars and tiers for both clocks, small and full of ties."""

from __future__ import annotations

import math

import networkx as nx
from hypothesis import strategies as st

import fedsim as fs
from fedsim.engine.system import MessageSizes

RATES = (64.0, 1e3, 12345.678, 1e9, math.inf)
DELAYS = (0.0, 0.01, 0.3, 1 / 3)


def column(values, clients):
    """One number for all, or one per client."""
    return values | st.lists(values, min_size=clients, max_size=clients)


def rates():
    return st.sampled_from(RATES) | st.floats(10.0, 1e6)


def delays():
    return st.sampled_from(DELAYS) | st.floats(0.0, 2.0)


@st.composite
def networks(draw, clients, edges):
    """None, private links, one channel, a tree, or a graph of relays; edges sit at nodes or at the server."""
    kind = draw(st.integers(0, 4 if edges == 0 else 3))
    if kind == 0:
        return None
    if kind == 1:
        return fs.topologies.star(
            clients, uplink_bps=draw(column(rates(), clients)), downlink_bps=draw(column(rates(), clients)),
            latency_s=draw(column(delays(), clients)), loss=draw(column(st.sampled_from([0.0, 0.5]), clients)),
        )  # fmt: skip
    if kind == 2:
        channel = draw(st.sampled_from(RATES[:-1]))
        return fs.topologies.multiple_access(clients, capacity_bps=channel, latency_s=draw(column(delays(), clients)))
    if kind == 3 and edges == 0:
        return fs.topologies.tree(
            clients, edges=draw(st.integers(1, clients)), uplink_bps=draw(rates()), downlink_bps=draw(rates()), latency_s=draw(delays()),
            edge_uplink_bps=draw(rates()), edge_downlink_bps=draw(rates()), edge_latency_s=draw(delays()),
        )  # fmt: skip
    return fs.Network(draw(tiered(clients, edges) if edges else relayed(clients)))


def link(draw, graph, u, v):
    """Add a link; some have one capacity for both directions."""
    graph.add_edge(u, v, bandwidth_bps=draw(rates()), latency_s=draw(delays()), shared=draw(st.booleans()))


@st.composite
def relayed(draw, clients):
    """A few relays in a line with a shortcut, clients and the server anywhere on it."""
    relays, graph = draw(st.integers(1, 4)), nx.Graph()
    graph.add_node("server", role="server")
    for r in range(1, relays):
        link(draw, graph, r - 1, r)
    if relays > 2 and draw(st.booleans()):
        link(draw, graph, 0, relays - 1)
    link(draw, graph, "server", draw(st.integers(0, relays - 1)))
    for c in range(clients):
        graph.add_node(f"c{c}", client=c)
        link(draw, graph, f"c{c}", draw(st.integers(0, relays - 1)))
    return graph


@st.composite
def tiered(draw, clients, edges):
    """Edges at the server or in a line, clients at any of them."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    for e in range(edges):
        graph.add_node(f"e{e}", role="edge")
        link(draw, graph, f"e{e}", f"e{e - 1}" if e and draw(st.booleans()) else "server")
    for c in range(clients):
        graph.add_node(f"c{c}", client=c)
        link(draw, graph, f"c{c}", f"e{draw(st.integers(0, edges - 1))}")
    return graph


@st.composite
def availabilities(draw, clients):
    spell = st.sampled_from([0.05, 0.7, 3.0, 40.0])
    kind = draw(st.integers(0, 4))
    if kind < 2:
        return None
    if kind == 2:
        return fs.devices.markov(draw(column(spell, clients)), off_s=draw(column(spell, clients)))
    if kind == 3:
        phase = draw(st.sampled_from(["per client", 0.0, 0.3]))
        return fs.devices.diurnal(
            draw(spell), on_fraction=draw(column(st.sampled_from([0.0, 0.2, 0.9, 1.0]), clients)), phase=phase
        )
    starts, ends, offsets = [], [], [0]
    for _ in range(clients):
        marks = sorted(draw(st.sets(st.sampled_from([0.0, 0.2, 0.5, 1.0, 1.7, 3.0]), max_size=4)))
        marks = marks[: len(marks) // 2 * 2]
        starts, ends = starts + marks[::2], ends + marks[1::2]
        offsets.append(len(starts))
    return fs.devices.intervals(starts, ends=ends, offsets=offsets, period_s=draw(st.sampled_from([None, 3.0, 4.5])))


@st.composite
def devices(draw, clients):
    share = st.sampled_from([0.0, 0.1, 0.33])
    slowdowns = (
        None, fs.devices.lognormal_slowdown(1.0), fs.devices.pareto_slowdown(1.1), fs.devices.bimodal_slowdown(0.5, slow_factor=3.0),
    )  # fmt: skip
    dropout = draw(st.just(0.0) | st.fixed_dictionaries(dict.fromkeys(("before", "compute", "upload"), share)))
    slowdown, online = draw(st.sampled_from(slowdowns)), draw(availabilities(clients))
    if draw(st.booleans()):
        median = draw(st.sampled_from([1e-3, 0.7]))
        return fs.devices.lognormal(median, sigma=0.8, dropout=dropout, slowdown=slowdown, availability=online)
    seconds = draw(column(st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0.0, 3.0), clients))
    return fs.devices.constant(seconds, slowdown=slowdown, dropout=dropout, availability=online)


@st.composite
def policies(draw, clients, most):
    """A synchronous policy for sites of at least `most` clients."""
    size, p = st.integers(1, most), fs.participation
    of, enough = draw(st.none() | size), draw(st.none() | size)
    return draw(
        st.one_of(
            st.just(p.full()),
            st.integers(1, 2 * most).map(lambda n: p.with_replacement(n, at_least=enough)),
            size.map(lambda n: p.uniform(n, weighting="normalised", at_least=enough)),
            column(st.sampled_from([0.1, 0.5, 1.0]), clients).map(p.bernoulli),
            st.integers(1, most if of is None else of).map(lambda n: p.first(n, of=of, at_least=enough)),
            (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(lambda s: p.deadline(s, of=of)),
        )
    )


@st.composite
def buffers(draw, clients, remembers):
    """Asynchronous clients; where they have memory, a buffer that can be filled."""
    of = draw(st.none() | st.integers(1, clients))
    return fs.participation.buffered(draw(st.integers(1, clients if remembers else 2 * clients)), of=of)


@st.composite
def scenarios(draw, tiers, asynchronous=False):
    """A scenario and the sizes of its messages."""
    clients = draw(st.integers(1, 7))
    remembers = asynchronous and draw(st.booleans())
    edges = draw(st.integers(1, min(3, clients))) if tiers else 0
    groups = draw(st.permutations([c % edges for c in range(clients)])) if tiers else None
    scenario = fs.Scenario(
        problem=fs.problems.Payload(clients, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.Scaffold(0.1, local_steps=3) if remembers else fs.algorithms.FALD(1e-3, local_steps=3),
        network=draw(networks(clients, edges)),
        devices=draw(st.none() | devices(clients)),
        participation=draw(
            buffers(clients, remembers) if asynchronous else policies(clients, clients // max(edges, 1))
        ),
        exchange=fs.exchanges.tiers(groups, every=draw(st.integers(1, 3))) if tiers else fs.exchanges.star(),
        budget=fs.Budget(rounds=9, seconds=draw(st.none() | st.sampled_from([0.5, 5.0, 1e5]))),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        broadcast_to=draw(st.sampled_from([None, "all"])),
    )
    bits = st.sampled_from([0, 1, 64, 192, 1000, 2**53 + 1]) | st.integers(1, 5000)
    return scenario, MessageSizes(*(draw(bits) for _ in range(5)))
