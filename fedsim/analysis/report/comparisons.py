"""Several runs side by side: what differs, what it did, what is worth choosing, and the answer in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import clients, fronts, summary, units
from fedsim.analysis.report import charts, html
from fedsim.analysis.runs import HIGHER
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd

SPENT = ("seconds", "uplink_bits")  # what a front is over
LINES = 12  # in one plot, before it is unreadable


def sentence(result: Result) -> str:
    """What a run came to: what it reached, and what for."""
    spent = fronts.costs(result)
    rounds = float(result.rounds.groupby("replica")["round"].max().median())
    time, sent = units.seconds(spent["seconds"]), units.bits(spent["uplink_bits"])
    what = f"{units.number(rounds)} rounds, {time} of virtual time and {sent} up"
    ends = summary.final_metrics(result)
    reached = ", ".join(f"{name} {units.number(value)}" for name, value in list(ends.items())[:3])
    outcome = f"{what} came to {reached}." if reached else f"{what}; no metric was evaluated."
    goal = summary.target_lines(result)
    return outcome + (f" {goal[0]}." if goal else "")


def outcomes(results: Mapping[str, Result]) -> pd.DataFrame:
    """One row per run: what it spent and its metrics at the end."""
    import pandas as pd

    rows = []
    for name, result in results.items():
        rounds = float(result.rounds.groupby("replica")["round"].max().median())
        rows.append({"run": name, "rounds": rounds, **fronts.costs(result), **summary.final_metrics(result)})
    return pd.DataFrame(rows)


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
    quickest = table.loc[table["seconds"].idxmin()] if table["seconds"].max() > 0 else None
    more = ""
    if quickest is not None and quickest["run"] != first["run"]:
        saved = f"{units.seconds(quickest['seconds'])} instead of {units.seconds(first['seconds'])}"
        more = f" The quickest is {quickest['run']}: {saved}."
    return f"{winner} ({', '.join(others)}).{more}"


def by_setting(frame: pd.DataFrame, varied: Sequence[str]) -> pd.DataFrame:
    """One row per setting, medians over its seeds; `run` are the settings in words."""
    numbers = [
        name for name in frame.select_dtypes("number").columns if name not in (*varied, "seed", "set seed", "real_s")
    ]
    if not varied:
        return frame[numbers].median().to_frame().T.assign(run="all", seeds=len(frame))[["run", "seeds", *numbers]]
    groups = frame.groupby(list(varied), sort=False)
    table = groups[numbers].median().assign(seeds=groups.size()).reset_index()
    table.insert(0, "run", [words(row, varied) for row in table.to_dict("records")])
    return table[["run", *varied, "seeds", *numbers]]


def words(settings: Mapping[Any, Any], names: Sequence[str]) -> str:
    """local_steps=10 policy=first."""
    return " ".join(f"{name}={settings[name]}" for name in names if name in settings)


def bands(table: pd.DataFrame, axis: str) -> dict[str, pd.DataFrame]:
    """The curves of all runs by one setting: at every round the median, and 5 to 95 % over seeds and other settings."""
    if axis and not 1 < table[axis].nunique() <= LINES:
        return {}
    lines = {}
    for value, own in table.groupby(axis, sort=False) if axis else [("all runs", table)]:
        rounds = own.groupby("rounds")
        middle = rounds[["seconds", "uplink_bits", "value"]].median()
        band = rounds["value"].quantile([0.05, 0.95]).unstack()
        name = f"{axis}={value}" if axis else str(value)
        lines[name] = middle.assign(low=band[0.05], high=band[0.95]).reset_index()
    return lines


def trade_off(table: pd.DataFrame, metric: str, chosen: str = "") -> tuple[str, str, str]:
    """The front over time, bits and a metric as a section; the point on it to choose, and why.

    `chosen` names one that was chosen already. Otherwise it is the knee: nearest to the best of all in every respect,
    costs on a logarithmic scale.
    """
    up = metric in HIGHER
    costs = [name for name in SPENT if name in table and table[name].max() > 0]
    known = table[table[metric].notna()].copy()
    if len(known) < 2 or not costs:
        return "", chosen, ""
    points = known[[*costs, metric]].to_numpy(np.float64, copy=True)
    points[:, -1] *= -1 if up else 1
    known["front"] = fronts.undominated(points)
    chosen = chosen or str(known["run"].iloc[fronts.knee(points)])
    row = known[known["run"] == chosen]
    why = _reason(known, row.iloc[0], costs, metric, up) if len(row) else ""
    plots = [html.plot(charts.front(known, cost, metric, up, chosen), 400) for cost in costs]
    return html.section("What is worth choosing", html.text(why), *plots), chosen, why


def _reason(table: pd.DataFrame, own: Any, costs: Sequence[str], metric: str, up: bool) -> str:
    """Why that point: what the best in the metric would cost instead, and what the cheapest gives away."""
    top = table.loc[table[metric].idxmax() if up else table[metric].idxmin()]
    sentence = f"{own['run']}: {metric} {units.number(own[metric])} for " + " and ".join(
        units.amount(cost, own[cost]) + (" up" if cost == "uplink_bits" else "") for cost in costs
    )
    if top["run"] != own["run"]:
        factors = [f"{top[cost] / own[cost]:.2g} times the {_noun(cost)}" for cost in costs if own[cost] > 0]
        sentence += f". {top['run']} has the best {metric}, {units.number(top[metric])}, for {' and '.join(factors)}"
    cheap = table.loc[table[costs[0]].idxmin()]
    if cheap["run"] not in (own["run"], top["run"]):
        sentence += f". The quickest, {cheap['run']}, ends at {units.number(cheap[metric])}"
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
    return "time" if cost == "seconds" else "bits"
