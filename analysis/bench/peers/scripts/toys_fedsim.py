"""W5 and W6 through `fs.run`, the clock on; W7, the flow model alone; W8, 100 phones, the timeline alone."""

from __future__ import annotations

import json
import time
from functools import partial

import numpy as np
import toys

import fedsim as fs

BOTH = fs.Inline(threads=2)


PHONES = fs.devices.lognormal(median_step_s=0.05, sigma=0.5)
# Of W5: what a realistic system adds.
REALISTIC = {
    "bernoulli": {"participation": fs.participation.bernoulli(0.5)},
    "uniform": {"participation": fs.participation.uniform(10)},
    "devices": {"devices": PHONES},
    "deadline": {"devices": PHONES, "participation": fs.participation.deadline(0.2, of=20)},
    "Elias": {"codec": fs.codecs.Elias(toys.LEVELS)},
    "w2 every round": {"metrics": ("w2",), "record": fs.Record(every=1000)},
}


def theta(problem, algorithm, rounds, replicas, **more):
    star = fs.topologies.star(clients=problem.clients, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
    more = {"record": fs.Record(every=rounds, rounds_every=rounds), **more}
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm, network=star, budget=fs.Budget(rounds=rounds), replicas=replicas,
        seed=1, dtype="float32", **more,
    )  # fmt: skip
    return fs.run(scenario, runtime=BOTH).samples[-1]


def qlsd(rounds, codec=None, **more):
    problem = fs.problems.GaussianMean(toys.POINTS, np.eye(50))
    algorithm = fs.algorithms.QLSD(
        toys.STEP, batch_size=tuple(map(int, toys.ROWS)), codec=codec or fs.codecs.QSGD(toys.LEVELS)
    )
    return theta(problem, algorithm, rounds, toys.W5_REPLICAS, **more)


def fald(rounds):
    problem = fs.problems.GaussianMean([centre[None] for centre in toys.CENTRES], toys.COVARIANCE)
    weight = 1 / len(toys.CENTRES)  # the algorithm divides by it
    algorithm = fs.algorithms.FALD(toys.LOCAL_STEP * weight, local_steps=toys.LOCAL_STEPS)
    return theta(problem, algorithm, rounds, toys.W6_REPLICAS)


def least(run, repeats=3):
    run()
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def flows():
    """10,000 flows on a graph of 200 links; 4,000 on one."""
    draw = np.random.default_rng(0)
    capacities, bits = draw.uniform(1e6, 1e8, 200), draw.uniform(1e5, 1e7, 10_000)
    routes = [draw.choice(200, draw.integers(1, 6), replace=False).tolist() for _ in bits]
    starts = draw.uniform(0, 10, 10_000)
    graph = least(lambda: fs.network.finish_times(capacities, routes, bits, starts), 1)
    one = least(lambda: fs.network.finish_times([1e9], [[0]] * 4000, bits[:4000], starts[:4000]), 1)
    return {"W7, 200 links": {"seconds": graph}, "W7, one link": {"seconds": one}}


def phones(policy):
    scenario = fs.Scenario(
        problem=fs.problems.Payload(100, 10_000), algorithm=fs.algorithms.FedAvg(0.1),
        network=fs.topologies.star(clients=100, uplink_bps=5e6, downlink_bps=2e7, latency_s=0.05),
        devices=fs.devices.lognormal(median_step_s=0.05, sigma=0.7, dropout=0.02), participation=policy,
        budget=fs.Budget(rounds=300), seed=1,
    )  # fmt: skip
    options = {"timing_only": True, "runtime": fs.Inline(threads=1), "clock": "compiled"}
    visits = int(fs.run(scenario, **options).rounds["selected"].sum())
    return {"seconds": least(lambda: fs.run(scenario, **options), 2) / visits}


if __name__ == "__main__":
    timings = {"W5": toys.timed(qlsd, 1000, toys.UNITS["W5"]), "W6": toys.timed(fald, 100, toys.UNITS["W6"]), **flows()}
    timings |= {
        f"W5, {name}": toys.timed(partial(qlsd, **more), 1000, toys.UNITS["W5"]) for name, more in REALISTIC.items()
    }
    timings["W8, buffered(10)"] = phones(fs.participation.buffered(10))
    timings["W8, deadline"] = phones(fs.participation.deadline(0.5, of=50))
    print(json.dumps(timings))
