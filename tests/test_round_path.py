"""Which modules one round passes through, in order: a reader who follows it opens these files and no others.

A module counts if Python code of it runs between the close of one round and that of the next, once the run is warm;
compiled kernels have no Python code to run. Whoever changes a way through the engine changes its list here, and keeps
that of the closed form at twelve. A round on Ray is followed in `test_ray.py`.
"""

from contextlib import nullcontext

from follow import followed

import fedsim as fs
from fedsim.engine import reference_clock, stretches
from fedsim.engine.clock_choice import always_compiled

CLIENTS = 10
SHARED = fs.topologies.multiple_access(CLIENTS, 1e6, latency_s=0.02)


def scenario(**parts):
    """FA-LD on a Gaussian problem over everybody's own link."""
    given = {
        "problem": fs.problems.GaussianMean.synthetic(clients=CLIENTS, dim=2, samples=8, seed=1),
        "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=10),
        "network": fs.topologies.star(CLIENTS, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02),
    }
    return fs.Scenario(budget=fs.Budget(rounds=40), replicas=3, seed=1, **(given | parts))


def look(progress):
    """Somebody who looks at every round, so that rounds come one by one."""


def path(part, clock=nullcontext, observers=()):
    """The way of a round of this scenario, on one thread; a run before it has made everything ready."""

    def run():
        with clock():
            fs.run(part, runtime=fs.Inline(threads=1), observers=observers)

    run()
    return followed(run)


CLOSED_FORM = """
    engine.run engine.closed_form engine.learner algorithms.fald engine.arrivals engine.round engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin engine.record
"""
STRETCH = """
    engine.run engine.closed_form engine.stretches protocols.algorithm engine.learner algorithms.fald engine.arrivals
    engine.round engine.accounts runtime.worker runtime.many_rounds algorithms.averaged_rounds algorithms.rounds
    kernels.draws kernels.langevin engine.record
"""
EVENTS = """
    engine.run engine.events engine.view engine.world kernels.draws rng participation.waiting engine.selection
    engine.round engine.learner algorithms.fald engine.arrivals rng.boxmuller engine.clock engine.visits network.flows
    network network.routes network.route_bundles engine.accounts runtime.jobs runtime.worker
    kernels.langevin engine.folds runtime.answers protocols.policy checks engine.record
"""
BUFFERED = """
    engine.run engine.asynchronous engine.learner algorithms.fald engine.asynchronous_replica engine.view
    engine.draws_ahead engine.visits engine.clock engine.jobs_ahead engine.events engine.round engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin engine.folds runtime.answers protocols.policy
    participation.early checks engine.record
"""
COMPILED = """
    engine.run engine.compiled_clock engine.compiled_rounds engine.learner algorithms.fald engine.round engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin engine.folds runtime.answers protocols.policy
    participation.waiting checks engine.record
"""
COMPILED_STRETCH = """
    engine.run engine.compiled_clock engine.compiled_rounds engine.stretches protocols.algorithm engine.round
    engine.accounts engine.learner runtime.worker runtime.many_rounds algorithms.averaged_rounds algorithms.rounds
    algorithms.fald kernels.draws kernels.langevin engine.record
"""
COMPILED_BUFFERED = """
    engine.run engine.compiled_clock engine.compiled_rounds engine.learner algorithms.fald engine.round engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin engine.asynchronous engine.folds runtime.answers
    protocols.policy participation.early checks engine.record
"""


def test_a_round_in_closed_form_passes_through_twelve_modules():
    way = path(scenario(), observers=[look])
    assert way == CLOSED_FORM.split()
    assert len(way) == 12


def test_a_stretch_of_rounds_passes_through_the_kernel_of_many(monkeypatch):
    monkeypatch.setattr(stretches, "NUMBERS", 8 * 3 * CLIENTS * 2)  # eight rounds at a go
    assert path(scenario()) == STRETCH.split()


def test_a_round_event_by_event_also_passes_through_clock_and_links():
    assert path(scenario(network=SHARED), reference_clock) == EVENTS.split()


def test_a_buffered_round_also_passes_through_the_visits_of_its_replicas():
    assert path(scenario(participation=fs.participation.buffered(4)), reference_clock) == BUFFERED.split()


def test_on_the_compiled_clock_a_round_is_read_off_what_was_run_ahead():
    assert path(scenario(network=SHARED), always_compiled, [look]) == COMPILED.split()
    assert path(scenario(participation=fs.participation.buffered(4)), always_compiled) == COMPILED_BUFFERED.split()


def test_on_the_compiled_clock_a_stretch_is_learnt_by_the_kernel_of_many(monkeypatch):
    monkeypatch.setattr(stretches, "NUMBERS", 8 * 3 * CLIENTS * 2)
    assert path(scenario(network=SHARED), always_compiled) == COMPILED_STRETCH.split()
