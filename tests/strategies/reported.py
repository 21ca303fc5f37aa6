"""A small scenario that has something to show in every section of a report."""

from __future__ import annotations

import fedsim as fs


def small(policy=None, rounds=6, **fields):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, dim=2, heterogeneity=0.3, samples=10, seed=4),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        network=fs.topologies.star(4, uplink_bps=1e4, downlink_bps=5e4, latency_s=0.02),
        devices=fs.devices.lognormal(median_step_s=0.01, sigma=0.3, dropout=0.1),
        participation=policy or fs.participation.full(),
        budget=fs.Budget(rounds=rounds),
        replicas=3,
        seed=1,
        metrics=("mean_error",),
        record=fs.Record(events=True),
        **fields,
    )
