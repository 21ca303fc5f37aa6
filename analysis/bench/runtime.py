"""What the Ray runtime costs and gains, in one run.

    python analysis/bench/runtime.py

Softmax regression 784x10, 10 clients, 50 local steps of batch 200: two hosts against one. Overhead a round over inline for
small jobs. How long 1,000 clients on two hosts take to start, beyond Ray's own start.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

import fedsim as fs
from fedsim.runtime.ray import OWN


def round_times(scenario: fs.Scenario, runtime: Any) -> tuple[np.ndarray, float]:
    """Real seconds between rounds, and from the call to the end of the first round."""
    ends: list[float] = []
    began = time.perf_counter()
    fs.run(scenario, runtime=runtime, observers=[lambda _: ends.append(time.perf_counter())])
    return np.diff(ends), ends[0] - began


def _best(scenario: fs.Scenario, *runtimes: Any, repeats: int) -> list[float]:
    """The least median round of each, taken in turn, so that a busy moment of the machine spoils neither side."""
    times = [[np.median(round_times(scenario, r)[0]) for r in runtimes] for _ in range(repeats)]
    return [float(t) for t in np.min(times, axis=0)]


def speedup() -> None:
    problem = fs.problems.SoftmaxRegression.synthetic(10, 784, 10, 600, dtype=np.float32, test_samples=0)
    algorithm = fs.algorithms.FedAvg(step_size=0.1, local_steps=50, batch_size=200)
    scenario = fs.Scenario(problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=12), dtype="float32")
    one, two = _best(scenario, fs.Ray(hosts=1), fs.Ray(hosts=2), repeats=4)
    print(
        f"softmax, 50 steps of batch 200   one host {one * 1e3:6.0f} ms a round   two {two * 1e3:6.0f} ms   {one / two:4.2f} x  (at least 1.8)"
    )


def overhead(dim: int, target_ms: float) -> None:
    problem = _light(dim)
    algorithm = fs.algorithms.FedAvg(step_size=1e-3, local_steps=1, batch_size=1)
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=200), record=fs.Record(every=200)
    )
    inline, ray = _best(scenario, fs.Inline(threads=1), fs.Ray(hosts=2), repeats=4)
    print(
        f"d = {dim:5,}   inline {inline * 1e3:5.2f} ms a round   2 hosts {ray * 1e3:5.2f} ms   overhead {(ray - inline) * 1e3:5.2f} ms  (at most {target_ms:g})"
    )


def _light(dim: int) -> Any:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(20, dim)), generator.normal(size=20)
    return fs.problems.LinearRegression.from_arrays(x, y, np.arange(0, 21, 2))


def start_up() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(2000, 10)), generator.normal(size=2000)
    problem = fs.problems.LinearRegression.from_arrays(x, y, np.arange(0, 2001, 2))
    algorithm = fs.algorithms.FedAvg(step_size=1e-3, local_steps=1, batch_size=1)
    scenario = fs.Scenario(problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=2))
    _, first = round_times(replace(scenario, seed=1), fs.Ray(hosts=2))
    print(f"1,000 clients on 2 hosts: first round after {first:4.1f} s beyond Ray's own start  (under 10)")


if __name__ == "__main__":
    import ray

    began = time.perf_counter()
    ray.init(num_cpus=4, **OWN)
    print(f"Ray itself starts in {time.perf_counter() - began:.1f} s")
    speedup()
    overhead(100, 6)
    overhead(1000, 6)
    overhead(7850, 12)
    start_up()
    ray.shutdown()
