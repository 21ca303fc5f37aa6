"""fedsim beside FedJAX, pfl-research, fluke, Flower and a bare NumPy loop, in one command.

    python -m analysis.bench.peers --prepare              # the peers' environments, from the package index
    python -m analysis.bench.peers                        # all tools: W1 to W4 in at most --limit seconds, 15 minutes
    python -m analysis.bench.peers --quick                # fedsim and the bare loop, one turn, two minutes
    python -m analysis.bench.peers --peers fedjax --loads W1,W2 --turns 5 --against ratios.json

W1 to W4 (`workloads.py`) are FedAvg in float32 with fixed seeds; contenders take turns, and medians over turns count.
W5 and W6 (`toys.py`) are timed against NumPy and, where FedJAX's environment is there, a jitted JAX script. W7 is the
flow model alone, beside SimGrid where Debian's python3-simgrid is there, W8 the timeline alone. Leaves peers.parquet,
peers.png, peers.md, toys.json and ratios.json in --out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.bench import flows, guard
from analysis.bench.peers import report
from analysis.bench.peers.environments import BARE, OURS, PEERS, python_of
from analysis.bench.peers.measure import HERE, run
from analysis.bench.peers.turns import Plan
from analysis.bench.peers.workloads import WORKLOADS, make_data

SIMGRID, SIMGRID_LIMIT_S = "/usr/bin/python3", 60.0  # of each case
SAME_MEAN = 0.2  # root mean square over coordinates: what the fewest replicas' noise allows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/peers"))
    parser.add_argument("--peers", default=",".join(PEERS), help="of " + ",".join(PEERS))
    parser.add_argument("--loads", default=",".join(WORKLOADS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="of one run")
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="of W1 to W4 together")
    parser.add_argument("--prepare", action="store_true", help="make the environments, and nothing else")
    parser.add_argument("--quick", action="store_true", help="one turn of fedsim inline and the bare loop")
    parser.add_argument("--no-toys", action="store_true", help="leave W5 to W8 out")
    parser.add_argument("--against", type=Path, metavar="FILE", help="a ratios.json: say what got 1.3 x worse")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="put the small table into this page, between its marks"
    )
    given = parser.parse_args()
    if given.quick:
        given.peers, given.turns = ",".join(name for name in OURS if "Ray" not in name), 1
    return given


def contenders(names: str, folder: Path) -> dict[str, Any]:
    """Who can run: (interpreter, peer) by name."""
    ready: dict[str, Any] = {name: (sys.executable, peer) for name, peer in BARE.items()}
    for name, peer in PEERS.items():
        if name not in names.split(","):
            continue
        try:
            ready[name] = (python_of(name, peer, folder), peer)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"{name} is left out: {error}")
    return ready


def compile_ours(loads: list[str], data: Path) -> None:
    """Once for every kind of model, not timed: kernels are compiled and kept, as after anybody's first run."""
    for load in {WORKLOADS[load].kind: load for load in loads}.values():
        run(sys.executable, OURS["fedsim"], load, data, 600)


def rounds(given: argparse.Namespace, ready: dict[str, Any], data: Path, until: float) -> pd.DataFrame:
    """Every contender on every workload, in turns; later ones as far as the time goes, see `turns.py`."""
    pairs = [(load, name) for load in given.loads.split(",") for name in ready]
    pairs.sort(key=lambda pair: ready[pair[1]][1].slow)  # all others first
    plan, rows = Plan(pairs, given.turns, until), []
    for turn in range(given.turns):
        for load, name in plan.turn(turn, time.monotonic()):
            python, peer = ready[name]
            began = time.monotonic()
            if began > until:
                print(f"{load} {name} is left out: the time is up", flush=True)
                plan.drop(load, name)
                continue
            measured = run(python, peer, load, data, min(given.timeout, max(10.0, until - began)))
            if "failed" in measured:
                print(f"{load} {name} failed: {measured['failed']}", flush=True)
                plan.drop(load, name)
                continue
            plan.took(load, name, time.monotonic() - began)
            rows.append({"load": load, "who": name, "turn": turn, **measured})
            print(
                f"{load} {name:18} {1e3 * measured['s_per_round']:10.3f} ms a round  loss {measured['loss']:.4f}",
                flush=True,
            )
    return pd.DataFrame(rows)


def toys(folder: Path) -> dict[str, dict[str, Any]]:
    """Seconds of each form of W5 to W8, by script."""
    jax = folder / "fedjax" / "bin" / "python"
    timings = {}
    for name, python in (("numpy", sys.executable), ("jax", str(jax)), ("fedsim", sys.executable)):
        if not Path(python).exists():
            continue
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[2])])}
        script = str(HERE / "scripts" / f"toys_{name}.py")
        done = subprocess.run([python, script], capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            print(f"{name}'s toys failed: {done.stderr.strip()[-300:]}")
            continue
        timings[name] = json.loads(done.stdout.splitlines()[-1])
    return timings


def compare_toys(timings: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Print times and return ours over the others', where the replicas ended up in the same place."""
    found, ours = {}, timings.get("fedsim", {})
    for load, mine in ours.items():
        print(f"{load:18} fedsim {mine['seconds'] * 1e9:12.2f} ns a unit")
        for name in ("numpy", "jax"):
            other = timings.get(name, {}).get(load)
            if other is None:
                continue
            apart = float(np.sqrt(np.mean(np.subtract(mine["mean"], other["mean"]) ** 2)))
            counts = apart <= SAME_MEAN
            speed = other["seconds"] / mine["seconds"]
            print(f"{'':18} {name:6} {other['seconds'] * 1e9:12.2f} ns, {speed:.1f} x ours")
            if counts:
                found[f"{load}, fedsim over {name}"] = 1 / speed
            else:
                print(f"{'':18} does not count: the means are {apart:.2f} apart")
    return found


def all_toys(out: Path, environments: Path) -> dict[str, float]:
    """W5 to W8, and their ratios."""
    timings = toys(environments)
    (out / "toys.json").write_text(json.dumps(timings, indent=1) + "\n")
    found = compare_toys(timings)
    if flows.has_simgrid(SIMGRID):
        found |= flows.against_simgrid(SIMGRID, SIMGRID_LIMIT_S)
    else:
        print(f"SimGrid is left out: {SIMGRID} cannot import it (Debian: python3-simgrid)")
    return found


def main() -> int:
    given = arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    data, environments = given.out / "data", given.out / "environments"
    make_data(data)
    ready = contenders(given.peers, environments)
    if given.prepare:
        return 0
    compile_ours(given.loads.split(","), data)
    found = {} if given.no_toys else all_toys(given.out, environments)
    rows = rounds(given, ready, data, time.monotonic() + given.limit)
    kinds, updates = {n: w.kind for n, w in WORKLOADS.items()}, {n: w.rounds * w.cohort for n, w in WORKLOADS.items()}
    table = report.summary(rows, kinds, updates)
    table.to_parquet(given.out / "peers.parquet")
    report.plot(table, given.out / "peers.png")
    print(report.markdown(table))
    (given.out / "peers.md").write_text(report.small(table) + "\n")
    if given.page is not None:
        given.page.write_text(report.put_into(given.page.read_text(), report.small(table)))
    found |= report.ratios(table)
    code = guard.check(found, given.against)  # before that very file may be written anew
    guard.save(found, given.out / "ratios.json")
    return code


if __name__ == "__main__":
    sys.exit(main())
