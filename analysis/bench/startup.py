"""What it takes to begin: `python analysis/bench/startup.py`, seconds by the wall clock, warm caches.

`fedsim --help`; a run of two rounds in this process; sweeps of tiny runs, of which one more costs the difference
between a long sweep and a short one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import fedsim as fs

TURNS, FEW, MANY = 5, 20, 220
TINY = {"rounds": 5, "replicas": 2}


def main() -> None:
    command = [str(Path(sys.executable).with_name("fedsim")), "--help"]
    shown = seconds(lambda: subprocess.run(command, capture_output=True, check=True))
    print(f"fedsim --help                       {shown:8.2f} s    (up to 0.4)")
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(10, dim=2, samples=5),
        algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
        network=fs.topologies.star(clients=10, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02),
        budget=fs.Budget(rounds=2),
        replicas=2,
    )
    print(f"a run of two rounds, in a process   {1e3 * seconds(lambda: fs.run(scenario)):8.2f} ms")
    few, many = swept(FEW), swept(MANY)
    print(f"a sweep of {FEW} tiny runs             {few:8.2f} s")
    print(f"a sweep of {MANY} tiny runs            {many:8.2f} s    {1e3 * many / MANY:.1f} ms each")
    print(f"one more of them                    {1e3 * (many - few) / (MANY - FEW):8.2f} ms   (up to 30)")


def seconds(work: Callable[[], object]) -> float:
    """The median after a first time."""
    work()
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


def swept(runs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        fs.sweep("quickstart", {"seed": range(runs)}, out=Path(folder) / "runs", settings=TINY)
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
