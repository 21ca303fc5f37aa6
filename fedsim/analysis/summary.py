"""What came out of a run, in a few lines, from what it left behind alone: `result.summary()`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedsim import text as units
from fedsim.analysis.intervals import wilson
from fedsim.analysis.timeline import shares
from fedsim.budget import Target
from fedsim.results import Result

LABEL, COLUMN = 16, 12


def lines(result: Result, wide: int = units.DEFAULT_WIDTH) -> list[str]:
    """One run: medians and the 5 to 95 % range over its replicas."""
    rounds = result.rounds.groupby("replica")
    last = rounds[["round", "closed_s"]].max()
    titles = ("median", "5%", "95%") if len(result.replicas) > 1 else ()
    rows = [
        f"stopped by {stopped(result)}",
        *([" " * LABEL + "".join(f"{name:>{COLUMN}}" for name in titles)] if titles else []),
        _row("rounds", last["round"], units.number),
        _row("virtual time", last["closed_s"], units.seconds),
        f"  {clock(result)}",
        *_where(result),
        _row("uplink", rounds["uplink_bits"].sum(), units.bits) + _wasted(result, "uplink_bits", "wasted_bits"),
        _row("downlink", rounds["downlink_bits"].sum(), units.bits)
        + _wasted(result, "downlink_bits", "wasted_down_bits"),
        *_between_sites(result),
        *_device_waste(result),
        *_visits(result, int(last["round"].sum())),
        *_metrics(result),
        *(f"! {text}" for text in warnings(result)),
        *_privacy(result),
        *target_lines(result),
        *_unheard(result),
        _end(result),
    ]
    return [piece for line in rows for piece in units.wrapped(line, wide, indent=2)]


def heading(result: Result, wide: int = units.DEFAULT_WIDTH) -> list[str]:
    """What was run, as its manifest says."""
    scenario = result.manifest.get("scenario")
    if not scenario:
        return []
    clients = "" if result.clients is None else f"{units.many(len(result.clients), 'client')}, "
    title = (
        f"{scenario['algorithm']['type']}, {scenario['problem']['type']}, {clients}"
        f"{units.many(len(result.replicas), 'replica')}, seed {scenario['seed']}"
    )
    parts = {name: scenario.get(name) for name in ("algorithm", "network", "devices", "participation", "budget")}
    facts = [f"{name:15}{units.recorded(part) if part else 'none'}" for name, part in parts.items()]
    return [piece for line in (title, *facts) for piece in units.wrapped(line, wide, indent=15)]


def final_metrics(result: Result) -> dict[str, float]:
    """Every metric where it was last evaluated; the median over replicas of those that each replica has."""
    over = {name: result.metrics[name].dropna() for name in result.over_replicas}
    each = {name: result.rounds.dropna(subset=[name]).groupby("replica")[name].last() for name in result.per_replica}
    ends = {name: float(values.iloc[-1]) for name, values in over.items() if len(values)}
    return ends | {name: float(values.median()) for name, values in each.items() if len(values)}


def reasons(result: Result) -> str:
    """Why the replicas stopped, the most frequent first."""
    return ", ".join(reason for reason, _ in Counter(result.stopped_by).most_common())


def clock(result: Result) -> str:
    """What the clock counts and what it leaves out, so that nobody takes zero for fast."""
    recorded = result.manifest.get("clock")
    if not recorded:
        return "what the clock counts is not recorded"
    counted = [text for part, text in {"network": "transfers", "compute": "computing"}.items() if recorded[part]]
    still = {
        "network": "network is None: messages take no time",
        "compute": "devices is None: computing takes no time",
    }
    facts = [
        f"clock counts {' and '.join(counted) or 'nothing'}",
        *(still[part] for part in still if not recorded[part]),
    ]
    return f"{'; '.join(facts)} ({recorded['path']})"


def _budget(result: Result) -> tuple[dict[str, Any], Target | None]:
    """The limits that were set, and the target apart."""
    limits = dict(result.manifest.get("scenario", {}).get("budget") or {})
    goal = limits.pop("target", None)
    return limits, Target(goal["metric"], goal["above"], goal["below"]) if goal else None


def target(result: Result) -> Target | None:
    """The target of the run's budget."""
    return _budget(result)[1]


def stopped(result: Result) -> str:
    """What stopped the replicas, the limit with its value: seconds=60; how many each where they differ."""
    limits, goal = _budget(result)
    by_reason = []
    for reason, count in Counter(result.stopped_by).most_common():
        limit = limits.get(reason)
        text = level(goal) if reason == "target" and goal else None if limit is None else units.number(limit)
        by_reason.append((reason if text is None else f"{reason}={text}", count))
    if len(by_reason) == 1:
        return by_reason[0][0]
    return ", ".join(f"{what} ({count} of {len(result.replicas)})" for what, count in by_reason)


def _between_sites(result: Result) -> list[str]:
    """What edges and cloud, or neighbours, have sent each other; nothing where there is one site."""
    if "backhaul_bits" not in result.rounds or result.manifest.get("sites", {}).get("count", 1) == 1:
        return []
    return [_row("between sites", result.rounds.groupby("replica")["backhaul_bits"].sum(), units.bits)]


def _row(name: str, values: Any, form: Any) -> str:
    cells = (values.median(), values.quantile(0.05), values.quantile(0.95))
    return f"{name:{LABEL}}" + "".join(f"{form(float(c)):>{COLUMN}}" for c in cells[: 3 if len(values) > 1 else 1])


def _wasted(result: Result, sent: str, wasted: str) -> str:
    total = int(result.rounds[sent].sum())
    if wasted not in result.rounds or not total:
        return ""
    return f"   wasted {units.share(int(result.rounds[wasted].sum()) / total)}"


def _device_waste(result: Result) -> list[str]:
    """Seconds that devices spent on visits that were not folded, where any were."""
    if "wasted_s" not in result.rounds or not result.rounds["wasted_s"].sum():
        return []
    return [_row("devices wasted", result.rounds.groupby("replica")["wasted_s"].sum(), units.seconds)]


def _where(result: Result) -> list[str]:
    parts = shares(result)
    if not parts or min(parts.values()) < 0:
        return []
    return ["  " + ", ".join(f"{name} {units.share(part)}" for name, part in parts.items())]


def _visits(result: Result, rounds: int) -> list[str]:
    totals = result.rounds[["selected", "arrived", "late", "dropped"]].sum() / max(rounds, 1)
    names = {"selected": "asked"}
    counts = [f"{names.get(name, name)} {units.number(round(value, 1))}" for name, value in totals.items()]
    return ["each round: " + "   ".join(counts)]


def _metrics(result: Result) -> list[str]:
    ends = final_metrics(result)
    values = ["   ".join(f"{name} {units.number(value)}" for name, value in ends.items())] if ends else []
    judged = result.manifest.get("judged", {})
    names = {text: ", ".join(name for name in judged if judged[name] == text) for text in judged.values()}
    return values + [f"  {columns}: of {text}" for text, columns in names.items()]


def warnings(result: Result) -> list[str]:
    """Where a figure says less than it seems, a sentence each."""
    return [str(text) for text in result.manifest.get("warnings", ())]


def warnings_of(texts: Sequence[str]) -> str:
    """The warnings of several runs of one setting in one cell of a table: how many have some, and the first's."""
    given = [text for text in texts if isinstance(text, str) and text]
    return (
        f"{len(given)} of {units.many(len(texts), 'run')}: {given[0]}" if given and len(texts) > 1 else "".join(given)
    )


def _privacy(result: Result) -> list[str]:
    """What was promised to whom, what of it the proof covers, and what was really spent."""
    privacy = result.manifest.get("privacy", {})
    lines, promise, spent = [], privacy.get("guarantee"), privacy.get("spent")
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


def target_lines(result: Result) -> list[str]:
    """When the target was reached, and by how many replicas with a 95 % interval (Wilson's)."""
    goal = _budget(result)[1]
    if goal is None:
        return []
    side = {"above": goal.above} if goal.above is not None else {"below": goal.below}
    axes: tuple[Any, ...] = ("rounds", "seconds", "total_bits")
    rounds, virtual, sent = (result.time_to(goal.metric, **side, against=axis) for axis in axes)
    if isinstance(rounds, float):  # a metric over replicas
        if math.isnan(rounds):
            return [f"{level(goal)}: not reached"]
        return [f"{level(goal)}   round {rounds:,.0f}, {units.seconds(virtual)}, {units.bits(sent)}"]
    hits, count = int((rounds < math.inf).sum()), len(rounds)
    low, high = wilson(hits, count)
    tally = f"{hits}/{count} replicas [{low:.2f}, {high:.2f}]"
    if rounds.median() == math.inf:
        return [f"{level(goal)}   reached by {tally}"]
    medians = f"round {rounds.median():,.0f}, {units.seconds(virtual.median())}, {units.bits(sent.median())}"
    return [f"{level(goal)}   {medians}   {tally}"]


def level(goal: Target) -> str:
    """A target in words: w2 <= 0.05."""
    return f"{goal.metric} >= {goal.above:g}" if goal.above is not None else f"{goal.metric} <= {goal.below:g}"


def _unheard(result: Result) -> list[str]:
    """A warning where a client that was asked often is heard far less than the others."""
    if result.clients is None:
        return []
    asked = result.clients[result.clients["selected"] >= 10]
    heard = asked["arrived"] / asked["selected"]
    if not len(heard) or heard.min() > 0.25 * heard.median():
        return []
    worst = asked.loc[heard.idxmin()]
    heard_in = f"client {worst['client']:.0f} heard in {worst['arrived']:,.0f} of {worst['selected']:,.0f} visits"
    return [f"! {heard_in}: the result leans to the others"]


def _end(result: Result) -> str:
    real = result.manifest.get("real_s")
    return ("" if real is None else f"real {units.seconds(real)}   ") + f"fingerprint {result.fingerprint[:8]}"
