"""Which modules one round passes: a reader who follows it opens these files and no others.

A module counts if Python code of it runs between the record of one round and that of the next, once the run is warm.
Compiled kernels have no Python code to run. A round on Ray is followed in `test_ray.py`.
"""

import networkx as nx
import pytest
from tools.follow import followed

import fedsim as fs

N = 10
BASE = {
    "problem": fs.problems.GaussianMean.synthetic(clients=N, dim=2, samples=8, seed=1),
    "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=10),
    "network": fs.topologies.star(N, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02),
    "devices": fs.devices.lognormal(median_step_s=0.1, sigma=0.5),
}
EXCHANGES = {
    "star": {},
    "shared": {"network": fs.topologies.multiple_access(N, capacity_bps=1e6, latency_s=0.02)},
    "tiers": {"exchange": fs.exchanges.tiers((0, 1) * (N // 2), 2)},
    "asynchronous": {"participation": fs.participation.buffered(3)},
    "gossip": {"exchange": fs.exchanges.gossip(nx.cycle_graph(N))},
}
LEARNING = {
    "engine.run",
    "engine.commit",
    "engine.learner",
    "engine.recorder",
    "runtime.aggregation",
    "runtime.jobs",
    "runtime.inline",
    "algorithms.fald",
}
MORE_LEARNING = {
    "star": {"rules.closing"},  # whether edges merge after the round
    "shared": {"rules.closing"},
    "tiers": {"rules.closing"},
    "asynchronous": {"engine.broadcasts"},
    "gossip": {"engine.sites"},
}
COMPILED = {
    "star": {"engine.rounds", "engine.clock.compiled", "engine.clock.compiled.reader"},
    "shared": {"engine.rounds", "engine.clock.compiled", "engine.clock.compiled.reader"},
    "tiers": {"engine.rounds", "engine.clock.compiled", "engine.clock.compiled.reader"},
    "asynchronous": {"engine.rounds", "engine.clock.compiled.asynchronous"},
    "gossip": {"engine.rounds", "engine.clock.compiled.gossip", "engine.clock.gossip_rows"},
}
SIMPY = {
    "engine.rounds",
    "engine.system",
    "engine.clock.simpy",
    "engine.clock.simpy.rounds",
    "engine.clock.simpy.visits",
    "engine.clock.simpy.links",
    "rules.closing",
    "rules.visits",
    "rng",
    "kernels.cpu.draws",  # the compiled draws behind `rng`
    "devices.model",
}
MORE_SIMPY = {
    "star": {"engine.view", "participation.synchronous"},
    "shared": {"engine.view", "participation.synchronous"},
    "tiers": {"engine.view", "participation.synchronous"},
    "asynchronous": {"engine.clock.simpy.asynchronous"},
    "gossip": {"engine.clock.simpy.gossip", "engine.clock.gossip_rows"},
}
FLOWS = {"network.flows", "network.route_bundles"}  # the model of flows that share links; messages over gossip do
MORE_FLOWS = {"shared": FLOWS, "gossip": FLOWS}


def path(name, clock):
    """Return the modules of a round of a run that is observed, so that rounds come one by one, on one thread."""
    scenario = fs.Scenario(budget=fs.Budget(rounds=6), replicas=3, seed=1, **(BASE | EXCHANGES[name]))

    def run():
        fs.run(scenario, clock=clock, runtime=fs.Inline(threads=1), observers=[lambda progress: None])

    run()
    return set(followed(run)) - {"checks"}  # through which the observer of this test is called


@pytest.mark.parametrize("name", EXCHANGES)
def test_learning_passes_at_most_nine_modules(name):
    assert len(LEARNING | MORE_LEARNING[name]) <= 9


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_round_on_the_compiled_clock_passes_these_modules(name):
    assert len(COMPILED[name]) <= 3
    assert path(name, "compiled") <= LEARNING | MORE_LEARNING[name] | COMPILED[name]


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_round_on_simpy_passes_these_modules(name):
    assert len(SIMPY | MORE_SIMPY[name]) <= 13
    timeline = SIMPY | MORE_SIMPY[name] | MORE_FLOWS.get(name, set())
    assert path(name, "simpy") <= LEARNING | MORE_LEARNING[name] | timeline
