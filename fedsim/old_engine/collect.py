"""From a finished run to its `Result`, with a manifest that says what was run, on what, and for how long."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Arrays
from fedsim.exchanges import Gossip
from fedsim.metrics.sampling import common_start
from fedsim.network import Network
from fedsim.old_engine.own_code import code_digest
from fedsim.old_engine.run import Run
from fedsim.old_engine.sites import SiteNetwork
from fedsim.protocols import PrivacyGuarantee, Runtime
from fedsim.results import Result, cpu_features, versions
from fedsim.results.sealed import to_json
from fedsim.runtime.blas import blas_kernels
from fedsim.topologies.star import Star

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.scenario import Scenario


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


def identities(scenario: Scenario, compute: str) -> tuple[str, str]:
    """Digests of what is computed, and of that with the versions and the CPU, which a checkpoint must agree with."""
    facts = {"scenario": described(scenario), "code": code_digest(scenario), "compute": compute}
    work = blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
    facts |= {"versions": versions(), "cpu": cpu_features()}
    return work, blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()


def describes(recorded: object, scenario: Scenario) -> bool:
    """Whether a manifest's `scenario` is this one."""
    return bool(json.loads(to_json(described(scenario))) == recorded)
