"""The compiled clock keeps the time that SimPy keeps, to the last bit."""

import dataclasses
import math
import threading

import networkx as nx
import numpy as np
import pytest
from clocks import always_compiled, reference_clock
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim as fs
from fedsim.kernels.old_clock.parts import FOLDS
from fedsim.old_engine.replica_clock import ReplicaClock

RATES = (64.0, 1e3, 12345.678, 1e9, math.inf)
DELAYS = (0.0, 0.01, 0.3, 1 / 3)
ONE = fs.Inline(threads=1)


def both(scenario, **options):
    with always_compiled():
        compiled = fs.run(scenario, runtime=ONE, **options)
    with reference_clock():
        simpy = fs.run(scenario, runtime=ONE, **options)
    return compiled, simpy


def assert_same(compiled, simpy):
    for name in simpy.rounds:
        left, right = (r.rounds[name].to_numpy() for r in (compiled, simpy))
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes(), f"{name}: {left} compiled, {right} by SimPy"
    assert compiled.clients.equals(simpy.clients)
    assert compiled.stopped_by == simpy.stopped_by
    assert compiled.fingerprint == simpy.fingerprint
    if simpy.events is not None:
        assert compiled.events.equals(simpy.events)


def column(values, clients):
    """One number for all, or one per client."""
    return values | st.lists(values, min_size=clients, max_size=clients)


@st.composite
def networks(draw, clients):
    rate, delay = st.sampled_from(RATES) | st.floats(10.0, 1e6), st.sampled_from(DELAYS) | st.floats(0.0, 2.0)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return None
    if kind == 1:
        return fs.topologies.star(
            clients, uplink_bps=draw(column(rate, clients)), downlink_bps=draw(column(rate, clients)),
            latency_s=draw(column(delay, clients)), loss=draw(column(st.sampled_from([0.0, 0.5]), clients)),
        )  # fmt: skip
    if kind == 2:
        channel = draw(st.sampled_from(RATES[:-1]))
        return fs.topologies.multiple_access(clients, channel, latency_s=draw(column(delay, clients)))
    if kind == 3:
        return fs.topologies.tree(
            clients, draw(st.integers(1, clients)), draw(rate), draw(rate), latency_s=draw(delay),
            edge_uplink_bps=draw(rate), edge_downlink_bps=draw(rate), edge_latency_s=draw(delay),
        )  # fmt: skip
    return fs.Network(draw(graphs(clients, rate, delay)))


@st.composite
def graphs(draw, clients, rate, delay):
    """A few relays in a line with shortcuts, clients and the server anywhere on it; some links are one for both ways."""
    relays, graph = draw(st.integers(1, 4)), nx.Graph()
    graph.add_node("server", role="server")

    def link(u, v):
        graph.add_edge(u, v, bandwidth_bps=draw(rate), latency_s=draw(delay), shared=draw(st.booleans()))

    for r in range(1, relays):
        link(r - 1, r)
    if relays > 2 and draw(st.booleans()):
        link(0, relays - 1)
    link("server", draw(st.integers(0, relays - 1)))
    for c in range(clients):
        graph.add_node(f"c{c}", client=c)
        link(f"c{c}", draw(st.integers(0, relays - 1)))
    return graph


@st.composite
def presences(draw, clients):
    spell = st.sampled_from([0.05, 0.7, 3.0, 40.0])
    kind = draw(st.integers(0, 4))
    if kind < 2:
        return None
    if kind == 2:
        return fs.devices.markov(draw(column(spell, clients)), draw(column(spell, clients)))
    if kind == 3:
        phase = draw(st.sampled_from(["per client", 0.0, 0.3]))
        return fs.devices.diurnal(draw(spell), draw(column(st.sampled_from([0.0, 0.2, 0.9, 1.0]), clients)), phase)
    starts, ends, offsets = [], [], [0]
    for _ in range(clients):
        marks = sorted(draw(st.sets(st.sampled_from([0.0, 0.2, 0.5, 1.0, 1.7, 3.0]), max_size=4)))
        marks = marks[: len(marks) // 2 * 2]
        starts, ends = starts + marks[::2], ends + marks[1::2]
        offsets.append(len(starts))
    return fs.devices.intervals(starts, ends, offsets, draw(st.sampled_from([None, 3.0, 4.5])))


@st.composite
def devices(draw, clients):
    share = st.sampled_from([0.0, 0.1, 0.33])
    slowdowns = (
        None, fs.devices.lognormal_slowdown(1.0), fs.devices.pareto_slowdown(1.1), fs.devices.bimodal_slowdown(0.5, 3.0),
    )  # fmt: skip
    dropout = draw(st.just(0.0) | st.fixed_dictionaries(dict.fromkeys(("before", "compute", "upload"), share)))
    slowdown, presence = draw(st.sampled_from(slowdowns)), draw(presences(clients))
    if draw(st.booleans()):
        median = draw(st.sampled_from([1e-3, 0.7]))
        return fs.devices.lognormal(median, 0.8, dropout=dropout, slowdown=slowdown, availability=presence)
    seconds = draw(column(st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0.0, 3.0), clients))
    return fs.devices.constant(seconds, slowdown=slowdown, dropout=dropout, availability=presence)


@st.composite
def policies(draw, clients):
    size = st.integers(1, clients)
    of = draw(st.none() | size)
    most = clients if of is None else of
    enough = draw(st.none() | size)
    p = fs.participation
    return draw(
        st.one_of(
            st.just(p.full()),
            st.integers(1, 2 * clients).map(lambda n: p.with_replacement(n, at_least=enough)),
            size.map(lambda n: p.uniform(n, "normalised", at_least=enough)),
            column(st.sampled_from([0.1, 0.5, 1.0]), clients).map(p.bernoulli),
            st.integers(1, most).map(lambda n: p.first(n, of=of, at_least=enough)),
            (st.sampled_from([1e-300, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(lambda s: p.deadline(s, of=of)),
            st.integers(1, 6).map(lambda n: p.buffered(n, of=of)),
        )
    )


@st.composite
def scenarios(draw):
    clients = draw(st.integers(1, 6))
    limits = {n: draw(st.none() | st.sampled_from(v)) for n, v in (("uplink_bits", [2500]), ("seconds", [0.5, 5.0]))}
    policy = draw(policies(clients))
    remembers = policy.as_arrays().closes != FOLDS and draw(st.booleans())
    return fs.Scenario(
        problem=fs.problems.Payload(clients, parameters=draw(st.integers(1, 3))),
        algorithm=fs.algorithms.Scaffold(1e-3, 2) if remembers else fs.algorithms.FALD(1e-3, 3),
        network=draw(networks(clients)),
        devices=draw(devices(clients)),
        participation=policy,
        budget=fs.Budget(rounds=draw(st.integers(1, 7)), **limits),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2])), events=draw(st.booleans())),
        reach=draw(st.sampled_from([None, "all"])),
    )


def outcome(scenario):
    """The result, or what was refused."""
    try:
        return fs.run(scenario, runtime=ONE, compute="skip")
    except fs.errors.InvalidInput as error:
        return str(error)


def agree(scenario):
    with always_compiled():
        compiled = outcome(scenario)
    with reference_clock():
        simpy = outcome(scenario)
    if isinstance(simpy, str) or isinstance(compiled, str):
        assert compiled == simpy
    else:
        assert_same(compiled, simpy)


@settings(max_examples=300)
@given(scenarios())
def test_the_compiled_clock_gives_the_bits_of_simpy(scenario):
    agree(scenario)


@pytest.mark.soak
@settings(max_examples=10_000)
@given(scenarios())
def test_the_compiled_clock_gives_the_bits_of_simpy_ten_thousand_times(scenario):
    agree(scenario)


LEARNING = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(6, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, 3),
    network=fs.topologies.multiple_access(6, 4e3, latency_s=0.02),
    devices=fs.devices.lognormal(0.05, 0.5, dropout=0.1, availability=fs.devices.markov(2.0, 0.5)),
    budget=fs.Budget(rounds=25),
    replicas=3,
)
WAYS = {
    "everybody": {},
    "a deadline": {"participation": fs.participation.deadline(0.5)},
    "buffered": {"participation": fs.participation.buffered(3)},
    "buffered with memory": {
        "participation": fs.participation.buffered(2, of=4), "algorithm": fs.algorithms.Scaffold(1e-3, 2),
    },
    "a discount": {"participation": fs.participation.buffered(3, discount=lambda s: 1 / (1 + s))},
    "replicas stop separately": {
        "participation": fs.participation.buffered(3), "budget": fs.Budget(rounds=25, seconds=2.0),
    },
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_is_learnt_is_the_same(way):
    compiled, simpy = both(dataclasses.replace(LEARNING, **WAYS[way]))
    assert compiled.manifest["clock"]["path"].startswith("compiled")
    assert simpy.manifest["clock"]["path"].startswith("event")
    assert_same(compiled, simpy)
    assert compiled.samples.tobytes() == simpy.samples.tobytes()


def test_threads_do_not_change_the_time():
    scenario = dataclasses.replace(LEARNING, participation=fs.participation.buffered(3), replicas=8)
    with always_compiled():
        assert fs.run(scenario, runtime=fs.Inline(threads=3)).fingerprint == fs.run(scenario, runtime=ONE).fingerprint


class Own(fs.participation.Full):
    """Somebody's own policy: it says nothing of itself in numbers."""

    def as_arrays(self):
        return None


def test_parts_of_ones_own_are_asked_on_simpy():
    with always_compiled():
        result = fs.run(dataclasses.replace(LEARNING, participation=Own()), compute="skip")
    assert result.manifest["clock"]["path"] == "event"


def test_a_round_that_never_closes_is_refused_in_the_words_of_simpy():
    slow = fs.devices.constant(1e308, availability=fs.devices.diurnal(10.0, 1.0))
    far = fs.topologies.star(6, latency_s=1e308)
    scenario = dataclasses.replace(LEARNING, devices=slow, network=far, algorithm=fs.algorithms.FALD(1e-3, 1))
    with always_compiled():
        assert "never closes" in outcome(scenario)
    agree(scenario)


def test_time_made_ahead_is_cut_where_a_target_is_reached():
    target = fs.Target("w2", below=1e9)
    scenario = dataclasses.replace(LEARNING, metrics=("w2",), budget=fs.Budget(rounds=25, target=target))
    compiled, simpy = both(scenario)
    assert len(np.unique(compiled.rounds["round"])) == 1
    assert_same(compiled, simpy)


def test_the_trace_of_a_replica_is_its_own_where_another_never_closes_a_round():
    slow = fs.devices.constant(0.25, slowdown=fs.devices.pareto_slowdown(1.1))
    budget, record = fs.Budget(rounds=1, seconds=5.0), fs.Record(events=True)
    compiled, simpy = both(
        fs.Scenario(
            problem=fs.problems.Payload(1, parameters=1), algorithm=fs.algorithms.FALD(1e-3, 3), budget=budget,
            devices=slow, participation=fs.participation.buffered(1), replicas=range(5, 9, 2), record=record,
        ),
        compute="skip",
    )  # fmt: skip
    assert compiled.stopped_by == ("seconds", "rounds")
    assert_same(compiled, simpy)


@pytest.mark.parametrize("way", ["everybody", "a deadline", "buffered"])
def test_a_resumed_run_does_not_go_through_the_whole_timeline_again(monkeypatch, tmp_path, way):
    scenario = dataclasses.replace(LEARNING, **WAYS[way], record=fs.Record(events=True))
    monkeypatch.setattr("fedsim.old_engine.clocks_ahead.MOST", 4)  # rounds made at a go
    made, run = [], ReplicaClock.run
    monkeypatch.setattr(ReplicaClock, "run", lambda k, until: (made.append((k.said("round"), until)), run(k, until))[1])
    stop = threading.Event()
    with always_compiled():
        whole = fs.run(scenario, runtime=ONE)
        with pytest.raises(fs.errors.Interrupted):
            fs.run(
                scenario, runtime=ONE, out=tmp_path, checkpoint_every=18, stop=stop,
                observers=[lambda p: stop.set() if p.round == 18 else None],
            )  # fmt: skip
        made.clear()
        resumed = fs.run(scenario, runtime=ONE, out=tmp_path, resume=True)
    assert min(made) == (16, 18)
    assert_same(resumed, whole)
    assert resumed.samples.tobytes() == whole.samples.tobytes()


def test_clocks_too_large_for_a_checkpoint_are_wound_forward(monkeypatch, tmp_path):
    monkeypatch.setattr("fedsim.old_engine.clocks_ahead.SAVED", 0.0)
    stop = threading.Event()
    with always_compiled():
        with pytest.raises(fs.errors.Interrupted):
            fs.run(
                LEARNING,
                out=tmp_path,
                checkpoint_every=7,
                stop=stop,
                observers=[lambda p: stop.set() if p.round == 7 else None],
            )
        assert fs.run(LEARNING, out=tmp_path, resume=True).fingerprint == fs.run(LEARNING).fingerprint
