"""Which modules one round passes through, in order: a reader who follows it opens these files and no others.

A module counts if Python code of it runs between the close of one round and that of the next, once the run is warm;
compiled kernels have no Python code to run. Whoever changes a way through the engine changes its list here, and keeps
that of the closed form at twelve. A round on Ray is followed in `test_ray.py`.
"""

from contextlib import nullcontext

from clocks import always_compiled, reference_clock
from follow import followed

import fedsim as fs

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
    old_engine.run old_engine.closed_form old_engine.learner algorithms.fald old_engine.arrivals old_engine.round old_engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin old_engine.record
"""
EVENTS = """
    old_engine.run old_engine.events old_engine.view old_engine.world kernels.draws rng participation.waiting old_engine.selection
    old_engine.round old_engine.learner algorithms.fald old_engine.arrivals rng.boxmuller old_engine.clock old_engine.visits network.flows
    network network.routes network.route_bundles old_engine.accounts runtime.jobs runtime.worker
    kernels.langevin old_engine.folds runtime.answers protocols.policy checks old_engine.record
"""
BUFFERED = """
    old_engine.run old_engine.asynchronous old_engine.learner algorithms.fald old_engine.asynchronous_replica old_engine.view
    old_engine.draws_ahead old_engine.visits old_engine.clock old_engine.jobs_ahead old_engine.events old_engine.round old_engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin old_engine.folds runtime.answers protocols.policy
    participation.early checks old_engine.record
"""
COMPILED = """
    old_engine.run old_engine.compiled_clock old_engine.compiled_rounds old_engine.learner algorithms.fald old_engine.round old_engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin old_engine.folds runtime.answers protocols.policy
    participation.waiting checks old_engine.record
"""
COMPILED_BUFFERED = """
    old_engine.run old_engine.compiled_clock old_engine.compiled_rounds old_engine.learner algorithms.fald old_engine.round old_engine.accounts
    runtime.jobs runtime.worker kernels.draws kernels.langevin old_engine.asynchronous old_engine.folds runtime.answers
    protocols.policy participation.early checks old_engine.record
"""


def test_a_round_in_closed_form_passes_through_twelve_modules():
    way = path(scenario(), observers=[look])
    assert way == CLOSED_FORM.split()
    assert len(way) == 12


def test_a_round_event_by_event_also_passes_through_clock_and_links():
    assert path(scenario(network=SHARED), reference_clock) == EVENTS.split()


def test_a_buffered_round_also_passes_through_the_visits_of_its_replicas():
    assert path(scenario(participation=fs.participation.buffered(4)), reference_clock) == BUFFERED.split()


def test_on_the_compiled_clock_a_round_is_read_off_what_was_run_ahead():
    assert path(scenario(network=SHARED), always_compiled, [look]) == COMPILED.split()
    assert path(scenario(participation=fs.participation.buffered(4)), always_compiled) == COMPILED_BUFFERED.split()
