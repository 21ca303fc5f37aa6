"""What a goal costs: time and bits to a level, the level at a budget, the chance of meeting a deadline."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis.inputs import Answer, LabelledRun, facts, gather
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
EVERYBODY = -1  # in the column `replica`: a metric over all replicas, such as w2


def goal_of(text: str) -> Target:
    """A goal from its words: `accuracy >= .83`, `w2 < 0.05`."""
    found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(>=|<=|>|<)\s*(\S+)\s*", text) if isinstance(text, str) else None
    try:
        level = float(found[3]) if found else math.nan
    except ValueError:
        level = math.nan
    if found is None or math.isnan(level):
        raise InvalidInput(f"goal={short_repr(text)}: write a metric, >= or <=, and a level, as in 'accuracy >= .83'")
    return Target(found[1], above=level) if ">" in found[2] else Target(found[1], below=level)


def spent_at(result: Result, goal: Target) -> pd.DataFrame:
    """One row per replica (a single one, EVERYBODY, for a metric over replicas): whether and at what cost it got there.

    Columns: `replica, reached`, what had been spent by then (`rounds` to `total_bits`; infinity if never), `epsilon`
    where it was accounted for, and `last`, the metric where it was last evaluated.
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
    """Every evaluation of a metric: `replica, value`, what had been spent by then; and the replicas that there are."""
    if not isinstance(metric, str):
        raise InvalidInput(f"metric={short_repr(metric)}: name a metric's column, such as 'w2'")
    curve = result.curve(metric)  # refuses one that was not evaluated, with those that were
    if metric in result.over_replicas:
        frame = curve.rename(columns={metric: "value"}).assign(replica=EVERYBODY)
        for axis in AXES:
            frame[axis] = result.curve(metric, axis)[axis].to_numpy(np.float64)
        if "epsilon" in result.per_replica:
            known = result.rounds.dropna(subset=["epsilon"]).groupby("round")["epsilon"].median().sort_index()
            frame["epsilon"] = known.reindex(frame["rounds"].astype(int), method="ffill").to_numpy()
        return frame, [EVERYBODY]
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
    """`spent_at` of all runs, one below the other, with what was set in front."""
    import pandas as pd

    parts = [spent_at(one.result, goal).assign(**facts(one)) for one in runs]
    names = list(dict.fromkeys(name for one in runs for name in facts(one)))
    frame = pd.concat(parts, ignore_index=True)
    return frame[[*names, *(name for name in frame.columns if name not in names)]]


def to_target(result: Result) -> dict[str, Any]:
    """What reaching the budget's target took, medians over replicas; nothing where there is no target."""
    if (goal := target(result)) is None:
        return {}
    spent = spent_at(result, goal)
    costs = {f"{name}_to_target": median(spent[name].to_numpy(np.float64)) for name in ("seconds", "total_bits")}
    return {"target": level(goal), **costs}


def median(values: Array) -> float:
    """The median, where infinities meet infinities and never become their difference."""
    ordered = np.sort(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return float(low if low == high else (low + high) / 2)


def time_to(
    results: object, metric: str, above: float | None = None, below: float | None = None, against: Axis = "seconds"
) -> Answer:  # fmt: skip
    """What had been spent when a metric was first found at or above (at or below) a level, by run and replica.

    Infinity where it never was; replica -1 stands for a metric over all replicas, such as w2.
    """
    goal = Target(metric, above, below)
    check_choice("against={!r}", against, AXES)
    frame = table(gather(results), goal)
    words = f"{figures.NAMES.get(against, against)} until {level(goal)}"
    return Answer(frame, figures.ranges(frame, against, words))


def bits_to(
    results: object, metric: str, above: float | None = None, below: float | None = None, bits: Axis = "total_bits"
) -> Answer:  # fmt: skip
    """`time_to`, drawn against the bits that were sent, by default up, down and between sites together."""
    check_choice("bits_to(bits={!r})", bits, AXES[2:])
    return time_to(results, metric, above, below, bits)


def at_budget(
    results: object, metric: str, *, rounds: float | None = None, seconds: float | None = None,
    uplink_bits: float | None = None, downlink_bits: float | None = None, backhaul_bits: float | None = None,
    total_bits: float | None = None,
) -> Answer:  # fmt: skip
    """The metric where it was last evaluated within a budget, NaN where it never was; give one or more limits."""
    import pandas as pd

    given = dict(zip(AXES, (rounds, seconds, uplink_bits, downlink_bits, backhaul_bits, total_bits), strict=True))
    limits = {
        name: check_positive(f"at_budget({name}={{}})", limit) for name, limit in given.items() if limit is not None
    }
    if not limits:
        raise InvalidInput("at_budget: give at least one limit, such as seconds=60")
    parts = []
    for one in gather(results):
        frame, replicas = _evaluations(one.result, metric)
        inside = frame[np.logical_and.reduce([frame[name] <= limit for name, limit in limits.items()])]
        last = inside.groupby("replica").last().reindex(replicas).rename(columns={"value": metric})
        parts.append(last.rename_axis("replica").reset_index().assign(**facts(one)))
    frame = pd.concat(parts, ignore_index=True)
    words = f"{metric} within {', '.join(f'{name} {limit:g}' for name, limit in limits.items())}"
    return Answer(frame, figures.ranges(frame, metric, words))


def deadline(
    results: object, metric: str, below: float | None = None, seconds: float = math.nan, *, above: float | None = None
) -> Answer:  # fmt: skip
    """How probable it is that the metric is there in time: hits among replicas and seeds, with Wilson's 95 % interval.

    A metric over all replicas counts once a run, so that it takes several seeds.
    """
    import pandas as pd

    goal, limit = Target(metric, above, below), check_positive("deadline(seconds={})", seconds)
    frame = table(gather(results), goal)
    rows = []
    for label, own in frame.groupby("run", sort=False):
        hits, count = int((own["seconds"] <= limit).sum()), len(own)
        low, high = wilson(hits, count)
        rows.append((label, hits, count, hits / count, low, high))
    out = pd.DataFrame(rows, columns=["run", "met", "trials", "probability", "low", "high"])
    return Answer(out, figures.intervals(out, "probability", f"probability of {level(goal)} within {limit:g} s"))
