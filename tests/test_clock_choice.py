"""A run keeps time on whichever clock is likely to be done first, and is the same run on either."""

import math
import threading

import pytest
from clocks import always_compiled, reference_clock

import fedsim as fs
from fedsim.kernels.found import Found
from fedsim.old_engine.clock_choice import expected_visits, is_worth_it

SCENARIO = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(6, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, 3),
    network=fs.topologies.multiple_access(6, 4e3, latency_s=0.02),
    devices=fs.devices.lognormal(0.05, 0.5, dropout=0.1),
    participation=fs.participation.buffered(3),
    budget=fs.Budget(rounds=20),
    replicas=2,
)


def path(scenario):
    return fs.run(scenario, compute="skip").manifest["clock"]["path"]


@pytest.mark.parametrize(
    "visits, found, compiled",
    [
        (100, Found.NOWHERE, False), (100, Found.KEPT, False), (100, Found.LOADED, True),
        (100_000, Found.NOWHERE, False), (100_000, Found.KEPT, True), (100_000, Found.LOADED, True),
        (100_000_000, Found.NOWHERE, True), (math.inf, Found.NOWHERE, True),
    ],
)  # fmt: skip
def test_code_is_compiled_for_long_runs_loaded_for_medium_ones_and_used_where_it_is_there(visits, found, compiled):
    assert is_worth_it(visits, "alone", lambda: found) is compiled


def test_visits_that_share_links_or_never_stop_take_simpy_longer():
    def fewest(kind):
        return next(n for n in range(0, 10**6, 1000) if is_worth_it(n, kind, lambda: Found.NOWHERE))

    assert fewest("shared") < fewest("asynchronous") < fewest("alone")


def test_nobody_looks_for_code_that_a_long_run_would_compile_anyhow():
    def looking():
        raise AssertionError

    assert is_worth_it(math.inf, "alone", looking)


@pytest.mark.parametrize(
    "budget, visits",
    [
        (fs.Budget(rounds=10), 10 * 5 * 3),
        (fs.Budget(rounds=10, uplink_bits=1e9), 10 * 5 * 3),
        (fs.Budget(uplink_bits=1000), (1000 / (64 * 5) + 1) * 5 * 3),
        (fs.Budget(rounds=10, total_bits=960), (960 / (96 * 5) + 1) * 5 * 3),
        (fs.Budget(seconds=1.0), math.inf),
    ],
)
def test_visits_are_foretold_from_the_budget(budget, visits):
    assert expected_visits(budget, 5, 3, 64, 32) == visits


@pytest.mark.parametrize("limit", ["backhaul_bits", "total_bits"])
def test_messages_between_sites_are_foretold_from_what_they_may_cost(limit):
    assert expected_visits(fs.Budget(**{limit: 960}), 5, 3, 0, 0, site_bits=32) == (960 / (32 * 5) + 1) * 5 * 3


@pytest.mark.parametrize("found, clock", [(Found.LOADED, "compiled"), (Found.KEPT, "event"), (Found.NOWHERE, "event")])
def test_a_small_run_takes_the_compiled_clock_only_where_it_is_loaded(monkeypatch, found, clock):
    monkeypatch.setattr("fedsim.old_engine.compiled_clock.where_compiled", lambda: found)
    assert path(SCENARIO) == f"{clock}, asynchronous"


@pytest.mark.parametrize("first, second", [(always_compiled, reference_clock), (reference_clock, always_compiled)])
def test_a_run_is_resumed_on_the_clock_that_it_began_on(monkeypatch, tmp_path, first, second):
    """What is saved of visits in flight differs; whether code is found may have changed meanwhile."""
    stop = threading.Event()
    with first(), pytest.raises(fs.errors.Interrupted):
        fs.run(
            SCENARIO,
            out=tmp_path,
            checkpoint_every=7,
            stop=stop,
            observers=[lambda p: stop.set() if p.round == 7 else None],
        )
    now = Found.LOADED if second is always_compiled else Found.NOWHERE
    monkeypatch.setattr("fedsim.old_engine.compiled_clock.where_compiled", lambda: now)
    resumed = fs.run(SCENARIO, out=tmp_path, resume=True)
    with second():
        assert resumed.fingerprint == fs.run(SCENARIO).fingerprint
