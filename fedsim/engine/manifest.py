"""From a finished run to its `Result`, with a manifest: what was run, on what, on which clock, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.engine.run import Run
from fedsim.old_engine.collect import described
from fedsim.protocols import PrivacyGuarantee, Runtime
from fedsim.results import Result, cpu_features, versions

if TYPE_CHECKING:
    import pandas as pd


def collect(run: Run, runtime: Runtime, real_s: float, more: dict[str, Any] | None = None) -> Result:
    """Return the tables and samples of all replicas."""
    import pandas as pd

    system, recorder = run.system, run.recorder
    rounds = pd.DataFrame(recorder.frame()).sort_values(["replica", "round"], ignore_index=True)
    overall = pd.DataFrame(recorder.metrics)
    if overall.empty:
        names = ("seconds", "uplink_bits", "downlink_bits")
        overall = pd.DataFrame({"round": np.empty(0, np.int64)} | {name: np.empty(0) for name in names})
    return Result(
        samples=None if system.timing_only else recorder.kept_samples,
        sample_rounds=np.asarray(recorder.sample_rounds, np.int64),
        lengths=recorder.lengths,
        stopped_by=tuple(run.totals.stopped_by),
        rounds=rounds,
        metrics=overall,
        clients=pd.DataFrame({"client": np.arange(system.population)} | run.totals.totals, copy=False),
        events=pd.DataFrame(run.trace.columns()) if run.trace.kept else None,
        manifest=_manifest(run, runtime, real_s) | _privacy(run, rounds) | _judged(run) | (more or {}),
        replicas=tuple(int(r) for r in system.replicas),
    )


def _manifest(run: Run, runtime: Runtime, real_s: float) -> dict[str, Any]:
    """Return what was run. Real times are here and in the progress bar, never in a result."""
    system, network, sites = run.system, run.system.scenario.parts.network, run.system.sites
    clock = {"network": system.network is not None, "compute": system.devices is not None, **run.clock_used}
    weights = np.broadcast_to(sites.weights / (sites.count // sites.models), (sites.count,))  # of a site in theta
    return {
        "format": 1,
        "scenario": described(system.scenario),
        "runtime": described(runtime),
        "network": None if network is None else network.sketch(),
        "clock": clock,
        "versions": versions(),
        "cpu_features": cpu_features(),
        "real_s": real_s,
        "sites": {"count": sites.count, "weights": weights.tolist()},
    }


def _judged(run: Run) -> dict[str, Any]:
    """Return what the metrics' columns are of (`judged`), and where a figure has a caveat (`warnings`)."""
    if run.system.timing_only:
        return {"judged": {}, "warnings": []}
    return {"judged": run.evaluator.about(), "warnings": run.evaluator.doubts()}


def _privacy(run: Run, rounds: pd.DataFrame) -> dict[str, Any]:
    """Return what the algorithm guarantees, and the worst client's epsilon of each replica, where one is accounted."""
    scenario, ledger = run.system.scenario, run.evaluator.ledger
    privacy: dict[str, Any] = {}
    if isinstance(scenario.algorithm, PrivacyGuarantee):
        privacy["guarantee"] = described(scenario.algorithm.guarantee(scenario.problem))
    if ledger is not None and "epsilon" in rounds:
        latest = rounds.groupby("replica")["epsilon"].max()  # it never falls
        privacy["spent"] = {
            "accountant": "Renyi divergences of the uploads that began, substitution of one row",
            "delta": ledger.delta,
            "seen_by": "the server",
            "epsilon": latest.reindex(run.system.replicas).tolist(),
        }
    elif privacy:
        privacy["spent"] = None  # no metric accounts for it: metrics=(fs.privacy.spent(delta),) does
    return {"privacy": privacy} if privacy else {}
