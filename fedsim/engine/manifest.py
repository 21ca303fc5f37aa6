"""The `Result` of a finished run, with its manifest: scenario, runtime, clock, versions and real times."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Arrays
from fedsim.code_digest import code_digest
from fedsim.engine.run import Run
from fedsim.engine.sites import SiteNetwork
from fedsim.exchanges import Gossip
from fedsim.metrics.mcmc import common_start
from fedsim.network import Network
from fedsim.protocols import PrivacyGuarantee, Runtime, call
from fedsim.results import Result, cpu_features, versions
from fedsim.results.checksums import to_json
from fedsim.runtime.process import blas_kernels
from fedsim.topologies.stars_and_trees import Star

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.scenario import Scenario


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
        samples=None if system.timing_only else recorder.recorded_samples,
        sample_rounds=np.asarray(recorder.sample_rounds, np.int64),
        lengths=recorder.lengths,
        stopped_by=tuple(run.totals.stopped_by),
        rounds=rounds,
        metrics=overall,
        clients=pd.DataFrame({"client": np.arange(system.population)} | _totals(run), copy=False),
        events=pd.DataFrame(run.trace.columns()) if run.trace.recorded else None,
        manifest=_manifest(run, runtime, real_s) | _privacy(run, rounds) | _judged(run) | (more or {}),
        replicas=tuple(int(r) for r in system.replicas),
    )


def _totals(run: Run) -> Arrays:
    """Return the sums of every client's visits; bits between an edge and the cloud belong to no client."""
    tiers = run.system.sites.every > 0
    return {name: total for name, total in run.totals.totals.items() if not (tiers and name == "backhaul_bits")}


def _manifest(run: Run, runtime: Runtime, real_s: float) -> dict[str, Any]:
    """Return what was run. Real times are here and in the progress bar, never in a result."""
    system, sites = run.system, run.system.sites
    clock = {
        "network": system.network is not None, "compute": system.devices is not None,
        "asynchronous": system.policy.asynchronous, **run.clock_used,
    }  # fmt: skip
    weights = np.broadcast_to(sites.weights / (sites.count // sites.models), (sites.count,))  # of a site in theta
    return {
        "format": 1,
        "scenario": described(system.scenario),
        "runtime": described(runtime),
        "network": _sketch(run),
        "clock": clock,
        "versions": versions(),
        "cpu_features": cpu_features(),
        "blas_kernels": blas_kernels(),
        "real_s": real_s,
        "sites": {"count": sites.count, "weights": weights.tolist()},
        **({"hosts": run.hosts} if run.hosts else {}),
    }


def _sketch(run: Run) -> Any:
    """Return the network, with the transfers that the exchange sends over each link."""
    network, sites = run.system.scenario.parts.network, run.system.sites.network
    if network is None:
        return None
    if isinstance(sites, SiteNetwork) and isinstance(network.wrapped, Network | Star):
        return network.wrapped.sketch(sites.passing())
    return network.sketch()


def _judged(run: Run) -> dict[str, Any]:
    """Return what the metrics' columns are of (`judged`), and where a figure has a caveat (`warnings`)."""
    if run.system.timing_only:
        return {"judged": {}, "warnings": []}
    columns = [name for metric in run.evaluator.metrics for name in metric.columns]
    warnings = run.evaluator.warnings() + (common_start(run.system.scenario.starts) if "rhat" in columns else [])
    return {"judged": run.evaluator.about(), "warnings": warnings}


def _privacy(run: Run, rounds: pd.DataFrame) -> dict[str, Any]:
    """Return what the algorithm guarantees, and the worst client's epsilon of each replica, where one is accounted.

    `spent.epsilon` is of the rounds that count; 0 where none does.
    """
    scenario, ledger = run.system.scenario, run.evaluator.ledger
    privacy: dict[str, Any] = {}
    if isinstance(scenario.algorithm, PrivacyGuarantee):
        privacy["guarantee"] = described(call(scenario.algorithm, "guarantee", scenario.problem))
    if ledger is not None and not run.system.timing_only:
        none = np.full(len(rounds), np.nan)  # no round has counted
        last = rounds.assign(epsilon=rounds.get("epsilon", none)).groupby("replica")["epsilon"].max()  # it never falls
        privacy["spent"] = {
            "accountant": "Renyi divergences of the uploads that began, substitution of one row",
            "delta": ledger.delta,
            "seen_by": "every neighbour" if isinstance(scenario.exchange, Gossip) else "the server",
            "epsilon": last.reindex(run.system.replicas).fillna(0.0).tolist(),
        }
    elif privacy:
        privacy["spent"] = None  # no metric accounts for it: metrics=(fs.privacy.spent(delta),) does
    return {"privacy": privacy} if privacy else {}


def described(value: object) -> Any:
    """A value as plain JSON: dataclasses by name and fields, arrays by shape and digest, functions by name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, range):
        return f"range({value.start}, {value.stop}, {value.step})"
    if isinstance(value, np.ndarray):
        return {"array": list(value.shape), "dtype": str(value.dtype), "digest": digest(value)}
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if isinstance(value, dict):
        return {str(k): described(v) for k, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {"type": type(value).__name__} | {f.name: described(getattr(value, f.name)) for f in fields(value)}
    if callable(value) and hasattr(value, "__qualname__"):
        return {"function": value.__qualname__}
    public = {k: v for k, v in sorted(getattr(value, "__dict__", {}).items()) if not k.startswith("_")}
    return {"type": type(value).__name__} | {k: described(v) for k, v in public.items()}


def digest(array: np.ndarray[Any, Any]) -> str:
    """16 hex digits of an array's bytes."""
    return blake2b(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, digest_size=8).hexdigest()


def identities(scenario: Scenario, timing_only: bool) -> tuple[str, str]:
    """Digests of what is computed, and of that with the versions and the CPU, which a checkpoint must agree with."""
    facts = {"scenario": described(scenario), "code": code_digest(scenario), "timing_only": timing_only}
    work = blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
    facts |= {"versions": versions(), "cpu": cpu_features()}
    return work, blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def describes(recorded: object, scenario: Scenario) -> bool:
    """True if a manifest's `scenario` is this one."""
    return bool(json.loads(to_json(described(scenario))) == recorded)
