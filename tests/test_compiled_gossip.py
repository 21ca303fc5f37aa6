"""Sites that gossip keep the same time on the compiled clock as on SimPy, to the last bit."""

import dataclasses
import threading

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compiled_clock import DELAYS, ONE, RATES, agree, assert_same, both, devices, outcome

import fedsim as fs
from fedsim.engine.clock.choose import always_compiled, reference_clock
from fedsim.kernels.found import Found
from fedsim.old_engine.gossip_arrays import GossipClock


@st.composite
def neighbours(draw, sites):
    """A connected graph of client numbers: a tree with shortcuts."""
    graph = nx.empty_graph(sites)
    graph.add_edges_from((draw(st.integers(0, i - 1)), i) for i in range(1, sites))
    pairs = [(i, j) for i in range(sites) for j in range(i)]
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else [])
    return graph


@st.composite
def mixings(draw, graph):
    words = draw(st.sampled_from(["metropolis", "max_degree", "matching", "in turn"]))
    if words != "in turn":
        return words
    sites, matrices = len(graph), []
    for _ in range(draw(st.integers(1, 3))):
        matrix = np.eye(sites)
        for i, j in draw(st.lists(st.sampled_from([*graph.edges, (0, 0)]), max_size=3)):
            if i != j and matrix[i, j] == 0:
                matrix[[i, j, i, j], [j, i, i, j]] += [0.1, 0.1, -0.1, -0.1]
        matrices.append(matrix)
    return [np.full((1, 1), 1.0)] if sites == 1 else [metropolis(graph), *matrices]


def metropolis(graph):
    """Metropolis weights as a matrix: with it in the list every site counts."""
    exchange = fs.exchanges.gossip(graph)
    mixing = exchange.at(0, 0, 0)
    matrix = np.diag(mixing.own)
    matrix[exchange.receiver[mixing.message], exchange.sender[mixing.message]] = mixing.weight
    return matrix


@st.composite
def links(draw, graph):
    """None, a link for every pair of neighbours, or clients around a few relays, whose links they share."""
    rate, delay = st.sampled_from(RATES) | st.floats(10.0, 1e6), st.sampled_from(DELAYS) | st.floats(0.0, 2.0)
    kind, sites, made = draw(st.integers(0, 2)), len(graph), nx.Graph()
    if kind == 0:
        return None
    made.add_nodes_from((c, {"client": c}) for c in range(sites))

    def link(u, v):
        made.add_edge(u, v, bandwidth_bps=draw(rate), latency_s=draw(delay), shared=draw(st.booleans()))

    if kind == 1:
        for u, v in graph.edges:
            link(u, v)
        return fs.Network(made)
    relays = draw(st.integers(1, 3))
    for r in range(1, relays):
        link(f"r{r - 1}", f"r{r}")
    for c in range(sites):
        link(c, f"r{draw(st.integers(0, relays - 1))}")
    return fs.Network(made)


@st.composite
def scenarios(draw):
    sites = draw(st.integers(1, 6))
    graph = draw(neighbours(sites))
    limits = {n: draw(st.none() | st.sampled_from(v)) for n, v in (("backhaul_bits", [2500]), ("seconds", [0.5, 5.0]))}
    p = fs.participation
    policy = draw(
        st.just(p.full())
        | st.integers(1, sites).map(p.first)
        | (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(p.deadline)
    )
    return fs.Scenario(
        problem=fs.problems.Payload(sites, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.FALD(1e-3, 3),
        network=draw(links(graph)),
        devices=draw(st.none() | devices(sites)),
        participation=policy,
        exchange=fs.exchanges.gossip(graph, draw(mixings(graph))),
        budget=fs.Budget(rounds=draw(st.integers(1, 7)), **limits),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2])), events=draw(st.booleans())),
    )


@settings(max_examples=60)
@given(scenarios())
def test_gossip_on_the_compiled_clock_gives_the_bits_of_simpy(scenario):
    agree(scenario)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(scenarios())
def test_gossip_on_the_compiled_clock_gives_the_bits_of_simpy_ten_thousand_times(scenario):
    agree(scenario)


RING = nx.cycle_graph(6)
LEARNING = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(6, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, 3),
    network=fs.topologies.multiple_access(6, 4e3, latency_s=0.02),
    devices=fs.devices.lognormal(0.05, 0.5, dropout=0.1, availability=fs.devices.markov(2.0, 0.5)),
    exchange=fs.exchanges.gossip(RING),
    budget=fs.Budget(rounds=25),
    record=fs.Record(sites="all"),
    replicas=3,
)
WAYS = {
    "everybody": {},
    "the first": {"participation": fs.participation.first(1)},
    "a deadline": {"participation": fs.participation.deadline(0.3)},
    "matchings": {"exchange": fs.exchanges.gossip(RING, "matching")},
    "matrices in turn": {"exchange": fs.exchanges.gossip(RING, [metropolis(RING), np.eye(6)])},
    "no links": {"network": None},
    "an optimiser": {"algorithm": fs.algorithms.FedAvg(1e-2, 2)},
    "replicas stop separately": {"budget": fs.Budget(rounds=25, seconds=12.0)},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_every_site_learns_is_the_same(way):
    compiled, simpy = both(dataclasses.replace(LEARNING, **WAYS[way]))
    assert compiled.manifest["clock"]["path"] == "compiled, gossip"
    assert simpy.manifest["clock"]["path"] == "event, gossip"
    assert_same(compiled, simpy)
    assert compiled.samples.tobytes() == simpy.samples.tobytes()


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


LOSSES = {"before": 0.02, "compute": 0.05, "upload": 0.1}
CROWD = fs.Scenario(
    problem=fs.problems.Payload(40, parameters=8),
    algorithm=fs.algorithms.FALD(1e-3, 2),
    network=crowd(40),
    devices=fs.devices.lognormal(0.05, 0.8, dropout=LOSSES, availability=fs.devices.markov(1.5, 0.4)),
    exchange=fs.exchanges.gossip(nx.random_regular_graph(4, 40, seed=1)),
    budget=fs.Budget(rounds=12),
    record=fs.Record(events=True),
    replicas=2,
)


@pytest.mark.parametrize("policy", [fs.participation.first(2), fs.participation.deadline(0.4)])
@pytest.mark.parametrize("exchange", [CROWD.exchange, fs.exchanges.tiers(every=3)], ids=["gossip", "tiers"])
def test_what_needs_more_room_than_at_first_is_the_same(policy, exchange):
    compiled, simpy = both(dataclasses.replace(CROWD, participation=policy, exchange=exchange), compute="skip")
    assert compiled.manifest["clock"]["path"].startswith("compiled, ")
    assert_same(compiled, simpy)


def test_threads_do_not_change_the_time():
    with always_compiled():
        assert fs.run(LEARNING, runtime=fs.Inline(threads=3)).fingerprint == fs.run(LEARNING, runtime=ONE).fingerprint


def test_the_closed_form_goes_on_on_the_compiled_clock_where_messages_of_one_sender_meet(tmp_path):
    """Site 0 hears site 1 fast and is heard slowly: its next message finds the last one still under way."""
    links = nx.DiGraph()
    links.add_nodes_from((c, {"client": c}) for c in range(2))
    links.add_edge(0, 1, bandwidth_bps=100.0, latency_s=0.0)
    links.add_edge(1, 0, bandwidth_bps=1e6, latency_s=0.0)
    scenario = dataclasses.replace(
        LEARNING, problem=fs.problems.GaussianMean.synthetic(2, dim=2, samples=5, seed=3), network=fs.Network(links),
        devices=fs.devices.constant(0.1, slowdown=fs.devices.lognormal_slowdown(0.5)),
        exchange=fs.exchanges.gossip(nx.path_graph(2)),
    )  # fmt: skip
    compiled, simpy = both(scenario)
    assert compiled.manifest["clock"]["path"] == "closed form, then compiled, gossip"
    assert simpy.manifest["clock"]["path"] == "closed form, then event, gossip"
    assert_same(compiled, simpy)
    with always_compiled():
        stop_at(scenario, tmp_path, 18)
        assert fs.run(scenario, out=tmp_path, resume=True).fingerprint == compiled.fingerprint


def stop_at(scenario, folder, round):
    stop = threading.Event()
    with pytest.raises(fs.errors.Interrupted):
        fs.run(
            scenario, runtime=ONE, out=folder, checkpoint_every=round, stop=stop,
            observers=[lambda p: stop.set() if p.round == round else None],
        )  # fmt: skip


@pytest.mark.parametrize("way", ["everybody", "a deadline", "matchings"])
def test_a_resumed_run_does_not_go_through_the_whole_timeline_again(monkeypatch, tmp_path, way):
    scenario = dataclasses.replace(LEARNING, **WAYS[way], record=fs.Record(events=True))
    monkeypatch.setattr("fedsim.old_engine.clocks_ahead.MOST", 4)  # rounds made at a go
    made, run = [], GossipClock.run
    monkeypatch.setattr(GossipClock, "run", lambda k, until: (made.append((k.said("round"), until)), run(k, until))[1])
    with always_compiled():
        whole = fs.run(scenario, runtime=ONE)
        stop_at(scenario, tmp_path, 18)
        made.clear()
        resumed = fs.run(scenario, runtime=ONE, out=tmp_path, resume=True)
    assert min(made) == (16, 18)
    assert_same(resumed, whole)
    assert resumed.samples.tobytes() == whole.samples.tobytes()


@pytest.mark.parametrize("first, second", [(always_compiled, reference_clock), (reference_clock, always_compiled)])
def test_a_run_may_be_resumed_on_the_other_clock(tmp_path, first, second):
    with first():
        stop_at(LEARNING, tmp_path, 9)
    with second():
        assert fs.run(LEARNING, out=tmp_path, resume=True).fingerprint == fs.run(LEARNING).fingerprint


def test_a_round_that_never_closes_is_refused_in_the_words_of_simpy():
    scenario = dataclasses.replace(LEARNING, devices=fs.devices.constant(1e308), algorithm=fs.algorithms.FALD(1e-3, 1))
    with always_compiled():
        assert "never" in outcome(scenario)
    agree(scenario)


def test_a_site_that_is_left_behind_for_good_is_refused_in_the_words_of_simpy():
    """A site does not fold before its own work is done, however impatient; its neighbours do not wait for it."""
    uneven = fs.devices.constant([0.0, 1e9], dropout=0.1)
    scenario = dataclasses.replace(
        LEARNING, problem=fs.problems.Payload(2, parameters=1), devices=uneven, network=None, record=fs.Record(), replicas=1,
        exchange=fs.exchanges.gossip(nx.path_graph(2)), participation=fs.participation.deadline(1e-3),
    )  # fmt: skip
    with always_compiled():
        assert "10,000 rounds ahead of another" in outcome(scenario)


class Own(fs.devices.Devices):
    """Somebody's own devices: they say nothing of themselves in numbers."""

    def as_arrays(self, clients, work):
        return None


def test_parts_of_ones_own_are_asked_on_simpy():
    with always_compiled():
        result = fs.run(dataclasses.replace(LEARNING, devices=Own(1e-3)), compute="skip")
    assert result.manifest["clock"]["path"] == "event, gossip"


@pytest.mark.parametrize("found, clock", [(Found.LOADED, "compiled"), (Found.KEPT, "event"), (Found.NOWHERE, "event")])
def test_a_small_run_takes_the_compiled_clock_only_where_it_is_loaded(monkeypatch, found, clock):
    monkeypatch.setattr("fedsim.old_engine.compiled_sites.where_gossip_is_compiled", lambda: found)
    assert fs.run(LEARNING, compute="skip").manifest["clock"]["path"] == f"{clock}, gossip"


def test_far_off_ends_of_presence_do_not_pile_up():
    """Every round of a site has an event for the end of its on-period; most of them are overtaken by the next round."""
    devices = fs.devices.constant(1e-3, availability=fs.devices.markov(1e6, 1e-3))
    scenario = dataclasses.replace(LEARNING, devices=devices, network=None, budget=fs.Budget(rounds=3000), replicas=1)
    sizes, run = [], GossipClock.run
    with pytest.MonkeyPatch.context() as patched, always_compiled():
        patched.setattr(GossipClock, "run", lambda k, until: (run(k, until), sizes.append(len(k.columns["events"])))[0])
        fs.run(scenario, compute="skip")
    assert max(sizes) < 2000
