"""Cost of a goal: time and bits to a level, the level at a budget, the probability of meeting a deadline."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis.inputs import Answer, LabelledRun, collect_runs, run_columns
from fedsim.analysis.intervals import wilson
from fedsim.analysis.summary import level, target
from fedsim.arrays import Array
from fedsim.budget import Target
from fedsim.checks import check_choice, check_positive
from fedsim.errors import InvalidInput
from fedsim.results import Axis, Result, sent_bits, total_bits
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd

AXES: tuple[Axis, ...] = ("rounds", "seconds", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits")
ALL_REPLICAS = -1  # in the column `replica`: a metric over all replicas, such as w2


def goal_of(text: str) -> Target:
    """Parse a goal: `accuracy >= .83`, `w2 < 0.05`."""
    found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(>=|<=|>|<)\s*(\S+)\s*", text) if isinstance(text, str) else None
    try:
        level = float(found[3]) if found else math.nan
    except ValueError:
        level = math.nan
    if found is None or math.isnan(level):
        raise InvalidInput(f"goal={short_repr(text)}: write a metric, >= or <=, and a level, as in 'accuracy >= .83'")
    return Target(found[1], above=level) if ">" in found[2] else Target(found[1], below=level)


def spent_at(result: Result, goal: Target) -> pd.DataFrame:
    """Return one row per replica (one row, ALL_REPLICAS, for a metric over replicas): the cost of reaching the goal.

    Columns: `replica, reached`; the costs until then (`rounds` to `total_bits`, infinity if never reached); `epsilon`
    if it was recorded; and `last`, the last value of the metric.
    """
    import pandas as pd

    frame, replicas = _evaluations(result, goal.metric)
    hit = frame[goal.reached(frame["value"])].groupby("replica").first()
    costs = [name for name in (*AXES, "epsilon") if name in frame]
    out = hit.reindex(replicas)[costs].fillna(math.inf).astype(np.float64)
    out.insert(0, "reached", np.isin(replicas, hit.index))
    out["last"] = frame.groupby("replica")["value"].last().reindex(replicas)
    return pd.DataFrame(out.rename_axis("replica").reset_index())


def _evaluations(result: Result, metric: str) -> tuple[pd.DataFrame, list[int]]:
    """Return every evaluation of a metric (`replica, value` and the costs until then) and the list of replicas."""
    if not isinstance(metric, str):
        raise InvalidInput(f"metric={short_repr(metric)}: name a metric's column, such as 'w2'")
    curve = result.curve(metric)  # raises NotRecorded and lists the evaluated metrics
    if metric in result.over_replicas:
        frame = curve.rename(columns={metric: "value"}).assign(replica=ALL_REPLICAS)
        for axis in AXES:
            frame[axis] = result.curve(metric, axis)[axis].to_numpy(np.float64)
        if "epsilon" in result.per_replica:
            known = result.rounds.dropna(subset=["epsilon"]).groupby("round")["epsilon"].median().sort_index()
            frame["epsilon"] = known.reindex(frame["rounds"].astype(int), method="ffill").to_numpy()
        return frame, [ALL_REPLICAS]
    rounds = result.rounds.sort_values(["replica", "round"], ignore_index=True)
    sent = {name: sent_bits(rounds, name) for name in ("uplink_bits", "downlink_bits", "backhaul_bits")}
    sent["total_bits"] = total_bits(rounds)
    columns = {
        "replica": rounds["replica"], "value": rounds[metric], "rounds": rounds["round"],
        "seconds": rounds["closed_s"], **{n: bits.groupby(rounds["replica"]).cumsum() for n, bits in sent.items()},
    }  # fmt: skip
    frame = rounds[[]].assign(**columns)
    if "epsilon" in rounds:
        frame["epsilon"] = rounds.groupby("replica")["epsilon"].ffill()
    return frame[frame["value"].notna()], list(result.replicas)


def table(runs: list[LabelledRun], goal: Target) -> pd.DataFrame:
    """Return `spent_at` of all runs in one table, settings first."""
    import pandas as pd

    parts = [spent_at(one.result, goal).assign(**run_columns(one)) for one in runs]
    names = list(dict.fromkeys(name for one in runs for name in run_columns(one)))
    frame = pd.concat(parts, ignore_index=True)
    return frame[[*names, *(name for name in frame.columns if name not in names)]]


def to_target(result: Result) -> dict[str, Any]:
    """Return the cost of reaching the budget's target, medians over replicas; {} without a target."""
    if (goal := target(result)) is None:
        return {}
    spent = spent_at(result, goal)
    costs = {f"{name}_to_target": median(spent[name].to_numpy(np.float64)) for name in ("seconds", "total_bits")}
    return {"target": level(goal), **costs}


def median(values: Array) -> float:
    """Return the median, also of infinite values."""
    ordered = np.sort(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low if low == high else (low + high) / 2)


def time_to(
    results: object, metric: str, above: float | None = None, below: float | None = None, against: Axis = "seconds"
) -> Answer:  # fmt: skip
    """Return the cost at which a metric first reached a level, by run and replica.

    The cost is infinity if the level was never reached. Replica -1 is a metric over all replicas, such as w2.
    """
    goal = Target(metric, above, below)
    check_choice("against={!r}", against, AXES)
    frame = table(collect_runs(results), goal)
    words = f"{figures.NAMES.get(against, against)} until {level(goal)}"
    return Answer(frame, figures.ranges(frame, against, words))


def bits_to(
    results: object, metric: str, above: float | None = None, below: float | None = None, bits: Axis = "total_bits"
) -> Answer:  # fmt: skip
    """Return `time_to` with the cost in bits, by default uplink, downlink and between sites together."""
    check_choice("bits_to(bits={!r})", bits, AXES[2:])
    return time_to(results, metric, above, below, bits)


def at_budget(
    results: object, metric: str, *, rounds: float | None = None, seconds: float | None = None,
    uplink_bits: float | None = None, downlink_bits: float | None = None, backhaul_bits: float | None = None,
    total_bits: float | None = None,
) -> Answer:  # fmt: skip
    """Return the last value of a metric within a budget of one or more limits, NaN if it was not evaluated."""
    import pandas as pd

    given = dict(zip(AXES, (rounds, seconds, uplink_bits, downlink_bits, backhaul_bits, total_bits), strict=True))
    limits = {
        name: check_positive(f"at_budget({name}={{}})", limit) for name, limit in given.items() if limit is not None
    }
    if not limits:
        raise InvalidInput("at_budget: give at least one limit, such as seconds=60")
    parts = []
    for one in collect_runs(results):
        frame, replicas = _evaluations(one.result, metric)
        inside = frame[np.logical_and.reduce([frame[name] <= limit for name, limit in limits.items()])]
        last = inside.groupby("replica").last().reindex(replicas).rename(columns={"value": metric})
        parts.append(last.rename_axis("replica").reset_index().assign(**run_columns(one)))
    frame = pd.concat(parts, ignore_index=True)
    words = f"{metric} within {', '.join(f'{name} {limit:g}' for name, limit in limits.items())}"
    return Answer(frame, figures.ranges(frame, metric, words))


def meets_deadline(
    results: object, metric: str, below: float | None = None, seconds: float = math.nan, *, above: float | None = None
) -> Answer:  # fmt: skip
    """Return the probability that a metric reaches a level in time, over replicas and seeds, with Wilson's interval.

    A metric over all replicas is one trial per run, so it needs several seeds.
    """
    import pandas as pd

    goal, limit = Target(metric, above, below), check_positive("meets_deadline(seconds={})", seconds)
    frame = table(collect_runs(results), goal)
    rows = []
    for label, own in frame.groupby("run", sort=False):
        hits, count = int((own["seconds"] <= limit).sum()), len(own)
        low, high = wilson(hits, count)
        rows.append((label, hits, count, hits / count, low, high))
    out = pd.DataFrame(rows, columns=["run", "met", "trials", "probability", "low", "high"])
    return Answer(out, figures.intervals(out, "probability", f"probability of {level(goal)} within {limit:g} s"))
