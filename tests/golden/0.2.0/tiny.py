"""A small run: two samplers' settings on four unequal devices."""

import numpy as np

import fedsim as fs


def scenario(*, local_steps: int = 2, rounds: int = 4) -> fs.Scenario:
    """FA-LD on a Gaussian mean over narrow links."""
    data = [np.random.default_rng(c).normal(c, 1.0, size=(5 + c, 2)) for c in range(4)]
    return fs.Scenario(
        problem=fs.problems.GaussianMean(data, covariance=np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=local_steps),
        network=fs.topologies.star(clients=4, uplink_bps=1e4, downlink_bps=1e5, latency_s=0.01),
        devices=fs.devices.lognormal(median_step_s=1e-2, sigma=0.5, dropout=0.1),
        participation=fs.participation.first(2, of=3),
        budget=fs.Budget(rounds=rounds),
        replicas=3,
        seed=1,
        metrics=("w2",),
    )
