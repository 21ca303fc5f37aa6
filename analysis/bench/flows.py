"""How long the flow model needs: `python analysis/bench/flows.py [FLOWS]`, seconds of processor time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np

from fedsim.network import finish_times


def cases(n: int) -> Iterator[tuple[str, tuple[object, ...]]]:
    draw = np.random.default_rng(0)
    bits, together, apart = draw.integers(1_000, 1_000_000, n).astype(float), np.zeros(n), draw.random(n)
    own, hub = [[i] for i in range(n)], [[i, n] for i in range(n)]
    access = draw.uniform(1e5, 1e6, n)
    edge = n + draw.integers(0, 100, n)
    edges = draw.uniform(1e7, 5e7, 100)
    two_tiers = [[i, int(e)] for i, e in enumerate(edge)]
    three_tiers = [[i, int(e), n + 100] for i, e in enumerate(edge)]
    mesh = [draw.choice(200, 4, replace=False) for _ in range(n)]
    yield "one shared link, all at once", ([1e9], [[0]] * n, bits, together)
    yield "one shared link, random starts", ([1e9], [[0]] * n, bits, apart)
    yield "everybody alone", (access, own, bits, apart)
    yield "wide access links to a shared link", ([*[1e9] * n, 1e9], hub, bits, apart)
    yield "narrow access links to a shared link", ([*access, 1e9], hub, bits, apart)
    yield "tree of 100 edges", ([*access, *edges], two_tiers, bits, apart)
    yield "tree of 100 edges and a core link", ([*access, *edges, 1e9], three_tiers, bits, apart)
    yield "mesh of 200 links, spread out", (draw.uniform(1e7, 5e7, 200), mesh, bits, 100 * apart)
    yield "mesh of 200 links, all at once", (draw.uniform(1e7, 5e7, 200), mesh, bits, apart)


def main() -> None:
    flows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    finish_times([2.0, 3.0, 4.0], [[0, 2], [1, 2]], 1.0, 0.0)  # compiles
    for name, case in cases(flows):
        begin = time.process_time()
        finish_times(*case)  # type: ignore[arg-type]
        print(f"{name:40}{time.process_time() - begin:8.2f} s")


if __name__ == "__main__":
    main()
