"""What a sweep will take, from one run that is timed and thrown away."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fedsim.errors import FedsimError
from fedsim.running import run
from fedsim.runtime.inline import Inline
from fedsim.scenario_file import load_source
from fedsim.sweeps.plan import Order, Plan

WARM_S = 10.0  # a run shorter than this is timed a second time, without the compilation of kernels


@dataclass(frozen=True)
class Estimate:
    """One run: real seconds on one thread, and what its folder takes."""

    real_s: float
    bytes: int


def estimate(plan: Plan, orders: tuple[Order, ...]) -> Estimate:
    """Time the run in the middle of the grid, where it is neither the smallest nor the largest."""
    file = load_source(Path(plan.file), plan.source, plan.folder, plan.modules)
    settings = orders[len(orders) // 2].settings
    spent = 0.0
    for attempt in range(2):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            scenario = file.build(settings)
            with file.blamed(FedsimError):
                run(scenario, runtime=Inline(threads=1), out=Path(folder) / "run", source=file.origin(settings))
            spent = time.perf_counter() - began
            size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        if attempt or spent > WARM_S:
            break
    return Estimate(spent, size)
