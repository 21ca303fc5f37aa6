"""A scenario whose clients differ in all that a client host is given, also for a process of its own."""

from __future__ import annotations

import numpy as np

import fedsim as fs

CLIENTS = 6

POLICIES = {
    "full": fs.participation.full(),
    "first": fs.participation.first(2, of=4),
    "buffered": fs.participation.buffered(2),
}


def scenario(policy=None, algorithm=None, rounds=8, **more):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(CLIENTS, 2, 4.0, 20, seed=1),
        algorithm=algorithm or fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        budget=fs.Budget(rounds=rounds),
        participation=policy or fs.participation.full(),
        network=fs.topologies.star(
            CLIENTS, uplink_bps=np.arange(1, CLIENTS + 1) * 1e5, downlink_bps=1e6, latency_s=np.arange(CLIENTS) * 1e-3
        ),
        devices=fs.devices.constant(1e-2, dropout=np.linspace(0, 0.3, CLIENTS)),
        replicas=2,
        seed=3,
        **more,
    )
