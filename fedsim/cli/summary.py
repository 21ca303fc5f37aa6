"""What came out of a run, or of the runs of a grid, in a few lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from fedsim.analysis.timeline import shares
from fedsim.cli import units
from fedsim.errors import CorruptData, as_float
from fedsim.results import Result
from fedsim.scenario import Scenario
from fedsim.study import Study, final_metrics, outcome

LABEL, COLUMN = 16, 12


def lines(scenario: Scenario, result: Result) -> list[str]:
    """One run: medians and the 5 to 95 % range over its replicas."""
    rounds = result.rounds.groupby("replica")
    spent = rounds[["uplink_bits", "downlink_bits", "wasted_bits"]].sum()
    last = rounds[["round", "closed_s"]].max()
    titles = ("median", "5%", "95%") if len(result.replicas) > 1 else ()
    return [
        _stopped(scenario, result),
        *([" " * LABEL + "".join(f"{name:>{COLUMN}}" for name in titles)] if titles else []),
        _row("rounds", last["round"], units.number),
        _row("virtual time", last["closed_s"], units.seconds),
        f"  {_clock(result)}",
        *_where(scenario, result),
        _row("uplink", spent["uplink_bits"], units.bits) + _wasted(spent),
        _row("downlink", spent["downlink_bits"], units.bits),
        *_visits(result, int(last["round"].sum())),
        *_metrics(result),
        *_privacy(result),
        *_target(scenario, result),
        *_unheard(result),
        _end(result),
    ]


def plain(result: Result) -> list[str]:
    """A run whose scenario is not at hand: what its folder alone can tell."""
    rounds = result.rounds.groupby("replica")
    return [
        f"stopped by {_reasons(result)}",
        _row("rounds", rounds["round"].max(), units.number),
        _row("virtual time", rounds["closed_s"].max(), units.seconds),
        f"  {_clock(result)}",
        _row("uplink", rounds["uplink_bits"].sum(), units.bits),
        *_metrics(result),
        *_privacy(result),
        _end(result),
    ]


def table(study: Study) -> list[str]:
    """Several runs: one line each."""
    shown: dict[str, Callable[[Any], str]] = {
        "rounds": units.number,
        "seconds": units.seconds,
        "uplink_bits": units.bits,
        **dict.fromkeys(final_metrics(study.runs[0][1]), units.number),
        "real_s": units.seconds,
        "fingerprint": _first_eight,
    }
    titles = {"seconds": "virtual time", "uplink_bits": "uplink", "real_s": "real"}
    settings = [given for given, _ in study.runs]
    axes = [name for name in settings[0] if len({str(given[name]) for given in settings}) > 1]
    rows = [[*axes, *(titles.get(name, name) for name in shown), "stopped by"]]
    for given, result in study.runs:
        ends = outcome(result)
        facts = [form(ends[name]) for name, form in shown.items()]
        rows.append([*(str(given[name]) for name in axes), *facts, _reasons(result)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    body = ["  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    return [*body, _clock(study.runs[0][1])]


def _first_eight(text: str) -> str:
    return text[:8]


def _stopped(scenario: Scenario, result: Result) -> str:
    budget = scenario.budget
    told = []
    for reason, count in Counter(result.stopped_by).most_common():
        limit = getattr(budget, reason, None)
        if reason == "target" and budget.target is not None:
            limit = _level(budget.target)
        told.append((reason if limit is None else f"{reason}={_limit(limit)}", count))
    if len(told) == 1:
        return f"stopped by {told[0][0]}"
    return "stopped by " + ", ".join(f"{what} ({count} of {len(result.replicas)})" for what, count in told)


def _limit(limit: Any) -> str:
    return units.number(limit) if isinstance(limit, int | float) else str(limit)


def _reasons(result: Result) -> str:
    return ", ".join(reason for reason, _ in Counter(result.stopped_by).most_common())


def _row(name: str, values: Any, form: Any) -> str:
    cells = (values.median(), values.quantile(0.05), values.quantile(0.95))
    return f"{name:{LABEL}}" + "".join(f"{form(float(c)):>{COLUMN}}" for c in cells[: 3 if len(values) > 1 else 1])


def _wasted(spent: Any) -> str:
    sent = int(spent["uplink_bits"].sum())
    return f"   wasted {units.share(int(spent['wasted_bits'].sum()) / sent)}" if sent else ""


def _where(scenario: Scenario, result: Result) -> list[str]:
    parts = None if getattr(scenario.participation, "asynchronous", False) else shares(result)
    return ["  " + ", ".join(f"{name} {units.share(part)}" for name, part in parts.items())] if parts else []


def _visits(result: Result, rounds: int) -> list[str]:
    totals = result.rounds[["selected", "arrived", "late", "dropped"]].sum() / max(rounds, 1)
    names = {"selected": "asked"}
    told = [f"{names.get(name, name)} {units.number(round(value, 1))}" for name, value in totals.items()]
    return ["each round: " + "   ".join(told)]


def _metrics(result: Result) -> list[str]:
    ends = final_metrics(result)
    return ["   ".join(f"{name} {units.number(value)}" for name, value in ends.items())] if ends else []


def _privacy(result: Result) -> list[str]:
    """What was promised to whom, what of it the proof covers, and what was really spent."""
    told = result.manifest.get("privacy", {})
    lines, promise, spent = [], told.get("guarantee"), told.get("spent")
    if promise:
        mark = "" if promise["valid"] else "! "
        level = f"epsilon {units.number(promise['epsilon'])}, delta {promise['delta']:g}"
        lines.append(f"{mark}the paper promises {level} {promise['note']}")
    if spent:
        worst = max(float(epsilon) for epsilon in spent["epsilon"])
        lines.append(f"the worst client has spent epsilon {units.number(worst)}, delta {spent['delta']:g}")
    elif promise:
        lines.append("what the rounds add up to is not accounted for: metrics=(fs.privacy.spent(delta=...),) does")
    return lines


def _target(scenario: Scenario, result: Result) -> list[str]:
    """When the target was reached, and by how many replicas with a 95 % interval (Wilson's)."""
    goal = scenario.budget.target
    if goal is None:
        return []
    side = {"above": goal.above} if goal.above is not None else {"below": goal.below}
    axes: tuple[Any, ...] = ("rounds", "seconds", "uplink_bits")
    rounds, virtual, sent = (result.time_to(goal.metric, **side, against=axis) for axis in axes)
    if isinstance(rounds, float):  # a metric over replicas
        if math.isnan(rounds):
            return [f"{_level(goal)}: not reached"]
        return [f"{_level(goal)}   round {rounds:,.0f}, {units.seconds(virtual)}, {units.bits(sent)}"]
    hits, count = int((rounds < math.inf).sum()), len(rounds)
    low, high = wilson(hits, count)
    tally = f"{hits}/{count} replicas [{low:.2f}, {high:.2f}]"
    if rounds.median() == math.inf:
        return [f"{_level(goal)}   reached by {tally}"]
    medians = f"round {rounds.median():,.0f}, {units.seconds(virtual.median())}, {units.bits(sent.median())}"
    return [f"{_level(goal)}   {medians}   {tally}"]


def _level(goal: Any) -> str:
    return f"{goal.metric} >= {goal.above:g}" if goal.above is not None else f"{goal.metric} <= {goal.below:g}"


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval for a probability, of `hits` in `count` trials."""
    middle = (hits + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(hits * (count - hits) / count + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def _unheard(result: Result) -> list[str]:
    """A warning where a client that was asked often is heard far less than the others."""
    if result.clients is None:
        return []
    asked = result.clients[result.clients["selected"] >= 10]
    heard = asked["arrived"] / asked["selected"]
    if not len(heard) or heard.min() > 0.25 * heard.median():
        return []
    worst = asked.loc[heard.idxmin()]
    told = f"client {worst['client']:.0f} heard in {worst['arrived']:,.0f} of {worst['selected']:,.0f} visits"
    return [f"! {told}: the result leans to the others"]


def _clock(result: Result) -> str:
    """What the clock counts and what it leaves out, so that nobody takes zero for fast."""
    clock = result.manifest.get("clock")
    if not isinstance(clock, dict) or not {"network", "compute", "path"} <= set(clock):
        raise CorruptData("the run's manifest is damaged: it does not say what its clock counts")
    counted = [text for part, text in {"network": "transfers", "compute": "computing"}.items() if clock[part]]
    still = {
        "network": "network is None: messages take no time",
        "compute": "devices is None: computing takes no time",
    }
    told = [
        f"clock counts {' and '.join(counted) or 'nothing'}",
        *(still[part] for part in still if not clock[part]),
    ]
    return f"{'; '.join(told)} ({clock['path']})"


def _end(result: Result) -> str:
    real_s = as_float(result.manifest.get("real_s"))
    return f"real {units.seconds(real_s)}   fingerprint {result.fingerprint[:8]}"
