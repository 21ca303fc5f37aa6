"""A scenario for every kind of round, to be stopped and taken up again, also in a process of its own."""

from __future__ import annotations

import fedsim as fs

POLICIES = {
    "lockstep": fs.participation.uniform(4),
    "events": fs.participation.first(3, of=6),
    "buffered": fs.participation.buffered(3),
    "buffered of": fs.participation.buffered(3, of=5),
}


def scenario(policy="lockstep", rounds=24, trace=False, **more):
    problem = fs.problems.GaussianMean.synthetic(8, 2, 4.0, 20, seed=1)
    return fs.Scenario(
        problem=problem,
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        budget=fs.Budget(rounds=rounds),
        participation=POLICIES[policy],
        devices=fs.devices.lognormal(1e-2, sigma=0.5, dropout=0.1),
        metrics=("mean_error",),
        record=fs.Record(events=trace, rounds_every=3),
        replicas=3,
        seed=3,
        **more,
    )
