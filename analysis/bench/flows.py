"""Time the flow model: `python analysis/bench/flows.py [FLOWS]`, in seconds of processor time.

`python analysis/bench/flows.py --simgrid [PYTHON]` is W7: 10,000 flows on a graph of 200 links and 4,000 on one link,
compared with SimGrid (Debian's python3-simgrid; PYTHON is its interpreter, /usr/bin/python3 by default).
A time counts only if all finishing times agree to 1e-9.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsim.network import finish_times

REPEATS = 5  # of fedsim; the median counts
LIMIT_S = 1800  # for SimGrid


def cases(n: int) -> Iterator[tuple[str, tuple[object, ...]]]:
    draw = np.random.default_rng(0)
    bits, together, apart = draw.integers(1_000, 1_000_000, n).astype(float), np.zeros(n), draw.random(n)
    own, hub = [[i] for i in range(n)], [[i, n] for i in range(n)]
    access = draw.uniform(1e5, 1e6, n)
    edge = n + draw.integers(0, 100, n)
    edges = draw.uniform(1e7, 5e7, 100)
    two_tiers = [[i, int(e)] for i, e in enumerate(edge)]
    three_tiers = [[i, int(e), n + 100] for i, e in enumerate(edge)]
    mesh = [draw.choice(200, 4, replace=False).tolist() for _ in range(n)]
    yield "one shared link, all at once", ([1e9], [[0]] * n, bits, together)
    yield "one shared link, random starts", ([1e9], [[0]] * n, bits, apart)
    yield "every flow on its own link", (access, own, bits, apart)
    yield "wide access links to a shared link", ([*[1e9] * n, 1e9], hub, bits, apart)
    yield "narrow access links to a shared link", ([*access, 1e9], hub, bits, apart)
    yield "tree of 100 edges", ([*access, *edges], two_tiers, bits, apart)
    yield "tree of 100 edges and a core link", ([*access, *edges, 1e9], three_tiers, bits, apart)
    yield "mesh of 200 links, spread out", (draw.uniform(1e7, 5e7, 200), mesh, bits, 100 * apart)
    yield "mesh of 200 links, all at once", (draw.uniform(1e7, 5e7, 200), mesh, bits, apart)


def has_simgrid(python: str) -> bool:
    """Return True if this interpreter can import SimGrid."""
    try:
        return subprocess.run([python, "-c", "import simgrid"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def against_simgrid(python: str, limit_s: float = LIMIT_S) -> dict[str, float]:
    """Return fedsim's time over SimGrid's for W7, where SimGrid finished within the limit."""
    found = {}
    chosen = {name: case for name, case in cases(10_000) if name == "mesh of 200 links, all at once"}
    chosen |= {name: case for name, case in cases(4_000) if name == "one shared link, random starts"}
    print(f"{'W7':48}{'fedsim':>10}{'SimGrid':>10}{'ratio':>8}{'differ by':>12}")
    for name, case in chosen.items():
        capacities, routes, bits, starts = case
        question = {
            "capacities": np.asarray(capacities, float).tolist(), "routes": routes,
            "bytes": np.asarray(bits, np.int64).tolist(), "starts": np.asarray(starts, float).tolist(),
        }  # fmt: skip
        script = str(Path(__file__).with_name("simgrid_flows.py"))
        samples = []
        for _ in range(1 + REPEATS):
            begin = time.process_time()
            finish = finish_times(*case)  # type: ignore[arg-type]
            samples.append(time.process_time() - begin)
        seconds, title = float(np.median(samples[1:])), f"{len(routes):,} flows, {name}"  # type: ignore[arg-type]
        try:
            done = subprocess.run(
                [python, script],
                input=json.dumps(question),
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=True,
            )
        except subprocess.TimeoutExpired:
            print(
                f"{title:48}{seconds:8.3f} s   not finished after {limit_s:g} s, more than {limit_s / seconds:.0f} x",
                flush=True,
            )
            continue
        answer = json.loads(done.stdout)
        apart = float(np.abs(finish / np.array(answer["finish"]) - 1).max())
        if apart > 1e-9:
            raise SystemExit(f"{name}: finishing times differ by {apart:.2g}; the times do not count")
        other = answer["seconds"]
        print(f"{title:48}{seconds:8.3f} s{other:8.2f} s{other / seconds:8.1f}{apart:12.1e}", flush=True)
        found[f"W7, {title}, fedsim over SimGrid"] = seconds / other
    return found


def main() -> None:
    compiled = [draw for _, draw in cases(1_000)]
    for case in (*compiled, ([2.0, 3.0, 4.0], [[0, 2], [1, 2]], 1.0, 0.0)):
        finish_times(*case)  # type: ignore[arg-type]
    if sys.argv[1:2] == ["--simgrid"]:
        against_simgrid(sys.argv[2] if len(sys.argv) > 2 else "/usr/bin/python3")
        return
    for name, case in cases(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000):
        begin = time.process_time()
        finish_times(*case)  # type: ignore[arg-type]
        print(f"{name:40}{time.process_time() - begin:8.2f} s")


if __name__ == "__main__":
    main()
