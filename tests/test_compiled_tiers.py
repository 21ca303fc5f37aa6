"""Edges under a cloud keep the same time on the compiled clock as on SimPy, to the last bit."""

import dataclasses
import threading

import networkx as nx
import pytest
from clocks import always_compiled, reference_clock
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compiled_clock import DELAYS, ONE, RATES, agree, assert_same, both, column, devices, outcome

import fedsim as fs
from fedsim.kernels.found import Found
from fedsim.old_engine.tiers_arrays import TiersClock


@st.composite
def networks(draw, clients, edges):
    """None, links of everybody's own to the server, one channel for all, or edges that are nodes of a network."""
    rate, delay = st.sampled_from(RATES) | st.floats(10.0, 1e6), st.sampled_from(DELAYS) | st.floats(0.0, 2.0)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return None
    if kind == 1:
        return fs.topologies.star(
            clients, uplink_bps=draw(column(rate, clients)), downlink_bps=draw(column(rate, clients)),
            latency_s=draw(column(delay, clients)),
        )  # fmt: skip
    if kind == 2:
        return fs.topologies.multiple_access(clients, draw(st.sampled_from(RATES[:-1])), latency_s=draw(delay))
    graph = nx.Graph()
    graph.add_node("server", role="server")

    def link(u, v):
        graph.add_edge(u, v, bandwidth_bps=draw(rate), latency_s=draw(delay), shared=draw(st.booleans()))

    for e in range(edges):
        graph.add_node(f"e{e}", role="edge")
        link(f"e{e}", f"e{e - 1}" if e and draw(st.booleans()) else "server")
    for c in range(clients):
        graph.add_node(f"c{c}", client=c)
        link(f"c{c}", f"e{draw(st.integers(0, edges - 1))}")
    return fs.Network(graph)


@st.composite
def policies(draw, least):
    """Nobody may ask an edge for more clients than the smallest has."""
    size, p = st.integers(1, least), fs.participation
    of, enough = draw(st.none() | size), draw(st.none() | size)
    return draw(
        st.one_of(
            st.just(p.full()),
            st.integers(1, 2 * least).map(lambda n: p.with_replacement(n, at_least=enough)),
            size.map(lambda n: p.uniform(n, "normalised", at_least=enough)),
            st.sampled_from([0.1, 0.5, 1.0]).map(p.bernoulli),
            st.integers(1, least if of is None else of).map(lambda n: p.first(n, of=of, at_least=enough)),
            (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(lambda s: p.deadline(s, of=of)),
        )
    )


@st.composite
def scenarios(draw):
    clients = draw(st.integers(1, 7))
    edges = draw(st.integers(1, min(3, clients)))
    groups = draw(st.permutations([c % edges for c in range(clients)]))
    limits = {n: draw(st.none() | st.sampled_from(v)) for n, v in (("total_bits", [2500]), ("seconds", [0.5, 5.0]))}
    return fs.Scenario(
        problem=fs.problems.Payload(clients, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.FALD(1e-3, 3),
        network=draw(networks(clients, edges)),
        devices=draw(st.none() | devices(clients)),
        participation=draw(policies(clients // edges)),
        exchange=fs.exchanges.tiers(groups, every=draw(st.integers(1, 3))),
        budget=fs.Budget(rounds=draw(st.integers(1, 7)), **limits),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2])), events=draw(st.booleans())),
        reach=draw(st.sampled_from([None, "all"])),
    )


@settings(max_examples=60)
@given(scenarios())
def test_tiers_on_the_compiled_clock_give_the_bits_of_simpy(scenario):
    agree(scenario)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(scenarios())
def test_tiers_on_the_compiled_clock_give_the_bits_of_simpy_ten_thousand_times(scenario):
    agree(scenario)


def backhaul():
    """Two edges, one with a slow way to the server."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    for e, rate in enumerate((1e3, 5e4)):
        graph.add_node(f"e{e}", role="edge")
        graph.add_edge(f"e{e}", "server", bandwidth_bps=rate, latency_s=0.05)
    for c in range(6):
        graph.add_node(f"c{c}", client=c)
        graph.add_edge(f"c{c}", f"e{c % 2}", bandwidth_bps=4e3, latency_s=0.02)
    return fs.Network(graph)


LEARNING = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(6, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, 3),
    network=backhaul(),
    devices=fs.devices.lognormal(0.05, 0.5, dropout=0.1, availability=fs.devices.markov(2.0, 0.5)),
    exchange=fs.exchanges.tiers(every=5),
    budget=fs.Budget(rounds=25),
    record=fs.Record(sites="all"),
    replicas=3,
)
CHANNEL = fs.topologies.multiple_access(6, 4e3, latency_s=0.02)
GROUPS = [0, 1, 1, 0, 1, 0]
WAYS = {
    "everybody": {},
    "some": {"participation": fs.participation.uniform(2, "normalised")},
    "by weight": {"participation": fs.participation.with_replacement(3)},
    "the first": {"participation": fs.participation.first(2)},
    "a deadline": {"participation": fs.participation.deadline(0.2)},
    "one channel": {"network": CHANNEL, "exchange": fs.exchanges.tiers(GROUPS, every=3)},
    "no links": {"network": None, "exchange": fs.exchanges.tiers(GROUPS, every=3)},
    "sums at the cloud": {
        "algorithm": fs.algorithms.QLSD(1e-3), "exchange": fs.exchanges.tiers(every=1), "record": fs.Record(),
    },
    "replicas stop separately": {"budget": fs.Budget(rounds=25, seconds=9.0)},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_every_edge_learns_is_the_same(way):
    compiled, simpy = both(dataclasses.replace(LEARNING, **WAYS[way]))
    assert compiled.manifest["clock"]["path"] == "compiled, edges under a cloud"
    assert simpy.manifest["clock"]["path"] == "event, edges under a cloud"
    assert_same(compiled, simpy)
    assert compiled.samples.tobytes() == simpy.samples.tobytes()


def test_threads_do_not_change_the_time():
    with always_compiled():
        assert fs.run(LEARNING, runtime=fs.Inline(threads=3)).fingerprint == fs.run(LEARNING, runtime=ONE).fingerprint


@pytest.mark.parametrize("clock", [always_compiled, reference_clock])
def test_an_edge_that_is_ahead_notes_its_own_rounds(clock):
    made = dataclasses.replace(LEARNING, devices=None, record=fs.Record(events=True), budget=fs.Budget(rounds=10))
    with clock():
        events = fs.run(made, compute="skip").events
    selected = events[(events["event"] == "select") & (events["replica"] == 0)]
    assert set(events["event"]) >= {"to cloud", "merge", "from cloud"}
    for _, own in selected.groupby("client"):
        assert own["round"].tolist() == list(range(1, 11))


def stop_at(scenario, folder, round):
    stop = threading.Event()
    with pytest.raises(fs.errors.Interrupted):
        fs.run(
            scenario, runtime=ONE, out=folder, checkpoint_every=round, stop=stop,
            observers=[lambda p: stop.set() if p.round == round else None],
        )  # fmt: skip


@pytest.mark.parametrize("way", ["everybody", "a deadline", "some"])
def test_a_resumed_run_does_not_go_through_the_whole_timeline_again(monkeypatch, tmp_path, way):
    scenario = dataclasses.replace(LEARNING, **WAYS[way], record=fs.Record(events=True))
    monkeypatch.setattr("fedsim.old_engine.clocks_ahead.MOST", 4)  # rounds made at a go
    made, run = [], TiersClock.run
    monkeypatch.setattr(TiersClock, "run", lambda k, until: (made.append((k.said("first"), until)), run(k, until))[1])
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


def test_a_clock_that_is_too_late_for_its_periods_is_refused_in_the_words_of_simpy():
    forever = fs.devices.constant(1e308, availability=fs.devices.diurnal(10.0, 1.0))
    scenario = dataclasses.replace(LEARNING, devices=forever, algorithm=fs.algorithms.FALD(1e-3, 1))
    with always_compiled():
        assert "too late for periods of 10 s" in outcome(scenario)
    agree(scenario)


class Own(fs.participation.Full):
    """Somebody's own policy: it says nothing of itself in numbers."""

    def as_arrays(self):
        return None


def test_parts_of_ones_own_are_asked_on_simpy():
    with always_compiled():
        result = fs.run(dataclasses.replace(LEARNING, participation=Own()), compute="skip")
    assert result.manifest["clock"]["path"] == "event, edges under a cloud"


@pytest.mark.parametrize("found, clock", [(Found.LOADED, "compiled"), (Found.KEPT, "event"), (Found.NOWHERE, "event")])
def test_a_small_run_takes_the_compiled_clock_only_where_it_is_loaded(monkeypatch, found, clock):
    monkeypatch.setattr("fedsim.old_engine.compiled_sites.where_tiers_are_compiled", lambda: found)
    assert fs.run(LEARNING, compute="skip").manifest["clock"]["path"] == f"{clock}, edges under a cloud"
