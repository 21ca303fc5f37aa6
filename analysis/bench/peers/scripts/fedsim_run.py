"""fedsim itself: FedAvg through `fs.run`, inline or on Ray, with or without the virtual clock."""

from __future__ import annotations

from typing import Any

import numpy as np
from workloads import Record

import fedsim as fs


class Watch:
    """Notes when rounds are done, as many at a time as the run takes at a go."""

    sparse = True

    def __init__(self, record: Record) -> None:
        self.record = record

    def __call__(self, progress: Any) -> None:
        self.record.ended(progress.round)


def main() -> None:
    record = Record(threads=1, clock=1, ray=0)
    w, given = record.workload, record.given
    x, y = record.load()
    offsets = np.arange(w.clients + 1) * w.samples
    problem = (
        fs.problems.SoftmaxRegression.from_arrays(x, y, offsets, classes=w.classes)
        if w.kind == "softmax"
        else fs.problems.LinearRegression.from_arrays(x, y, offsets)
    )
    star = fs.topologies.star(clients=w.clients, uplink_bps=1e7, downlink_bps=1e8, latency_s=0.02)
    scenario = fs.Scenario(
        problem=problem,
        # The workloads' linear loss is the squared residual, ours half of it.
        algorithm=fs.algorithms.FedAvg(
            step_size=w.lr * (1 if w.kind == "softmax" else 2), local_steps=w.steps, batch_size=w.batch
        ),
        network=star if given.clock else None,
        devices=fs.devices.lognormal(median_step_s=1e-3, sigma=0.5) if given.clock else None,
        participation=fs.participation.full() if w.cohort == w.clients else fs.participation.uniform(w.cohort),
        budget=fs.Budget(rounds=w.rounds),
        record=fs.Record(every=w.rounds),
        seed=1, dtype="float32",
    )  # fmt: skip
    runtime = fs.Ray(hosts=2) if given.ray else fs.Inline(threads=given.threads)
    record.begin()
    result = fs.run(scenario, runtime=runtime, observers=[Watch(record)])
    theta = result.samples[-1, 0]
    weights = theta[: w.features * w.classes].reshape(w.features, w.classes)
    record.write([weights, theta[w.features * w.classes :]], int(result.rounds["arrived"].sum()))


if __name__ == "__main__":
    main()
