"""Synchronous rounds without a shared link are computed in closed form: bit for bit what the events would give.

Keeping the timeline (`Record(events=True)`) needs the events themselves, so the same scenario with and without it
runs both ways. Small sets of numbers make equal devices, equal links and ties at one instant frequent.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim as fs
from fedsim.algorithms.fedpaq import FedPAQ
from fedsim.engine.clock.choose import reference_clock

RATES = (64.0, 1e3, 12345.678, 1e9, math.inf)
DELAYS = (0.0, 0.01, 0.3, 1 / 3)


def both_ways(scenario: fs.Scenario) -> tuple[object, object]:
    traced = dataclasses.replace(scenario, record=dataclasses.replace(scenario.record, events=True))
    closed_form = fs.run(scenario, runtime=fs.Inline(threads=1))
    with reference_clock():
        events = fs.run(traced, runtime=fs.Inline(threads=1))
    assert closed_form.manifest["clock"]["path"] in ("closed form", "closed form, then event")
    assert events.manifest["clock"]["path"] == "event"
    return closed_form, events


def assert_same(closed_form, events) -> None:
    for name in closed_form.rounds:
        left, right = (r.rounds[name].to_numpy() for r in (closed_form, events))
        assert left.dtype == right.dtype
        assert left.tobytes() == right.tobytes(), f"{name}: {left} in closed form, {right} by events"
    assert closed_form.clients.equals(events.clients)
    assert closed_form.stopped_by == events.stopped_by
    assert closed_form.lengths.tolist() == events.lengths.tolist()
    assert closed_form.fingerprint == events.fingerprint


def column(values, clients):
    """One number for all, or one per client."""
    return values | st.lists(values, min_size=clients, max_size=clients)


@st.composite
def networks(draw, clients):
    if draw(st.integers(0, 3)) == 0:
        return None
    rate = st.sampled_from(RATES) | st.floats(10.0, 1e6)
    delay = st.sampled_from(DELAYS) | st.floats(0.0, 2.0)
    return fs.topologies.star(
        clients, uplink_bps=draw(column(rate, clients)), downlink_bps=draw(column(rate, clients)),
        latency_s=draw(column(delay, clients)), loss=draw(column(st.sampled_from([0.0, 0.1, 0.5]), clients)),
    )  # fmt: skip


@st.composite
def dropouts(draw, clients):
    share = st.sampled_from([0.0, 0.1, 0.33])
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return 0.0
    if kind == 1:
        return draw(column(st.sampled_from([0.2, 0.7, 1.0]), clients))
    phases = draw(st.lists(st.sampled_from(["before", "compute", "upload"]), min_size=1, unique=True))
    return {phase: draw(column(share, clients)) for phase in phases}


@st.composite
def devices(draw, clients):
    dropout = draw(dropouts(clients))
    slowdown = draw(
        st.sampled_from(
            [
                None, fs.devices.lognormal_slowdown(1.0), fs.devices.pareto_slowdown(1.1),
                fs.devices.bimodal_slowdown(0.5, 3.0),
            ]
        )
    )  # fmt: skip
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return None
    if kind == 1:
        return fs.devices.lognormal(draw(st.sampled_from([1e-3, 0.7])), 0.8, dropout, slowdown)
    seconds = column(st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0.0, 3.0), clients)
    unit = draw(st.sampled_from(["seconds_per_step", "seconds_per_example"]))
    return fs.devices.constant(
        **{unit: draw(seconds)},
        slowdown=slowdown,
        dropout=dropout,
        latency_s=draw(column(st.sampled_from(DELAYS), clients)),
    )


@st.composite
def policies(draw, clients):
    size = st.integers(1, clients)
    of = draw(st.none() | size)
    most = clients if of is None else of
    return draw(
        st.one_of(
            st.just(fs.participation.full()),
            st.integers(1, 2 * clients).map(fs.participation.with_replacement),
            size.map(lambda s: fs.participation.uniform(s, "normalised")),
            column(st.sampled_from([0.1, 0.5, 1.0]), clients).map(fs.participation.bernoulli),
            st.integers(1, most).map(lambda k: fs.participation.first(k, of=of)),
            (st.sampled_from([1e-300, 1e-9, 0.3, 1.0]) | st.floats(1e-3, 10.0)).map(
                lambda s: fs.participation.deadline(s, of=of)
            ),
        )
    )


@st.composite
def budgets(draw):
    bits = st.sampled_from([100, 1000, 2500])
    limits = {
        name: draw(st.none() | values)
        for name, values in (
            ("uplink_bits", bits), ("downlink_bits", bits), ("total_bits", bits), ("seconds", st.sampled_from([0.5, 5.0]))
        )
    }  # fmt: skip
    return fs.Budget(rounds=draw(st.integers(1, 5)), **limits)


@st.composite
def scenarios(draw):
    clients = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(1, 5), min_size=clients, max_size=clients))
    algorithm = draw(
        st.sampled_from(
            [
                fs.algorithms.FALD(step_size=1e-3, local_steps=3, correlation=0.5),
                FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.QSGD(4)),
                FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.Elias(4)),  # replies of different lengths
            ]
        )
    )
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=draw(st.integers(1, 3)), samples=sizes, seed=3),
        algorithm=algorithm,
        network=draw(networks(clients)),
        devices=draw(devices(clients)),
        participation=draw(policies(clients)),
        budget=draw(budgets()),
        replicas=draw(st.integers(1, 3) | st.just(range(5, 9, 2))),
        seed=draw(st.integers(0, 2**64 - 1)),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        record=fs.Record(rounds_every=draw(st.sampled_from([1, 1, 2]))),
        reach=draw(st.sampled_from([None, "all"])),
    )


@settings(max_examples=60)  # the soak below has ten thousand
@given(scenarios())
def test_closed_form_and_events_give_the_same_bits(scenario):
    assert_same(*both_ways(scenario))


@pytest.mark.soak
@settings(max_examples=10_000)
@given(scenarios())
def test_closed_form_and_events_give_the_same_bits_ten_thousand_times(scenario):
    assert_same(*both_ways(scenario))


def equal_devices(policy, replicas=20, **more):
    clients = 12
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=2, samples=5, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=4),
        network=fs.topologies.star(clients, uplink_bps=1e3, downlink_bps=1e4, latency_s=0.05),
        devices=fs.devices.constant(seconds_per_step=0.1, **more),
        participation=policy, budget=fs.Budget(rounds=40), replicas=replicas, seed=8,
    )  # fmt: skip


def test_equal_devices_are_all_in_time_equally_often():
    """Everybody arrives at the same instant: who counts as first is drawn, and drawn the same both ways."""
    closed_form, events = both_ways(equal_devices(fs.participation.first(3)))
    assert_same(closed_form, events)
    arrived = closed_form.clients["arrived"].to_numpy()  # 800 rounds, a quarter of them each: 200 +- 12.2
    assert np.abs(arrived - 200).max() < 4 * math.sqrt(800 * 0.25 * 0.75)


@pytest.mark.parametrize("phase", ["before", "compute", "upload"])
def test_equal_devices_that_drop_out_end_both_ways_alike(phase):
    for policy in (fs.participation.first(3), fs.participation.deadline(0.55), fs.participation.uniform(5)):
        assert_same(*both_ways(equal_devices(policy, replicas=5, dropout={phase: 0.4})))


def test_a_limit_below_the_first_round_ends_a_run_whose_copies_would_be_under_way():
    """No round counts, so none leaves copies behind."""
    problem = fs.problems.GaussianMean.synthetic(clients=1, dim=1, samples=3, seed=1)
    algorithm = fs.algorithms.FALD(step_size=1e-3, local_steps=3)
    network = fs.topologies.star(1, uplink_bps=64.0, downlink_bps=64.0)
    policy, budget = fs.participation.with_replacement(1), fs.Budget(rounds=2, seconds=0.5)
    scenario = fs.Scenario(problem, algorithm, budget, network=network, participation=policy, replicas=2, reach="all")
    assert_same(*both_ways(scenario))
