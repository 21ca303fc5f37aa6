"""What the Ray runtime costs and gains, in one run.

    python analysis/bench/runtime.py

Softmax regression 784x10, 10 clients, 50 local steps of batch 200: two hosts against one, and beside it what the machine
gives two processes that have nothing to do with each other. Overhead a round over inline for
small jobs. How long 1,000 clients on two hosts take to start, beyond Ray's own start.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedsim as fs
from fedsim.runtime.ray.private import OPTIONS, REPLIES


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


def _softmax(clients: int) -> fs.Scenario:
    problem = fs.problems.SoftmaxRegression.synthetic(clients, 784, 10, 600, dtype=np.float32, test_samples=0)
    algorithm = fs.algorithms.FedAvg(step_size=0.1, local_steps=50, batch_size=200)
    return fs.Scenario(problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=12), dtype="float32")


def _alone(clients: int) -> float:
    """The median round in a process of its own, on one thread."""
    with threadpool_limits(1):
        return float(np.median(round_times(_softmax(clients), fs.Inline(threads=1))[0]))


def speedup() -> None:
    """Two hosts against one; and two processes that know nothing of each other against one, all taken in turn."""
    scenario, hosts, processes = _softmax(10), [], []
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_alone, [5, 5]))  # starts both
        for _ in range(4):
            hosts.append([np.median(round_times(scenario, fs.Ray(hosts=h))[0]) for h in (1, 2)])
            processes.append([pool.submit(_alone, 10).result(), max(pool.map(_alone, [5, 5]))])
    (one, two), (whole, halves) = np.min(hosts, axis=0), np.min(processes, axis=0)
    print(
        f"softmax, 50 steps of batch 200   one host {one * 1e3:6.0f} ms a round   two {two * 1e3:6.0f} ms   {one / two:4.2f} x  (at least 1.8)"
    )
    print(
        f"        without Ray, one process {whole * 1e3:6.0f} ms a round   two {halves * 1e3:6.0f} ms   {whole / halves:4.2f} x"
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
    ray.init(num_cpus=4, _system_config=dict(REPLIES), **OPTIONS)
    print(f"Ray itself starts in {time.perf_counter() - began:.1f} s")
    speedup()
    overhead(100, 6)
    overhead(1000, 6)
    overhead(7850, 12)
    start_up()
    ray.shutdown()
