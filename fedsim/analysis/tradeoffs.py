"""Trade-offs between settings: Pareto fronts, and the cost of effective samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis.inputs import HIGHER_IS_BETTER, Answer, LabelledRun, collect_runs, run_columns
from fedsim.analysis.summary import final_metrics, warnings, warnings_of
from fedsim.arrays import Array
from fedsim.checks import check_bool
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.results import Result, sent_bits, total_bits
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd

COSTS = ("uplink_bits", "total_bits", "seconds", "participation", "epsilon", "wasted_s")


def costs(result: Result) -> dict[str, float]:
    """Return the total costs of a run, medians over replicas; `participation` is the mean cohort size."""
    replicas = result.rounds.groupby("replica")
    sent = replicas[["uplink_bits", "selected"]].sum()
    everything = total_bits(result.rounds).groupby(result.rounds["replica"]).sum()
    spent = {
        "uplink_bits": float(sent["uplink_bits"].median()),
        "total_bits": float(everything.median()),
        "seconds": float(replicas["closed_s"].max().median()),
        "participation": float((sent["selected"] / replicas["round"].max()).median()),
    }
    if "wasted_s" in result.rounds:
        spent["wasted_s"] = float(replicas["wasted_s"].sum().median())
    return spent


def pareto_optimal(points: Array) -> Array:
    """Return which rows of (n, k) are Pareto-optimal, lower being better in every column."""
    others, own = points[None], points[:, None]
    dominated = np.all(others <= own, axis=2) & np.any(others < own, axis=2)
    return np.asarray(~np.any(dominated, axis=1) & ~np.any(np.isnan(points), axis=1))


def knee(points: Array) -> int:
    """Return the Pareto-optimal row of (n, k) that is nearest to the best value of every column.

    Distances are Euclidean after each column is scaled to [0, 1], positive columns on a logarithmic scale.
    """
    scaled = np.array(points, np.float64)
    positive = scaled.min(axis=0) > 0
    scaled[:, positive] = np.log(scaled[:, positive])
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    scaled = (scaled - low) / np.where(high > low, high - low, 1.0)
    away = np.where(pareto_optimal(points), (scaled**2).sum(axis=1), np.inf)
    return int(np.argmin(away))


def pareto(
    results: object, metric: str, among: Sequence[str] = ("total_bits", "seconds"),
    higher_is_better: bool | None = None,
) -> Answer:  # fmt: skip
    """Return one row per setting (medians over seeds): costs, the final metric, membership of the Pareto `front`.

    The front is over the metric and the costs in `among`: uplink_bits, total_bits, seconds, participation, epsilon or
    wasted_s. A lower metric is better unless it is accuracy, ess, accepted or agreement; `higher_is_better` overrides
    that. `warnings` joins the warnings of the setting's runs.
    """
    if not isinstance(among, list | tuple) or not among or any(name not in COSTS for name in among):
        raise InvalidInput(f"pareto(among={short_repr(among)}): choose from {', '.join(COSTS)}")
    if not isinstance(metric, str):
        raise InvalidInput(f"pareto(metric={short_repr(metric)}): name a metric's column, such as 'w2'")
    up = (
        metric in HIGHER_IS_BETTER
        if higher_is_better is None
        else check_bool("pareto(higher_is_better={})", higher_is_better)
    )
    frame = outcomes(collect_runs(results), metric)
    if strange := [name for name in among if name not in frame]:
        raise NotRecorded(f"pareto(among={short_repr(list(among))}): these runs did not record {strange[0]}")
    points = frame[[*among, metric]].to_numpy(np.float64, copy=True)
    points[:, -1] *= -1 if up else 1
    frame["front"] = pareto_optimal(points)
    return Answer(frame, _drawn(frame, among, metric, up))


def outcomes(runs: list[LabelledRun], metric: str) -> pd.DataFrame:
    """Return one row per setting: medians over its `seeds` of the costs and of the final metric."""
    import pandas as pd

    rows = []
    for one in runs:
        ends = final_metrics(one.result)
        if metric not in ends:
            one.result.curve(metric)  # raises NotRecorded and lists the evaluated metrics
        known = costs(one.result) | {name: ends[name] for name in (metric, "epsilon") if name in ends}
        rows.append(run_columns(one) | known | {"warnings": "; ".join(warnings(one.result))})
    frame = pd.DataFrame(rows)
    numbers = [name for name in (*COSTS, metric) if name in frame]
    groups = frame.groupby("run", sort=False)
    settings = groups[[n for n in frame.columns if n not in ("run", "seed", "warnings", *numbers)]].first()
    joined = groups["warnings"].agg(lambda own: warnings_of(own.tolist()))
    return settings.join(groups[numbers].median()).assign(seeds=groups.size(), warnings=joined).reset_index()


def _drawn(frame: pd.DataFrame, among: Sequence[str], metric: str, up: bool) -> Any:
    figure = figures.blank(4.2 * len(among) + 1.5, 4)
    for axes, cost in zip(np.atleast_1d(figure.subplots(1, len(among), sharey=True)), among, strict=True):
        for front, colour, name in ((False, figures.FAINT, "dominated"), (True, figures.COLOURS[0], "Pareto-optimal")):
            own = frame[frame["front"] == front]
            axes.scatter(own[cost], own[metric], color=colour, s=28, label=name, zorder=3)
        for row in frame[frame["front"]].to_dict("records"):
            place = (row[cost], row[metric])
            axes.annotate(row["run"], place, xytext=(4, 3), textcoords="offset points", fontsize=7.5)
        axes.set(xlabel=figures.NAMES.get(cost, cost), ylabel=f"{metric} ({'higher' if up else 'lower'} is better)")
        figures.plain(axes)
    axes.legend(frameon=False, fontsize=8)
    return figure


def ess_rates(results: object) -> Answer:
    """Return the effective sample size per million bits sent up or between sites, and per virtual second.

    One row per run: `ess` (bulk, of the worst coordinate, replicas as chains), `ess_tail`, `sent_bits`, `seconds`,
    `ess_per_megabit`, `ess_per_second`. The costs include warm-up and all replicas.
    """
    import pandas as pd

    from fedsim.metrics import diagnostics

    rows = []
    for one in collect_runs(results):
        result = one.result
        draws = int(np.min(result.lengths, initial=len(result.sample_rounds)))
        if (theta := result.theta) is None or draws < diagnostics.MIN_DRAWS:
            raise NotRecorded(
                f"run {one.label!r} recorded {draws} samples per replica; effective sample sizes need "
                f"{diagnostics.MIN_DRAWS}: set Scenario(record=fs.Record(every=1))"
            )
        ess = float(np.min(diagnostics.ess(theta[:draws])))
        bits = float((result.rounds["uplink_bits"] + sent_bits(result.rounds, "backhaul_bits")).sum())
        seconds = float(result.rounds.groupby("replica")["closed_s"].max().sum())
        rates = {
            "ess_per_megabit": ess / (bits / 1e6) if bits else np.nan,
            "ess_per_second": ess / seconds if seconds else np.nan,
        }
        sizes = {"ess": ess, "ess_tail": float(np.min(diagnostics.ess_tail(theta[:draws])))}
        rows.append(run_columns(one) | sizes | {"sent_bits": bits, "seconds": seconds, **rates})
    frame = pd.DataFrame(rows)
    figure = figures.blank(10, 1.6 + 0.32 * frame["run"].nunique())
    for axes, name in zip(figure.subplots(1, 2, sharey=True), rates, strict=True):
        means = frame.groupby("run", sort=False)[name].median()
        axes.barh([str(label) for label in means.index], means, color=figures.COLOURS[0], height=0.6)
        axes.set_xlabel({"ess_per_megabit": "ESS per Mbit sent", "ess_per_second": "ESS per virtual second"}[name])
        figures.plain(axes)
    axes.invert_yaxis()
    return Answer(frame, figure)
