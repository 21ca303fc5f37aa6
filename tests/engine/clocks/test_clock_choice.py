"""`clock="auto"` takes the clock that is likely to be done first; a resumed run keeps the clock that it began on."""

import dataclasses
import math

import networkx as nx
import pytest
from engine.clocks.runs import assert_same, interrupt

import fedsim as fs
from fedsim import engine
from fedsim.engine.clock import choose
from fedsim.engine.clock.compiled import CompiledClock
from fedsim.engine.clock.compiled.asynchronous import AsynchronousClock
from fedsim.engine.clock.compiled.gossip import CompiledGossip
from fedsim.kernels import KernelState

CLIENTS, REPLICAS = 6, 2
PRIVATE = fs.Scenario(
    problem=fs.problems.GaussianMean.synthetic(CLIENTS, dim=2, samples=5, seed=3),
    algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
    network=fs.topologies.star(CLIENTS, uplink_bps=4e3, downlink_bps=4e3, latency_s=0.02),
    devices=fs.devices.lognormal(0.05, sigma=0.5, dropout=0.1),
    budget=fs.Budget(rounds=20),
    replicas=REPLICAS,
)
SHARED = dataclasses.replace(PRIVATE, network=fs.topologies.multiple_access(CLIENTS, capacity_bps=4e3, latency_s=0.02))
ASYNCHRONOUS = dataclasses.replace(SHARED, participation=fs.participation.buffered(3))
GOSSIP = dataclasses.replace(PRIVATE, exchange=fs.exchanges.gossip(nx.cycle_graph(CLIENTS)))
TIERS = dataclasses.replace(PRIVATE, exchange=fs.exchanges.tiers((0, 0, 0, 1, 1, 1), every=4))
BITS = 2 * 64  # of a model


class Asked(Exception):
    """What a run asks of `choose`."""


def asked(scenario):
    """Return the arguments with which a run chooses its clock, without the name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "choose", asking)
        with pytest.raises(Asked) as caught:
            fs.run(scenario)
    return caught.value.args


def asking(system, sizes, learning, name, saves=True):
    raise Asked(system, sizes, learning)


@pytest.fixture
def found(monkeypatch):
    """Set where the machine code is found."""

    def set_to(where):
        for clock in (CompiledClock, AsynchronousClock, CompiledGossip):
            monkeypatch.setattr(clock, "found", lambda self: where)

    return set_to


@pytest.mark.parametrize("scenario", [PRIVATE, TIERS], ids=["star", "tiers"])
@pytest.mark.parametrize(
    "visits, where, name",
    [
        (100, KernelState.MISSING, "simpy"), (100, KernelState.CACHED, "simpy"), (100, KernelState.LOADED, "compiled"),
        (100_000, KernelState.MISSING, "simpy"), (100_000, KernelState.CACHED, "compiled"), (100_000, KernelState.LOADED, "compiled"),
        (100_000_000, KernelState.MISSING, "compiled"), (math.inf, KernelState.MISSING, "compiled"),
    ],
)  # fmt: skip
def test_code_is_compiled_for_long_runs_loaded_for_medium_ones_and_used_where_it_is_loaded(
    monkeypatch, found, scenario, visits, where, name
):
    arguments = asked(scenario)
    found(where)
    monkeypatch.setattr(choose, "expected_visits", lambda system, sizes: visits)
    choice = choose.choose(*arguments, "auto")
    assert choice.clock.name == name
    short = f"a short run, and the compiled code is {where.value}"
    assert choice.reason == ("every part has columns" if name == "compiled" else short)


def test_the_compiled_code_pays_sooner_where_links_are_shared(monkeypatch, found):
    found(KernelState.MISSING)

    def fewest(scenario):
        arguments = asked(scenario)

        def compiled(visits):
            monkeypatch.setattr(choose, "expected_visits", lambda system, sizes: visits)
            return choose.choose(*arguments, "auto").clock.name == "compiled"

        return next(visits for visits in range(0, 10**6, 10_000) if compiled(visits))

    assert 0 < fewest(SHARED) < fewest(PRIVATE)
    assert fewest(ASYNCHRONOUS) == fewest(GOSSIP) == fewest(SHARED)  # messages of a site that gossips share its link


@pytest.mark.parametrize("name", ["simpy", "compiled"])
@pytest.mark.parametrize("where", list(KernelState))
def test_a_clock_that_is_named_is_taken_wherever_the_code_is(found, where, name):
    arguments = asked(PRIVATE)
    found(where)
    choice = choose.choose(*arguments, name)
    assert (choice.clock.name, choice.reason) == (name, "as asked for")


@pytest.mark.parametrize(
    "scenario, budget, rounds, each",
    [
        (PRIVATE, {"rounds": 10}, 10, 6),
        (PRIVATE, {"rounds": 10, "uplink_bits": 1e9}, 10, 6),
        (PRIVATE, {"uplink_bits": 5000}, 5000 / (BITS * 6) + 1, 6),
        (PRIVATE, {"downlink_bits": 5000}, 5000 / (BITS * 6) + 1, 6),
        (PRIVATE, {"rounds": 10, "total_bits": 3000}, 3000 / (2 * BITS * 6) + 1, 6),
        (PRIVATE, {"seconds": 1.0}, math.inf, 6),
        (ASYNCHRONOUS, {"uplink_bits": 5000}, 5000 / (BITS * 3) + 1, 3),
        (dataclasses.replace(PRIVATE, participation=fs.participation.uniform(2)), {"rounds": 7}, 7, 2),
        (GOSSIP, {"rounds": 10}, 10, 6 + 12),
        (GOSSIP, {"backhaul_bits": 9000}, 9000 / (BITS * 12) + 1, 6 + 12),
        (GOSSIP, {"total_bits": 9000}, 9000 / (BITS * 12) + 1, 6 + 12),
        (GOSSIP, {"rounds": 10, "uplink_bits": 1}, 10, 6 + 12),  # sites send nothing to a server
        (TIERS, {"backhaul_bits": 2048}, 2048 / (2 * 2 * BITS / 4) + 1, 6),
    ],
)
def test_visits_are_estimated_from_the_budget(scenario, budget, rounds, each):
    system, sizes, _ = asked(dataclasses.replace(scenario, budget=fs.Budget(**budget)))
    assert choose.expected_visits(system, sizes) == pytest.approx(rounds * each * REPLICAS, rel=1e-12)


@pytest.mark.parametrize(
    "scenario, budget",
    [
        (PRIVATE, {"uplink_bits": 20_000}), (PRIVATE, {"total_bits": 50_000}), (TIERS, {"backhaul_bits": 6_000}),
        (TIERS, {"total_bits": 50_000}),
    ],
)  # fmt: skip
def test_a_run_has_about_as_many_visits_as_estimated(scenario, budget):
    scenario = dataclasses.replace(scenario, budget=fs.Budget(**budget), devices=fs.devices.constant(0.05))
    system, sizes, _ = asked(scenario)
    result = fs.run(scenario, timing_only=True, clock="simpy")
    more = choose.expected_visits(system, sizes) - result.rounds["selected"].sum()
    assert 0 <= more <= CLIENTS * REPLICAS * max(1, scenario.sites.every) * 2


@pytest.mark.parametrize(
    "where, name", [(KernelState.LOADED, "compiled"), (KernelState.CACHED, "simpy"), (KernelState.MISSING, "simpy")]
)
def test_a_small_run_takes_the_compiled_clock_only_where_it_is_loaded(found, where, name):
    found(where)
    assert fs.run(PRIVATE, timing_only=True).manifest["clock"]["name"] == name


@pytest.mark.parametrize(
    "began, later", [(KernelState.LOADED, KernelState.MISSING), (KernelState.MISSING, KernelState.LOADED)]
)
@pytest.mark.parametrize("scenario", [PRIVATE, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
def test_a_run_resumes_on_the_clock_that_it_began_on(tmp_path, found, scenario, began, later):
    """The saved states of the clocks differ, and code may have been compiled or removed meanwhile."""
    found(began)
    interrupt(scenario, tmp_path, 7)
    found(later)
    resumed, whole = fs.run(scenario, out=tmp_path, resume=True), fs.run(scenario)
    names = [result.manifest["clock"]["name"] for result in (resumed, whole)]
    assert names == (["compiled", "simpy"] if began is KernelState.LOADED else ["simpy", "compiled"])
    assert_same(resumed, whole)
