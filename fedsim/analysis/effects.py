"""Effect of a parameter: the U-curve and its optimum; paired comparison of two settings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis.inputs import Answer, LabelledRun, collect_runs
from fedsim.analysis.intervals import FEWEST, RESAMPLES, mean_interval, median_interval, medians, middle
from fedsim.analysis.targets import AXES, table
from fedsim.budget import Target
from fedsim.checks import check_choice
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.results import Axis
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd

LARGEST = 1e308


def u_curve(
    results: object, metric: str, above: float | None = None, below: float | None = None,
    parameter: str = "local_steps", against: Axis = "rounds",
) -> Answer:  # fmt: skip
    """Return the cost of reaching a level for every value of a parameter: medians over seeds and replicas.

    Columns: the parameter, `against`, `low`, `high` (95 % bootstrap), `trials`, `never` (trials that did not reach the
    level), `best` (share of resamples in which this value costs least). `frame.attrs`: the `optimum` and its interval
    (`optimum_low`, `optimum_high`); the `saving` relative to the smallest value of the parameter, 1 - cost / its cost
    (1 if that never reaches the level), and its interval. Intervals and `best` need 5 trials of a value, else NaN.
    A metric over replicas is one trial per run, so it needs several seeds.
    """
    import pandas as pd

    check_choice("u_curve(against={!r})", against, AXES)
    if not isinstance(parameter, str):
        raise InvalidInput(
            f"u_curve(parameter={short_repr(parameter)}): name a setting or a field of the algorithm, 'local_steps'"
        )
    runs = [_with_parameter(one, parameter) for one in collect_runs(results)]
    frame = table(runs, Target(metric, above, below))
    groups = {value: own[against].to_numpy(np.float64) for value, own in frame.groupby(parameter, sort=True)}
    if len(groups) < 2:
        same = f"all runs have {parameter}={next(iter(groups))}"
        raise InvalidInput(f"u_curve(parameter={parameter!r}): {same}; give runs with different values")
    drawn = np.stack([medians(values, group=i) for i, values in enumerate(groups.values())])  # (values, resamples)
    enough = min(map(len, groups.values())) >= FEWEST
    values = np.array(list(groups))
    least = drawn.min(axis=0)
    wins = (drawn == least) & np.isfinite(least)
    first = wins.argmax(axis=0)[wins.any(axis=0)]
    rows = []
    for i, (value, costs) in enumerate(groups.items()):
        centre, low, high = median_interval(costs)
        never = int(np.isinf(costs).sum())
        won = float((first == i).sum()) / RESAMPLES if enough else math.nan
        rows.append((value, centre, low, high, len(costs), never, won))
    out = pd.DataFrame(rows, columns=[parameter, against, "low", "high", "trials", "never", "best"])
    best = int(out[against].argmin())
    with np.errstate(invalid="ignore"):
        saved = 1 - drawn[best] / drawn[0]
    saved = np.where(np.isnan(saved), 0.0, saved)
    if len(first) and math.isfinite(out[against].iloc[best]):
        low, high = middle(values[first].astype(np.float64)) if enough else (math.nan, math.nan)
        out.attrs |= {"optimum": values[best].item(), "optimum_low": low, "optimum_high": high}
        centre = 1 - out[against].iloc[best] / out[against].iloc[0]
        low, high = middle(saved) if enough else (math.nan, math.nan)
        out.attrs |= {"saving": float(centre), "saving_low": low, "saving_high": high}
    return Answer(out, _u_figure(out, parameter, against, Target(metric, above, below)))


def _with_parameter(one: LabelledRun, parameter: str) -> LabelledRun:
    """Return the run with the parameter among its settings, taken from the manifest if it was not set."""
    if parameter in one.settings:
        return one
    scenario = one.result.manifest.get("scenario") or {}
    algorithm = scenario.get("algorithm")
    if not isinstance(algorithm, dict) or parameter not in algorithm:
        raise NotRecorded(f"run {one.label!r} has no {parameter}; sweep it, or name a field of the algorithm")
    return LabelledRun(one.label, one.settings | {parameter: algorithm[parameter]}, one.result)


def _u_figure(frame: pd.DataFrame, parameter: str, against: str, goal: Target) -> Any:
    figure = figures.blank(7, 4)
    axes = figure.subplots()
    drawn = frame[np.isfinite(frame[against])]
    high = drawn["high"].where(np.isfinite(drawn["high"]), drawn[against])
    axes.fill_between(drawn[parameter], drawn["low"], high, color=figures.COLOURS[0], alpha=0.18, lw=0)
    axes.plot(drawn[parameter], drawn[against], "o-", color=figures.COLOURS[0], lw=1.6, ms=5)
    if "optimum" in frame.attrs:
        axes.axvline(frame.attrs["optimum"], color=figures.FAINT, lw=1, ls=(0, (4, 3)))
    if (frame[parameter] > 0).all() and frame[parameter].max() > 10 * frame[parameter].min():
        axes.set_xscale("log")
    level = f">= {goal.above:g}" if goal.above is not None else f"<= {goal.below:g}"
    axes.set(xlabel=parameter, ylabel=f"{figures.NAMES[against]} until {goal.metric} {level}")
    figures.plain(axes)
    return figure


def compare(
    a: object, b: object, metric: str, above: float | None = None, below: float | None = None, against: Axis = "seconds"
) -> Answer:  # fmt: skip
    """Return b - a, paired by seed and replica: of the final metric or, with a level, of the cost of reaching it.

    One row per pair: `seed, replica, a, b, difference`. `frame.attrs`: `difference` and its 95 % interval `low`,
    `high`; `statistic`, "mean" (with Student's interval) or, if a trial never reached the level, "median" (with its
    bootstrap); `pairs`; and `unpaired`, the trials without a partner. Fewer than 5 pairs have no interval (NaN).
    """
    if (above is None) and (below is None):
        goal, column = Target(metric, below=-LARGEST), "last"  # never reached, so that only `last` is used
    else:
        goal, column = Target(metric, above, below), str(check_choice("compare(against={!r})", against, AXES))
    sides = []
    for side in (a, b):
        frame = table(collect_runs(side), goal)
        keyed = frame.set_index(["seed", "replica"])[column]
        if keyed.index.has_duplicates:
            raise InvalidInput(
                "compare(a, b): one side has several runs of the same seed; compare one setting with one"
            )
        sides.append(keyed)
    pairs = sides[0].to_frame("a").join(sides[1].rename("b"), how="inner")
    if pairs.empty:
        raise InvalidInput("compare(a, b): no seed and replica is on both sides; run both settings with the same seeds")
    neither = np.isinf(pairs["a"]) & np.isinf(pairs["b"])
    with np.errstate(invalid="ignore"):
        pairs["difference"] = (pairs["b"] - pairs["a"]).mask(neither, 0.0)  # neither reached it
    finite = bool(np.isfinite(pairs["difference"]).all()) and not neither.any()
    centre, low, high = (mean_interval if finite else median_interval)(pairs["difference"].to_numpy())
    out = pairs.reset_index()
    out.attrs |= {
        "difference": centre, "low": low, "high": high, "statistic": "mean" if finite else "median",
        "pairs": len(out), "unpaired": len(sides[0]) + len(sides[1]) - 2 * len(out),
    }  # fmt: skip
    figure = figures.blank(5, 4)
    axes = figure.subplots()
    axes.scatter(out["a"], out["b"], s=18, color=figures.COLOURS[0], alpha=0.7, lw=0)
    shown = out[["a", "b"]].to_numpy()[np.isfinite(out[["a", "b"]]).all(axis=1)]
    if len(shown):
        axes.plot([shown.min(), shown.max()], [shown.min(), shown.max()], color=figures.FAINT, lw=1, ls=(0, (4, 3)))
    what = metric if column == "last" else f"{figures.NAMES.get(against, against)} to the level"
    axes.set(xlabel=f"a: {what}", ylabel=f"b: {what}")
    sure = f"[{low:.4g}, {high:.4g}]" if not math.isnan(low) else f"({len(out)} pairs: no interval)"
    axes.set_title(f"b - a = {centre:.4g} {sure}", loc="left", fontsize=10)
    figures.plain(axes)
    return Answer(out, figure)
