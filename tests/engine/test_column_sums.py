"""Sums over `clients` equal sums over `rounds`, in every column that both have, whatever the scenario and the clock."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from golden.golden_scenarios import COMING, ON_SIMPY_ALONE, SCENARIOS, SLOW, STAR, resumed
from strategies.every_algorithm import EVERY, scenario
from strategies.gossip_crowd import CROWD
from tools.clocks import always_compiled, reference_clock

import fedsim as fs

WHOLE = ("selected", "arrived", "dropped", "late", "uplink_bits", "wasted_bits", "wasted_down_bits", "backhaul_bits")
SECONDS = ("wasted_s", "late_s", "dropped_s", "called_off_s")


def assert_sums_agree(result):
    rounds, clients = result.rounds, result.clients
    both = set(rounds.columns) & set(clients.columns)
    assert both >= {*WHOLE, *SECONDS} - {"backhaul_bits"}
    assert both <= {*WHOLE, *SECONDS}
    for name in WHOLE:
        if name in both:
            assert int(clients[name].sum()) == int(rounds[name].sum()), name
    for name in SECONDS:
        assert np.isclose(clients[name].sum(), rounds[name].sum(), rtol=1e-12, atol=0), name


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.devices is None])
def test_in_every_golden_scenario_without_devices(name):
    assert_sums_agree(fs.run(SCENARIOS[name]))


WITH_DEVICES = [n for n, s in SCENARIOS.items() if s.devices is not None]
ON_BOTH = [(n, clock) for n in WITH_DEVICES for clock in ("simpy", "compiled") if n not in ON_SIMPY_ALONE]


@pytest.mark.parametrize("name, clock", [*ON_BOTH, *((n, "simpy") for n in ON_SIMPY_ALONE)])
def test_in_every_golden_scenario_with_devices_on_either_clock(name, clock):
    assert_sums_agree(fs.run(SCENARIOS[name], clock=clock))


@pytest.mark.parametrize("name", EVERY)
def test_in_every_scenario_of_the_contract(name):
    assert_sums_agree(fs.run(scenario(name)))


@pytest.mark.parametrize("clock", [reference_clock, always_compiled])
@pytest.mark.parametrize("policy", [fs.participation.first(2), fs.participation.deadline(0.4)])
@pytest.mark.parametrize("exchange", [CROWD.exchange, fs.exchanges.tiers(every=3)], ids=["gossip", "tiers"])
def test_where_many_messages_are_late_or_lost(exchange, policy, clock):
    with clock():
        result = fs.run(dataclasses.replace(CROWD, participation=policy, exchange=exchange), timing_only=True)
    assert result.rounds.late.sum() > 0
    assert_sums_agree(result)


WORKING = dataclasses.replace(
    SCENARIOS["star: buffered"], devices=COMING, participation=fs.participation.buffered(2, of=4),
    budget=fs.Budget(rounds=30, seconds=20.0), replicas=3,
)  # fmt: skip


@pytest.mark.parametrize("timing_only", [False, True])
@pytest.mark.parametrize("clock", [reference_clock, always_compiled])
def test_visits_in_flight_at_the_end_count_as_selected_where_they_started(clock, timing_only):
    with clock():
        result = fs.run(WORKING, timing_only=timing_only)
    in_flight = result.clients.selected - result.clients.arrived - result.clients.dropped
    assert set(in_flight) <= set(range(len(result.replicas) + 1))  # a client has at most one visit in flight
    assert in_flight.sum() > 0
    assert_sums_agree(result)


def test_both_clocks_say_the_same_of_every_client():
    with reference_clock():
        simpy = fs.run(WORKING)
    with always_compiled():
        compiled = fs.run(WORKING)
    assert simpy.clients.equals(compiled.clients)


@pytest.mark.parametrize("clock", [reference_clock, always_compiled])
def test_a_resumed_run_counts_the_visits_that_were_in_flight_once(clock):
    working = dataclasses.replace(WORKING, network=STAR, devices=SLOW)
    with clock():
        assert resumed(working).clients.equals(fs.run(working).clients)
