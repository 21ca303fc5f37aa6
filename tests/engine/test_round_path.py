"""Which modules one round passes: a reader who follows it opens these files and no others.

A module counts if Python code of it runs between the record of one round and that of the next, once the run is warm.
Compiled kernels have no Python code to run. A round on Ray is followed in `test_ray.py`.
"""

import networkx as nx
import pytest
from follow import followed

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
    "shared": {"network": fs.topologies.multiple_access(N, 1e6, latency_s=0.02)},
    "tiers": {"exchange": fs.exchanges.tiers((0, 1) * (N // 2), 2)},
    "asynchronous": {"participation": fs.participation.buffered(3)},
    "gossip": {"exchange": fs.exchanges.gossip(nx.cycle_graph(N))},
}
LEARNING = {
    "engine.run",
    "engine.commit",
    "engine.learner",
    "engine.aggregation",
    "engine.record",
    "runtime.jobs",
    "runtime.worker",
    "runtime.replies",
    "algorithms.fald",
    "kernels.draws",
    "kernels.langevin",
}
WEIGHTS = {"runtime.answers", "protocols.policy", "checks"}  # of replies, checked; gossip has those of its graph
MORE_LEARNING = {
    "star": WEIGHTS | {"participation.waiting"},
    "shared": WEIGHTS | {"participation.waiting"},
    "tiers": WEIGHTS | {"participation.waiting", "engine.sites", "rules.closing"},
    "asynchronous": WEIGHTS | {"participation.early", "engine.broadcasts"},
    "gossip": {"engine.sites", "rules.closing"},
}
COMPILED = {"engine.rounds", "engine.clock.compiled", "engine.clock.compiled.saved"}
MORE_COMPILED = {
    "star": {"engine.clock.compiled.reader", "engine.clock.compiled.site_tables"},
    "shared": {"engine.clock.compiled.reader", "engine.clock.compiled.site_tables"},
    "tiers": {"engine.clock.compiled.reader", "engine.clock.compiled.site_tables"},
    "asynchronous": {"engine.clock.compiled.asynchronous", "engine.clock.compiled.site_tables"},
    "gossip": {
        "engine.clock.compiled.gossip",
        "engine.clock.compiled.gossip_tables",
        "engine.clock.gossip_rows",
        "exchanges",
    },
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
}
DRAWS = {
    "devices.model",
    "devices.columns",
    "devices.speed",
    "protocols.algorithm",
    "rng.boxmuller",
    "kernels.elementary_reference",
}
FLOWS = {"network.routes", "network.flows", "network.route_bundles"}
MORE_SIMPY = {
    "star": {"engine.view"},
    "shared": {"engine.view", "network"} | FLOWS,
    "tiers": {"engine.view"},
    "asynchronous": {"engine.clock.simpy.asynchronous"},
    "gossip": {"engine.clock.simpy.gossip", "engine.clock.gossip_rows", "exchanges"} | FLOWS,
}


def path(name, clock):
    """Return the modules of a round of a run that is observed, so that rounds come one by one, on one thread."""
    scenario = fs.Scenario(budget=fs.Budget(rounds=6), replicas=3, seed=1, **(BASE | EXCHANGES[name]))

    def run():
        fs.run(scenario, clock=clock, runtime=fs.Inline(threads=1), observers=[lambda progress: None])

    run()
    return set(followed(run))


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_round_on_the_compiled_clock_passes_these_modules(name):
    assert path(name, "compiled") <= LEARNING | MORE_LEARNING[name] | COMPILED | MORE_COMPILED[name]


@pytest.mark.parametrize("name", EXCHANGES)
def test_a_round_on_simpy_passes_these_modules(name):
    assert path(name, "simpy") <= LEARNING | MORE_LEARNING[name] | SIMPY | MORE_SIMPY[name] | DRAWS
