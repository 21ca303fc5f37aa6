"""How the time of a round grows: a table for each thing that can grow, and the exponent fitted to it.

    python -m analysis.bench.scaling [--quick] [--out DIR] [--against FILE]

population 10^2..10^6 with 100 a round; participants 10..10^4; local steps 1..1000; dimension 10..10^6; replicas
1..10^3; Ray hosts 1..2. Seconds a round are medians without the first rounds; the exponent is the slope of log seconds
over log size, of the upper half of the sizes, where fixed costs no longer hide it. --quick stops each two sizes early and
leaves Ray out. Leaves scaling.parquet and exponents.json; the guard flags exponents that grew, see `guard.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fedsim as fs
from analysis.bench import guard

ROUNDS = 12
WARMUP = 3


def seconds(scenario: fs.Scenario, runtime: Any = None) -> float:
    """The median round's real seconds."""
    ends: list[float] = []
    fs.run(scenario, runtime=runtime or fs.Inline(threads=1), observers=[lambda _: ends.append(time.perf_counter())])
    return float(np.median(np.diff(ends)[WARMUP:]))


def regression(clients: int, dim: int = 20, rows: int = 20) -> Any:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((clients * rows, dim), dtype=np.float32)
    y = draw.standard_normal(clients * rows, dtype=np.float32)
    return fs.problems.LinearRegression.from_arrays(x, y, np.arange(clients + 1) * rows)


def scenario(problem: Any, asked: int | None = None, steps: int = 1, replicas: int = 1) -> fs.Scenario:
    """FedAvg on a star of lognormal devices, the clock on."""
    return fs.Scenario(
        problem=problem, algorithm=fs.algorithms.FedAvg(1e-3, local_steps=steps, batch_size=10),
        network=fs.topologies.star(clients=problem.clients, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02),
        devices=fs.devices.lognormal(median_step_s=1e-3, sigma=0.5),
        participation=fs.participation.full() if asked is None else fs.participation.uniform(asked),
        budget=fs.Budget(rounds=ROUNDS), record=fs.Record(every=ROUNDS), replicas=replicas, seed=1, dtype="float32",
    )  # fmt: skip


Timed = Callable[[int], float]
AXES: dict[str, tuple[list[int], Timed]] = {
    "population": ([100, 1000, 10_000, 100_000, 1_000_000], lambda n: seconds(scenario(regression(n, 5, 10), 100))),
    "participants": ([10, 100, 1000, 10_000], lambda n: seconds(scenario(regression(10_000), n))),
    "local steps": ([1, 10, 100, 1000], lambda n: seconds(scenario(regression(100), steps=n))),
    "dimension": ([10, 100, 1000, 10_000, 100_000, 1_000_000], lambda n: seconds(scenario(regression(4, n, 10)))),
    "replicas": ([1, 10, 100, 1000], lambda n: seconds(scenario(regression(10), replicas=n))),
}
HOSTS = ([1, 2], lambda n: seconds(scenario(regression(1000), steps=50), fs.Ray(hosts=n)))


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope over the upper half of the sizes, two at least."""
    upper = max(2, (len(sizes) + 1) // 2)
    return float(np.polyfit(np.log(sizes[-upper:]), np.log(times[-upper:]), 1)[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/scaling"))
    parser.add_argument("--against", type=Path, metavar="FILE")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    axes = (
        {name: (sizes[:-2], timed) for name, (sizes, timed) in AXES.items()}
        if given.quick
        else {**AXES, "hosts": HOSTS}
    )
    rows, slopes = [], {}
    for name, (sizes, timed) in axes.items():
        times = [timed(n) for n in sizes]
        rows += [{"axis": name, "size": n, "seconds": t} for n, t in zip(sizes, times, strict=True)]
        slopes[name] = exponent(sizes, times)
        print(f"{name:13}" + "".join(f"{n:>10,}: {1e3 * t:8.2f} ms" for n, t in zip(sizes, times, strict=True)))
        print(f"{'':13}grows as size ** {slopes[name]:.2f}", flush=True)
    pd.DataFrame(rows).to_parquet(given.out / "scaling.parquet")
    growth = {name: 10**slope for name, slope in slopes.items()}  # what ten times the size costs: never negative
    code = guard.check(growth, given.against)  # before that very file may be written anew
    guard.save(growth, given.out / "exponents.json")
    return code


if __name__ == "__main__":
    sys.exit(main())
