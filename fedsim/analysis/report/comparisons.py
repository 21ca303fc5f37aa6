"""Several runs or settings: differences, outcomes, the trade-off between them and the recommended setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import text
from fedsim.analysis import intervals, summary, targets, timeline, tradeoffs
from fedsim.analysis.inputs import HIGHER_IS_BETTER
from fedsim.analysis.report import charts, html
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd

COSTS = ("seconds", "total_bits")
TO_TARGET = ("seconds_to_target", "total_bits_to_target")  # replace COSTS if all runs have the same target
LINES = 12  # the most curves in one plot
RULE = (
    "Rule: of the Pareto-optimal settings, the one nearest to the best value in every column is recommended. "
    "Columns are scaled to [0, 1], positive ones on a logarithmic scale."
)


def sentence(result: Result) -> str:
    """Return the outcome of a run in a sentence."""
    spent = tradeoffs.costs(result)
    rounds = float(result.rounds.groupby("replica")["round"].max().median())
    time, sent = text.seconds(spent["seconds"]), text.bits(spent["total_bits"])
    what = f"{text.number(rounds)} rounds, {time} of virtual time and {sent} sent"
    ends = summary.final_metrics(result)
    reached = ", ".join(f"{name} {text.number(value)}" for name, value in list(ends.items())[:3])
    outcome = f"{what}: {reached}." if reached else f"{what}; no metric was evaluated."
    goal = summary.target_lines(result)
    return outcome + (f" {goal[0]}." if goal else "")


def outcomes(results: Mapping[str, Result]) -> pd.DataFrame:
    """Return one row per run: costs, costs to the target, final metrics, what stopped it, warnings."""
    import pandas as pd

    rows = []
    for name, result in results.items():
        rounds = float(result.rounds.groupby("replica")["round"].max().median())
        ends = {"stopped_by": summary.stopped(result), "warnings": "; ".join(summary.warnings(result))}
        costs = tradeoffs.costs(result) | targets.to_target(result)
        rows.append({"run": name, "rounds": rounds, **costs, **summary.final_metrics(result), **ends})
    return pd.DataFrame(rows)


def comparable(table: pd.DataFrame) -> list[str]:
    """Return the costs by which these runs can be compared.

    With one target for all runs these are the costs of reaching it. Otherwise these are the total costs, without a
    resource whose limit stopped several runs: its final amount is the limit.
    """
    if "target" in table and table["target"].notna().all() and table["target"].nunique() == 1:
        return [name for name in TO_TARGET if table[name].gt(0).any()]
    reasons = table["stopped_by"].astype(str) if "stopped_by" in table else table["run"].astype(str).str[:0]
    fixed = {
        name for name in COSTS for reason in reasons.unique()
        if reason.startswith(f"{name}=") and (reasons == reason).sum() > 1
    }  # fmt: skip
    return [name for name in COSTS if name in table and name not in fixed and table[name].max() > 0]


def shared_metrics(results: Mapping[str, Result]) -> list[str]:
    """Return the metrics that every run evaluated."""
    each = [summary.final_metrics(result) for result in results.values()]
    return [name for name in each[0] if all(name in own for own in each)]


def differences(results: Mapping[str, Result]) -> pd.DataFrame:
    """Return the scenario fields that differ, a row each and a column per run."""
    import pandas as pd

    flat = {name: dict(_fields(result.manifest.get("scenario"), "")) for name, result in results.items()}
    fields = dict.fromkeys(field for own in flat.values() for field in own)
    rows = [
        {"field": field, **{name: own.get(field, "") for name, own in flat.items()}}
        for field in fields
        if len({own.get(field, "") for own in flat.values()}) > 1
    ]
    return pd.DataFrame(rows)


def _fields(value: object, path: str) -> list[tuple[str, str]]:
    """Return the leaves of a recorded scenario with their dotted names; arrays as shape and digest."""
    if isinstance(value, dict) and "array" not in value and "function" not in value:
        return [leaf for name, own in value.items() for leaf in _fields(own, f"{path}.{name}" if path else str(name))]
    digest = value.get("digest", "") if isinstance(value, dict) else ""
    return [(path, f"{text.recorded_call(value)} {digest}".strip())]


def best(table: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Return a sentence that names the run with the best final metric, the next three, and the fastest run."""
    if not metrics:
        return f"{len(table)} runs without a common metric."
    metric, up = metrics[0], metrics[0] in HIGHER_IS_BETTER
    order = table.sort_values(metric, ascending=not up)
    first = order.iloc[0]
    winner = f"{first['run']} has the best final {metric}, {text.number(first[metric])}"
    others = [f"{row['run']} {text.number(row[metric])}" for row in order.iloc[1:4].to_dict("records")]
    more = ""
    for cost in [name for name in comparable(table) if name.startswith("seconds")]:
        fastest = table.loc[table[cost].idxmin()]
        if fastest["run"] != first["run"] and math.isfinite(fastest[cost]):
            saved = f"{_amount(cost, fastest[cost])} instead of {_amount(cost, first[cost])}"
            to = f" to {table['target'].iloc[0]}" if cost in TO_TARGET else ""
            more = f" The fastest{to} is {fastest['run']}: {saved}."
    return f"{winner} ({', '.join(others)}).{more}"


def by_setting(frame: pd.DataFrame, varied: Sequence[str]) -> pd.DataFrame:
    """Return one row per setting, medians over its seeds; `run` is the setting as text.

    `target` and `stopped_by` have a value if all seeds agree; `warnings` joins those of all seeds.
    """
    numbers = [
        name for name in frame.select_dtypes("number").columns if name not in (*varied, "seed", "set seed", "real_s")
    ]
    texts = [name for name in ("target", "stopped_by", "warnings") if name in frame]
    keys: Any = list(varied) or np.zeros(len(frame))
    groups = frame.groupby(keys, sort=False)
    medians = groups[numbers].agg(lambda own: targets.median(own.dropna().to_numpy(np.float64)))
    table = medians.assign(seeds=groups.size(), **{name: groups[name].agg(_JOINED[name]) for name in texts})
    table = table.reset_index(drop=not varied)
    table.insert(0, "run", [name_of(row, varied) for row in table.to_dict("records")] if varied else "all")
    return table[["run", *varied, "seeds", *numbers, *texts]]


def _agreed(own: pd.Series) -> Any:
    return own.iloc[0] if own.nunique(dropna=False) == 1 else None


_JOINED: dict[str, Any] = {
    "target": _agreed, "stopped_by": _agreed, "warnings": lambda own: summary.warnings_of(own.tolist())
}  # fmt: skip


def name_of(settings: Mapping[Any, Any], names: Sequence[str]) -> str:
    """Return a setting as text: local_steps=10 policy=first."""
    return " ".join(f"{name}={settings[name]}" for name in names if name in settings)


def bands(table: pd.DataFrame, axis: str) -> dict[str, pd.DataFrame]:
    """Return the curves by one parameter: the median and the 5 to 95 % band over seeds and other parameters.

    The band is the range for fewer than FEWEST runs.
    """
    if axis and not 1 < table[axis].nunique() <= LINES:
        return {}
    lines = {}
    for value, own in table.groupby(axis, sort=False) if axis else [("all runs", table)]:
        rounds = own.groupby("rounds")
        middle = rounds[["seconds", "total_bits", "uplink_bits", "value"]].median()
        band, few = rounds["value"].quantile([0.05, 0.95]).unstack(), rounds["value"].count() < intervals.FEWEST
        low, high = band[0.05].mask(few, rounds["value"].min()), band[0.95].mask(few, rounds["value"].max())
        name = f"{axis}={value}" if axis else str(value)
        lines[name] = middle.assign(low=low, high=high).reset_index()
    return lines


def trade_off(table: pd.DataFrame, metric: str, chosen: str = "", rule: str = RULE) -> tuple[str, str, str]:
    """Return the trade-off section, the recommended setting and the reason for it.

    The Pareto front is over the comparable costs and, without a common target, the metric. `chosen` names a setting
    that was recommended by another rule, which `rule` states.
    """
    up, costs = metric in HIGHER_IS_BETTER, comparable(table)
    finite = table[table[metric].notna() & np.isfinite(table[costs].to_numpy(np.float64)).all(axis=1)].copy()
    if len(finite) < 2 or not costs:
        return "", chosen, ""
    points = finite[[*costs, metric]].to_numpy(np.float64, copy=True)
    points[:, -1] *= -1 if up else 1
    if costs[0] in TO_TARGET:  # every setting is at the target then
        points = points[:, :-1]
    finite["front"] = tradeoffs.pareto_optimal(points)
    chosen = chosen or str(finite["run"].iloc[tradeoffs.knee(points)])
    row = finite[finite["run"] == chosen]
    why = _reason(finite, row.iloc[0], costs, metric, up) if len(row) else ""
    if why and (doubt := row.iloc[0].get("warnings")):
        why += f" Warning: {doubt}."
    plots = [html.plot(charts.front(finite, cost, metric, up, chosen), 400) for cost in costs]
    notes = [html.text(note, "note") for note in (rule, _left_out(table))]
    advice = html.text(f"Recommended setting: {why}") if why else ""
    return html.section("Trade-off", advice, *notes, *plots), chosen, why


def warning_paragraphs(table: pd.DataFrame) -> list[str]:
    """Return the warnings of these runs or settings, a paragraph each."""
    rows = table.to_dict("records") if "warnings" in table else []
    return [html.text(f"{row['run']}: {row['warnings']}", "warn") for row in rows if row["warnings"]]


def _left_out(table: pd.DataFrame) -> str:
    """Return which runs never reach the target, or which costs are not compared."""
    costs = comparable(table)
    if costs and costs[0] in TO_TARGET:
        never = table[~np.isfinite(table[costs].to_numpy(np.float64)).all(axis=1)]["run"]
        return f"Never at {table['target'].iloc[0]}: {', '.join(never)}." if len(never) else ""
    left = [name for name in COSTS if name in table and table[name].max() > 0 and name not in costs]
    return f"Not compared: {' and '.join(map(_noun, left))}, since a limit on it stopped the runs." if left else ""


def _reason(table: pd.DataFrame, own: Any, costs: Sequence[str], metric: str, up: bool) -> str:
    """Return what a setting reaches and costs, next to the best and the cheapest setting."""
    spent = " and ".join(_amount(cost, own[cost]) for cost in costs)
    if costs[0] in TO_TARGET:
        sentence = f"{own['run']} reaches {own['target']} for {spent}"
        for cost in costs:
            least = table.loc[table[cost].idxmin()]
            if least["run"] != own["run"]:
                sentence += f". {least['run']} needs the {_least(cost)}, {_amount(cost, least[cost])}"
        return f"{sentence}."
    top = table.loc[table[metric].idxmax() if up else table[metric].idxmin()]
    sentence = f"{own['run']}, {metric} {text.number(own[metric])} for {spent}"
    if top["run"] != own["run"]:
        factors = [f"{top[cost] / own[cost]:.2g} times the {_noun(cost)}" for cost in costs if own[cost] > 0]
        sentence += f". {top['run']} has the best {metric}, {text.number(top[metric])}, for {' and '.join(factors)}"
    cheap = table.loc[table[costs[0]].idxmin()]
    if cheap["run"] not in (own["run"], top["run"]):
        sentence += (
            f". {cheap['run']} needs the {_least(costs[0])}, with a final {metric} of {text.number(cheap[metric])}"
        )
    return f"{sentence}."


def effects(table: pd.DataFrame, varied: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """Return a table per parameter: costs and final metrics of each value, medians over the other parameters."""
    names = [*(name for name in ("rounds", *COSTS) if name in table), *metrics]
    parts = []
    for parameter in varied if len(varied) > 1 else ():
        own = table.groupby(parameter, sort=False)[names].median().reset_index()
        parts.append(html.titled(parameter, html.table(own)))
    return parts


def waste(results: Mapping[str, Result]) -> str:
    """Return the wasted device-seconds by run and cause."""
    each = {name: timeline.wasted_seconds(result) for name, result in results.items()}
    parts = {name: own for name, own in each.items() if len(own) == len(timeline.CAUSES)}
    if not any(math.fsum(own.values()) for own in parts.values()):
        return ""
    chart = charts.bars(parts, "device-seconds wasted, per replica")
    return html.section("Waste", html.plot(chart, 160 + 30 * len(parts)))


def _noun(cost: str) -> str:
    return "time" if cost.startswith("seconds") else "bits"


def _least(cost: str) -> str:
    return "least time" if cost.startswith("seconds") else "fewest bits"


def _amount(cost: str, value: float) -> str:
    if not math.isfinite(value):
        return "never"
    return text.amount(cost, value) + (" sent" if "bits" in cost else "")
