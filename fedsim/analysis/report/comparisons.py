"""Several runs side by side: what differs, what it did, what is worth choosing, and the answer in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import text as units
from fedsim.analysis import clients, intervals, summary, targets, tradeoffs
from fedsim.analysis.inputs import HIGHER
from fedsim.analysis.report import charts, html
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd

SPENT = ("seconds", "total_bits")  # what a front is over
TO_TARGET = ("seconds_to_target", "total_bits_to_target")  # the same, where all runs have one target
LINES = 12  # in one plot, before it is unreadable


def sentence(result: Result) -> str:
    """What a run came to: what it reached, and what for."""
    spent = tradeoffs.costs(result)
    rounds = float(result.rounds.groupby("replica")["round"].max().median())
    time, sent = units.seconds(spent["seconds"]), units.bits(spent["total_bits"])
    what = f"{units.number(rounds)} rounds, {time} of virtual time and {sent} sent"
    ends = summary.final_metrics(result)
    reached = ", ".join(f"{name} {units.number(value)}" for name, value in list(ends.items())[:3])
    outcome = f"{what} came to {reached}." if reached else f"{what}; no metric was evaluated."
    goal = summary.target_lines(result)
    return outcome + (f" {goal[0]}." if goal else "")


def outcomes(results: Mapping[str, Result]) -> pd.DataFrame:
    """One row per run: what it spent and took to its target, its metrics at the end, what stopped it, its warnings."""
    import pandas as pd

    rows = []
    for name, result in results.items():
        rounds = float(result.rounds.groupby("replica")["round"].max().median())
        ends = {"stopped_by": summary.stopped(result), "warnings": "; ".join(summary.warnings(result))}
        costs = tradeoffs.costs(result) | targets.to_target(result)
        rows.append({"run": name, "rounds": rounds, **costs, **summary.final_metrics(result), **ends})
    return pd.DataFrame(rows)


def comparable(table: pd.DataFrame) -> list[str]:
    """The costs by which these runs can be compared.

    Where all have the same target, what reaching it took. Otherwise what they spent in all, except for a resource whose
    limit stopped several of them: its final amount is the limit, and the first to stop is none the better for it.
    """
    if "target" in table and table["target"].notna().all() and table["target"].nunique() == 1:
        return [name for name in TO_TARGET if table[name].gt(0).any()]
    reasons = table["stopped_by"].astype(str) if "stopped_by" in table else table["run"].astype(str).str[:0]
    fixed = {
        name for name in SPENT for reason in reasons.unique()
        if reason.startswith(f"{name}=") and (reasons == reason).sum() > 1
    }  # fmt: skip
    return [name for name in SPENT if name in table and name not in fixed and table[name].max() > 0]


def shared_metrics(results: Mapping[str, Result]) -> list[str]:
    """Those that every run evaluated."""
    each = [set(summary.final_metrics(result)) for result in results.values()]
    first = summary.final_metrics(next(iter(results.values())))
    return [name for name in first if all(name in own for own in each)]


def differences(results: Mapping[str, Result]) -> pd.DataFrame:
    """Fields of the scenarios that are not the same in all, a row each and a column per run."""
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
    """Every leaf of a recorded scenario with its dotted name; an array by its shape and digest."""
    if isinstance(value, dict) and "array" not in value and "function" not in value:
        return [leaf for name, own in value.items() for leaf in _fields(own, f"{path}.{name}" if path else str(name))]
    text = (
        f"{units.recorded(value)} {value.get('digest', '')}".strip()
        if isinstance(value, dict)
        else units.recorded(value)
    )
    return [(path, text)]


def best(table: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Who ends best, and what the others give away."""
    if not metrics:
        return f"{len(table)} runs; they share no metric."
    metric, up = metrics[0], metrics[0] in HIGHER
    order = table.sort_values(metric, ascending=not up)
    first = order.iloc[0]
    winner = f"{first['run']} ends with the best {metric}, {units.number(first[metric])}"
    others = [f"{row['run']} {units.number(row[metric])}" for row in order.iloc[1:4].to_dict("records")]
    more = ""
    for cost in [name for name in comparable(table) if name.startswith("seconds")]:
        quickest = table.loc[table[cost].idxmin()]
        if quickest["run"] != first["run"] and math.isfinite(quickest[cost]):
            saved = f"{_amount(cost, quickest[cost])} instead of {_amount(cost, first[cost])}"
            to = f" to {table['target'].iloc[0]}" if cost in TO_TARGET else ""
            more = f" The quickest{to} is {quickest['run']}: {saved}."
    return f"{winner} ({', '.join(others)}).{more}"


def by_setting(frame: pd.DataFrame, varied: Sequence[str]) -> pd.DataFrame:
    """One row per setting, medians over its seeds; `run` are the settings in words.

    What is no number is there where all its seeds agree, as `target` and `stopped_by`; `warnings` are of its runs.
    """
    numbers = [
        name for name in frame.select_dtypes("number").columns if name not in (*varied, "seed", "set seed", "real_s")
    ]
    texts = [name for name in ("target", "stopped_by", "warnings") if name in frame]
    keys: Any = list(varied) or np.zeros(len(frame))
    groups = frame.groupby(keys, sort=False)
    medians = groups[numbers].agg(lambda own: targets.median(own.dropna().to_numpy(np.float64)))
    table = medians.assign(seeds=groups.size(), **{name: groups[name].agg(_AGREED[name]) for name in texts})
    table = table.reset_index(drop=not varied)
    table.insert(0, "run", [words(row, varied) for row in table.to_dict("records")] if varied else "all")
    return table[["run", *varied, "seeds", *numbers, *texts]]


def _agreed(own: pd.Series) -> Any:
    return own.iloc[0] if own.nunique(dropna=False) == 1 else None


_AGREED: dict[str, Any] = {
    "target": _agreed, "stopped_by": _agreed, "warnings": lambda own: summary.warnings_of(own.tolist())
}  # fmt: skip


def words(settings: Mapping[Any, Any], names: Sequence[str]) -> str:
    """local_steps=10 policy=first."""
    return " ".join(f"{name}={settings[name]}" for name in names if name in settings)


def bands(table: pd.DataFrame, axis: str) -> dict[str, pd.DataFrame]:
    """The curves of all runs by one setting: at every round the median, and 5 to 95 % over seeds and other settings.

    Of fewer than FEWEST runs the band is their range.
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


def trade_off(table: pd.DataFrame, metric: str, chosen: str = "") -> tuple[str, str, str]:
    """The front over the costs that can be compared, and the metric where no target fixes it, as a section.

    Returns it with the point to choose, and why. `chosen` names one that was chosen already; otherwise it is the knee:
    nearest to the best of all in every respect, costs on a logarithmic scale.
    """
    up, costs = metric in HIGHER, comparable(table)
    known = table[table[metric].notna() & np.isfinite(table[costs].to_numpy(np.float64)).all(axis=1)].copy()
    if len(known) < 2 or not costs:
        return "", chosen, ""
    points = known[[*costs, metric]].to_numpy(np.float64, copy=True)
    points[:, -1] *= -1 if up else 1
    if costs[0] in TO_TARGET:  # all are at the target then: what is over it at the end bought nothing
        points = points[:, :-1]
    known["front"] = tradeoffs.undominated(points)
    chosen = chosen or str(known["run"].iloc[tradeoffs.knee(points)])
    row = known[known["run"] == chosen]
    why = _reason(known, row.iloc[0], costs, metric, up) if len(row) else ""
    if why and (doubt := row.iloc[0].get("warnings")):
        why += f" Warning: {doubt}."
    plots = [html.plot(charts.front(known, cost, metric, up, chosen), 400) for cost in costs]
    left = html.text(_left_out(table), "note")
    return html.section("What is worth choosing", html.text(why), left, *plots), chosen, why


def doubted(table: pd.DataFrame) -> list[str]:
    """The warnings of these runs or settings, a paragraph each."""
    rows = table.to_dict("records") if "warnings" in table else []
    return [html.text(f"{row['run']}: {row['warnings']}", "warn") for row in rows if row["warnings"]]


def _left_out(table: pd.DataFrame) -> str:
    """Which costs are not compared, and which runs never reach the target."""
    costs = comparable(table)
    if costs and costs[0] in TO_TARGET:
        never = table[~np.isfinite(table[costs].to_numpy(np.float64)).all(axis=1)]["run"]
        return f"{', '.join(never)}: never at {table['target'].iloc[0]}." if len(never) else ""
    left = [name for name in SPENT if name in table and table[name].max() > 0 and name not in costs]
    return f"Not compared: {' and '.join(map(_noun, left))}, since a limit on it stopped the runs." if left else ""


def _reason(table: pd.DataFrame, own: Any, costs: Sequence[str], metric: str, up: bool) -> str:
    """Why that point: what the best in the metric would cost instead, and what the cheapest gives away."""
    spent = " and ".join(_amount(cost, own[cost]) for cost in costs)
    if costs[0] in TO_TARGET:
        sentence = f"{own['run']} reaches {own['target']} for {spent}"
        for cost in costs:
            least = table.loc[table[cost].idxmin()]
            if least["run"] != own["run"]:
                sentence += f". {least['run']} takes the {_least(cost)}, {_amount(cost, least[cost])}"
        return f"{sentence}."
    top = table.loc[table[metric].idxmax() if up else table[metric].idxmin()]
    sentence = f"{own['run']}: {metric} {units.number(own[metric])} for {spent}"
    if top["run"] != own["run"]:
        factors = [f"{top[cost] / own[cost]:.2g} times the {_noun(cost)}" for cost in costs if own[cost] > 0]
        sentence += f". {top['run']} has the best {metric}, {units.number(top[metric])}, for {' and '.join(factors)}"
    cheap = table.loc[table[costs[0]].idxmin()]
    if cheap["run"] not in (own["run"], top["run"]):
        sentence += f". {cheap['run']} takes the {_least(costs[0])} and ends at {units.number(cheap[metric])}"
    return f"{sentence}."


def effects(table: pd.DataFrame, varied: Sequence[str], metrics: Sequence[str]) -> str:
    """What each value of each knob comes to, medians over the settings of the others."""
    names = [*(name for name in ("rounds", *SPENT) if name in table), *metrics]
    parts = []
    for knob in varied if len(varied) > 1 else ():
        own = table.groupby(knob, sort=False)[names].median().reset_index()
        parts.append(html.titled(knob, html.table(own)))
    return html.section("Each knob alone", *parts)


def waste(results: Mapping[str, Result]) -> str:
    """Device-seconds that were for nothing, by run and cause."""
    parts = {}
    for name, result in results.items():
        if all(column in result.rounds for column in clients.CAUSES):
            count = len(result.replicas)
            parts[name] = {cause: float(result.rounds[c].sum()) / count for c, cause in clients.CAUSES.items()}
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
    return units.amount(cost, value) + (" sent" if "bits" in cost else "")
