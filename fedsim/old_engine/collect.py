"""From a finished run to its `Result`, with a manifest that says what was run, on what, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Arrays
from fedsim.engine.manifest import described
from fedsim.engine.sites import SiteNetwork
from fedsim.exchanges import Gossip
from fedsim.metrics.sampling import common_start
from fedsim.network import Network
from fedsim.old_engine.run import Run
from fedsim.protocols import PrivacyGuarantee, Runtime
from fedsim.results import Result, cpu_features, versions
from fedsim.runtime.blas import blas_kernels
from fedsim.topologies.star import Star

if TYPE_CHECKING:
    import pandas as pd


def collect(run: Run, runtime: Runtime, real_s: float, more: dict[str, Any] | None = None) -> Result:
    """Tables and samples of all replicas."""
    import pandas as pd

    world, recorder = run.world, run.recorder
    rounds = pd.DataFrame(recorder.frame())
    rounds = rounds.sort_values(["replica", "round"], ignore_index=True)
    overall = pd.DataFrame(recorder.metrics)
    if overall.empty:
        overall = pd.DataFrame(
            {"round": np.empty(0, np.int64)} | {c: np.empty(0) for c in ("seconds", "uplink_bits", "downlink_bits")}
        )
    return Result(
        samples=None if world.skip else recorder.kept_samples,
        sample_rounds=np.asarray(recorder.sample_rounds, np.int64),
        lengths=recorder.lengths,
        stopped_by=tuple(run.accounts.stopped_by),
        rounds=rounds,
        metrics=overall,
        clients=pd.DataFrame({"client": np.arange(world.population)} | _totals(run), copy=False),
        events=_events(run),
        manifest=manifest(run, runtime, real_s) | _privacy(run, rounds) | _judged(run) | (more or {}),
        replicas=tuple(int(r) for r in world.replicas),
    )


def _totals(run: Run) -> Arrays:
    """What every client's visits came to; bits between an edge and the cloud are no client's."""
    between = run.world.sites.every > 0
    return {name: total for name, total in run.accounts.totals.items() if not (between and name == "backhaul_bits")}


def _events(run: Run) -> Any:
    """The timeline of the rounds that counted."""
    import pandas as pd

    if not run.trace.kept:
        return None
    columns, order = run.trace.columns(), np.argsort(run.world.replicas)
    place = order[np.searchsorted(run.world.replicas, columns["replica"], sorter=order)]
    counted = columns["round"] <= run.recorder.closed[place]
    return pd.DataFrame({name: column[counted] for name, column in columns.items()})


def manifest(run: Run, runtime: Runtime, real_s: float) -> dict[str, Any]:
    """What was run. Real times live here and in the progress bar, never in a result."""
    world = run.world
    return {
        "format": 1,
        "scenario": described(world.scenario),
        "runtime": described(runtime),
        "network": _sketch(run),
        "clock": {"network": world.network is not None, "compute": world.devices is not None, "path": run.path},
        "versions": versions(),
        "cpu_features": cpu_features(),
        "blas_kernels": blas_kernels(),
        "real_s": real_s,
        "sites": {"count": world.sites.count, "weights": _site_weights(run)},
    }


def _sketch(run: Run) -> Any:
    """The network, with the transfers that the exchange sends over each link."""
    network, sites = run.world.scenario.parts.network, run.world.sites.network
    if network is None:
        return None
    if isinstance(sites, SiteNetwork) and isinstance(network.own, Network | Star):
        return network.own.sketch(sites.passing())
    return network.sketch()


def _site_weights(run: Run) -> list[float]:
    """Of every site's samples in theta; a cloud's only model stands for all its edges."""
    sites = run.world.sites
    return list(np.broadcast_to(sites.weights / (sites.count // sites.models), (sites.count,)).tolist())


def _judged(run: Run) -> dict[str, Any]:
    """What the metrics' columns are of (`judged`), and where a figure says less than it seems (`warnings`)."""
    if run.world.skip:
        return {"judged": {}, "warnings": []}
    columns = [name for metric in run.evaluator.metrics for name in metric.columns]
    doubts = run.evaluator.doubts() + (common_start(run.world.scenario.starts) if "rhat" in columns else [])
    return {"judged": run.evaluator.about(), "warnings": doubts}


def _privacy(run: Run, rounds: pd.DataFrame) -> dict[str, Any]:
    """What the algorithm promises its clients, and what the accountant says was spent; nothing where there is neither.

    `spent.epsilon` is the worst client's, one for each replica, of the rounds that count; 0 where none does.
    """
    privacy: dict[str, Any] = {}
    scenario = run.world.scenario
    if isinstance(scenario.algorithm, PrivacyGuarantee):
        privacy["guarantee"] = described(scenario.algorithm.guarantee(scenario.problem))
    if run.evaluator.ledger is not None and not run.world.skip:
        none = np.full(len(rounds), np.nan)  # no round has counted
        last = rounds.assign(epsilon=rounds.get("epsilon", none)).groupby("replica")["epsilon"].max()  # it never falls
        privacy["spent"] = {
            "accountant": "Renyi divergences of the uploads that began, substitution of one row",
            "delta": run.evaluator.ledger.delta,
            "seen_by": "every neighbour" if isinstance(scenario.exchange, Gossip) else "the server",
            "epsilon": last.reindex(run.world.replicas).fillna(0.0).tolist(),
        }
    elif privacy:
        privacy["spent"] = None  # nobody kept accounts: metrics=(fs.privacy.spent(delta),) does
    return {"privacy": privacy} if privacy else {}
