"""The lines after a run, read from its result alone: `result.summary()`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedsim import text
from fedsim.analysis.intervals import wilson
from fedsim.analysis.timeline import shares
from fedsim.budget import Target
from fedsim.results import Result, sent_bits

LABEL, COLUMN = 16, 12  # widths
TITLES = {
    "ece": "ECE",
    "nll": "NLL",
    "rhat": "R-hat",
    "ess": "ESS",
    "ess_tail": "tail ESS",
    "ess_per_megabit": "ESS/Mbit",
}


def lines(result: Result, width: int = text.DEFAULT_WIDTH) -> list[str]:
    """Return the summary of a run: medians and 5 to 95 % ranges over its replicas."""
    replicas = result.rounds.groupby("replica")
    last = replicas[["round", "closed_s"]].max()
    titles = [" " * LABEL + "".join(f"{name:>{COLUMN}}" for name in ("median", "5%", "95%"))]
    rows = [
        f"stopped by {stopped(result)}",
        *(titles if len(result.replicas) > 1 else []),
        _row("rounds", last["round"], text.number),
        _row("virtual time", last["closed_s"], text.seconds),
        *_phases(result),
        f"  {clock(result)}",
        _row("uplink", replicas["uplink_bits"].sum(), text.bits) + _wasted(result, "uplink_bits", "wasted_bits"),
        _row("downlink", replicas["downlink_bits"].sum(), text.bits)
        + _wasted(result, "downlink_bits", "wasted_down_bits"),
        *_between_sites(result),
        *_device_waste(result),
        _visits(result, int(last["round"].sum())),
        *_metrics(result),
        *target_lines(result),
        *_privacy(result),
        *(f"warning: {sentence}" for sentence in (*warnings(result), *_bias(result))),
        _end(result),
    ]
    return [piece for line in rows for piece in text.wrapped(line, width, indent=2)]


def heading(result: Result, width: int = text.DEFAULT_WIDTH) -> list[str]:
    """Return the scenario of a result in a few lines, from its manifest."""
    scenario = result.manifest.get("scenario")
    if not scenario:
        return []
    clients = "" if result.clients is None else f"{text.plural(len(result.clients), 'client')}, "
    title = (
        f"{scenario['algorithm']['type']}, {scenario['problem']['type']}, {clients}"
        f"{text.plural(len(result.replicas), 'replica')}, seed {scenario['seed']}"
    )
    parts = {name: scenario.get(name) for name in ("algorithm", "network", "devices", "participation", "budget")}
    facts = [f"{name:15}{text.recorded_call(part) if part else 'none'}" for name, part in parts.items()]
    return [piece for line in (title, *facts) for piece in text.wrapped(line, width, indent=15)]


def final_metrics(result: Result) -> dict[str, float]:
    """Return the last value of every metric; the median over replicas if each replica has one."""
    over = {name: result.metrics[name].dropna() for name in result.over_replicas}
    each = {name: result.rounds.dropna(subset=[name]).groupby("replica")[name].last() for name in result.per_replica}
    ends = {name: float(values.iloc[-1]) for name, values in over.items() if len(values)}
    return ends | {name: float(values.median()) for name, values in each.items() if len(values)}


def reasons(result: Result) -> str:
    """Return why the replicas stopped, the most frequent reason first."""
    return ", ".join(reason for reason, _ in Counter(result.stopped_by).most_common())


def clock(result: Result) -> str:
    """Return what the virtual clock counts and which parts take no time."""
    recorded = result.manifest.get("clock")
    if not recorded:
        return "the result does not record what the clock counts"
    counted = [name for part, name in {"network": "transfers", "compute": "computing"}.items() if recorded[part]]
    free = {"network": "network is None: messages take no time", "compute": "devices is None: computing takes no time"}
    facts = [
        f"clock counts {' and '.join(counted) or 'nothing'}",
        *(sentence for part, sentence in free.items() if not recorded[part]),
    ]
    return f"{'; '.join(facts)} ({recorded['path']})"


def _budget(result: Result) -> tuple[dict[str, Any], Target | None]:
    """Return the limits of the budget, and its target."""
    limits = dict(result.manifest.get("scenario", {}).get("budget") or {})
    goal = limits.pop("target", None)
    return limits, Target(goal["metric"], goal["above"], goal["below"]) if goal else None


def target(result: Result) -> Target | None:
    """Return the target of the run's budget."""
    return _budget(result)[1]


def stopped(result: Result) -> str:
    """Return what stopped the replicas with the value of the limit, such as seconds=60, and counts if they differ."""
    limits, goal = _budget(result)
    by_reason = []
    for reason, count in Counter(result.stopped_by).most_common():
        limit = limits.get(reason)
        value = level(goal) if reason == "target" and goal else None if limit is None else text.number(limit)
        by_reason.append((reason if value is None else f"{reason}={value}", count))
    if len(by_reason) == 1:
        return by_reason[0][0]
    return ", ".join(f"{reason} ({count} of {len(result.replicas)})" for reason, count in by_reason)


def _between_sites(result: Result) -> list[str]:
    """Return the bits between edges and cloud, or between neighbours; nothing for a single site."""
    if "backhaul_bits" not in result.rounds or result.manifest.get("sites", {}).get("count", 1) == 1:
        return []
    return [_row("between sites", result.rounds.groupby("replica")["backhaul_bits"].sum(), text.bits)]


def _row(name: str, values: Any, form: Any) -> str:
    cells = (values.median(), values.quantile(0.05), values.quantile(0.95))
    return f"{name:{LABEL}}" + "".join(f"{form(float(c)):>{COLUMN}}" for c in cells[: 3 if len(values) > 1 else 1])


def _wasted(result: Result, sent: str, wasted: str) -> str:
    total = int(result.rounds[sent].sum())
    if wasted not in result.rounds or not total:
        return ""
    return f"   wasted {text.share(int(result.rounds[wasted].sum()) / total)}"


def _device_waste(result: Result) -> list[str]:
    """Return the seconds that devices spent on replies that were not aggregated."""
    if "wasted_s" not in result.rounds or not result.rounds["wasted_s"].sum():
        return []
    return [_row("devices wasted", result.rounds.groupby("replica")["wasted_s"].sum(), text.seconds)]


def _phases(result: Result) -> list[str]:
    parts = shares(result)
    if not parts or min(parts.values()) < 0:
        return []
    return ["  " + ", ".join(f"{name} {text.share(part)}" for name, part in parts.items())]


def _visits(result: Result, rounds: int) -> str:
    totals = result.rounds[["selected", "arrived", "late", "dropped"]].sum() / max(rounds, 1)
    counts = "   ".join(f"{name} {text.number(round(value, 1))}" for name, value in totals.items())
    return f"{counts}   (per round)"


def _metrics(result: Result) -> list[str]:
    ends = final_metrics(result)
    names = [name for name in (*result.per_replica, *result.over_replicas) if name in ends]
    cells = [f"{TITLES.get(name, name)} {text.number(ends[name])}" for name in names]
    megabits = float((result.rounds["uplink_bits"] + sent_bits(result.rounds, "backhaul_bits")).sum()) / 1e6
    if "ess" in ends and "ess_per_megabit" not in ends and megabits:
        cells.append(f"ESS/Mbit {text.number(ends['ess'] / megabits)}")
    judged = result.manifest.get("judged", {})
    columns = {sample: ", ".join(name for name in judged if judged[name] == sample) for sample in judged.values()}
    return ["   ".join(cells)] * bool(cells) + [f"  {own}: of {sample}" for sample, own in columns.items()]


def warnings(result: Result) -> list[str]:
    """Return the warnings of a result, a sentence each."""
    return [str(sentence) for sentence in result.manifest.get("warnings", ())]


def warnings_of(texts: Sequence[str]) -> str:
    """Return the warnings of the runs of a setting as one cell: how many runs have one, and the first."""
    given = [one for one in texts if isinstance(one, str) and one]
    if given and len(texts) > 1:
        return f"{len(given)} of {text.plural(len(texts), 'run')}: {given[0]}"
    return "".join(given)


def _privacy(result: Result) -> list[str]:
    """Return the paper's guarantee, with a warning where its proof does not apply, and the realised privacy loss."""
    privacy = result.manifest.get("privacy", {})
    lines, guarantee, spent = [], privacy.get("guarantee"), privacy.get("spent")
    if guarantee:
        mark = "" if guarantee["valid"] else "warning: "
        values = f"epsilon {text.number(guarantee['epsilon'])}, delta {guarantee['delta']:g}"
        lines.append(f"{mark}the paper guarantees {values} {guarantee['note']}")
    if spent:
        worst = max(float(epsilon) for epsilon in spent["epsilon"])
        lines.append(f"largest privacy loss of a client: epsilon {text.number(worst)}, delta {spent['delta']:g}")
    elif guarantee:
        lines.append("the loss over all rounds is not recorded; add metrics=(fs.privacy.spent(delta=...),)")
    return lines


def target_lines(result: Result) -> list[str]:
    """Return the cost of reaching the target, and how many replicas reached it, with Wilson's interval."""
    limits, goal = _budget(result)
    if goal is None:
        return []
    side = {"above": goal.above} if goal.above is not None else {"below": goal.below}
    axes: tuple[Any, ...] = ("rounds", "seconds", "total_bits")
    rounds, seconds, bits = (result.time_to(goal.metric, **side, against=axis) for axis in axes)
    if isinstance(rounds, float):  # a metric over replicas
        costs, hits = (rounds, seconds, bits), None
    else:
        costs, hits = (rounds.median(), seconds.median(), bits.median()), int((rounds < math.inf).sum())
    reached = f"round {costs[0]:,.0f}, {text.seconds(costs[1])}, {text.bits(costs[2])}"
    reached = reached if costs[0] < math.inf else "not reached"
    found = [f"{level(goal)}   {reached}"]
    if hits is not None:
        low, high = wilson(hits, len(rounds))
        found.append(f"{_within(limits):{LABEL - 3}}   {hits}/{len(rounds)} replicas [{low:.2f}, {high:.2f}]")
    return found


def _within(limits: dict[str, Any]) -> str:
    """Return the first limit of the budget: within 30m00s, within 200 rounds."""
    forms: dict[str, Any] = {"seconds": text.seconds, "rounds": lambda count: text.plural(int(count), "round")}
    for name in ("seconds", "rounds", "total_bits", "uplink_bits", "downlink_bits", "backhaul_bits"):
        if (limit := limits.get(name)) is not None:
            return f"within {forms.get(name, text.bits)(float(limit))}"
    return "within the budget"


def level(goal: Target) -> str:
    """Return a target as text: w2 <= 0.05."""
    return f"{goal.metric} >= {goal.above:g}" if goal.above is not None else f"{goal.metric} <= {goal.below:g}"


def _bias(result: Result) -> list[str]:
    """Return a sentence if a client that was selected often contributed far less than the others."""
    if result.clients is None:
        return []
    often = result.clients[result.clients["selected"] >= 10]
    rate = often["arrived"] / often["selected"]
    if not len(rate) or rate.min() > 0.25 * rate.median():
        return []
    worst = often.loc[rate.idxmin()]
    counts = f"contributed to {worst['arrived']:,.0f} of {worst['selected']:,.0f} rounds that selected it"
    return [f"client {worst['client']:.0f} {counts}; the result is biased towards the other clients"]


def _end(result: Result) -> str:
    real = result.manifest.get("real_s")
    return ("" if real is None else f"real {text.seconds(real)}   ") + f"fingerprint {result.fingerprint[:8]}"
