"""What a planner found: the setting to take, how sure that is, what each knob is worth, and which limit binds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import text
from fedsim.analysis.intervals import FEWEST
from fedsim.analysis.summary import level
from fedsim.results import write_atomic
from fedsim.results.checksums import read_json, sealed

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.sweeps.tuner import Race

Setting = tuple[int, ...]  # which value of each knob
FEASIBLE, TOO_DEAR, NOT_REACHED = range(3)

FILE, FORMAT = "plan.json", "fedsim-plan-1"
STATES = {FEASIBLE: "within all limits", TOO_DEAR: "beyond a limit", NOT_REACHED: "goal not reached"}


@dataclass(frozen=True, eq=False)
class Advice:
    """`best` are the settings to take and `met` says whether they reach the goal within all limits.

    `spent` is the median over seeds and replicas of what that took, `low` and `high` its 95 % bootstrap interval, from
    the seeds that chose it, NaN below 5 trials. `settings` has a row per setting that was tried, the best first, with
    the range of its trials (`least`, `most`) and the `warnings` of its runs; `knobs` one per value of
    each knob around the best, with `factor`, its cost relative to the best on the same seeds; `limits` one per limit.
    """

    name: str
    goal: str
    spend: str
    within: dict[str, float]
    best: dict[str, Any]
    met: bool
    spent: float
    low: float
    high: float
    settings: pd.DataFrame
    knobs: pd.DataFrame
    limits: pd.DataFrame
    runs: int  # that it took, those that were kept from earlier included
    grid_runs: int  # that the full grid would take
    folder: Path | None = None

    def frame(self) -> pd.DataFrame:
        """One row per setting that was tried, the best first."""
        return self.settings

    def lines(self) -> list[str]:
        """The answer in words."""
        best = ", ".join(f"{name}={value}" for name, value in self.best.items())
        of = f"{text.many(self.runs, 'run')} of the full grid's {self.grid_runs:,}"
        if not self.met:
            answer = [f"no setting that was tried reaches {self.goal}{self._limits()}; nearest: {best} ({of})"]
            return answer + self._binding()
        first = self.settings.iloc[0]
        return [
            f"{self.goal} for the least {self.spend}{self._limits()}: {best}",
            f"  {self.show(self.spent)} {self._sure(first)}",
            f"  {text.share(first['reached'])} of its trials get there; {of}",
            *([f"! {first['warnings']}"] if first["warnings"] else []),
            *self._worth(),
            *self._binding(),
        ]

    def _sure(self, first: Any) -> str:
        """The interval, or the range where there are too few trials for one."""
        if not math.isnan(self.low):
            ends = f"[{self.show(self.low)}, {self.show(self.high)}]"
            return f"{ends}, median over seeds and replicas and its 95 % interval"
        ends = f"from {self.show(first['least'])} to {self.show(first['most'])}"
        return f"{ends}, median and range of {text.many(int(first['trials']), 'trial')}: an interval needs {FEWEST}"

    def show(self, value: float) -> str:
        """An amount of what is spent."""
        return show(self.spend, value)

    def save(self, folder: Path) -> Path:
        """Leave the answer beside the runs, where `fedsim report` finds it."""
        facts = {name: getattr(self, name) for name in ("name", "goal", "spend", "within", "best", "met", "runs")}
        facts |= {name: getattr(self, name) for name in ("spent", "low", "high", "grid_runs")} | {"lines": self.lines()}
        tables = {name: getattr(self, name).to_dict("records") for name in ("settings", "knobs", "limits")}
        path = folder / FILE
        write_atomic(path, sealed(FORMAT, facts | tables))
        return path

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<Advice: {self}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>{self.settings.head(10).to_html(index=False, border=0)}"

    def _limits(self) -> str:
        limits = [f"{name} <= {show(name, limit)}" for name, limit in self.within.items()]
        return f" within {', '.join(limits)}" if limits else ""

    def _worth(self) -> list[str]:
        lines = []
        for knob, own in self.knobs.groupby("knob", sort=False):
            cells = [f"{row['value']}: {_factor(row['factor'])}" for row in own.to_dict("records") if not row["chosen"]]
            if cells:
                lines.append(f"  {knob}={self.best[str(knob)]} against {', '.join(cells)}")
        return ["what each knob is worth around it (its cost, relative to the best's):", *lines] if lines else []

    def _binding(self) -> list[str]:
        lines = []
        for row in self.limits.to_dict("records"):
            name, limit = row["limit"], show(row["limit"], row["at_most"])
            if row["binds"]:
                lines.append(
                    f"{name} <= {limit} binds: without it {row['without']} would do for {row['saving']:.0%} less"
                )
            elif row["used"] > 1:
                lines.append(f"{name} <= {limit} is exceeded {row['used']:.3g} times over")
            else:
                lines.append(f"{name} <= {limit} does not bind: {row['used']:.0%} of it is used")
        return lines


def read_plan(folder: Path) -> dict[str, Any] | None:
    """What `Advice.save` left in a folder of runs; None where no planner made them."""
    try:
        return read_json(folder / FILE, FORMAT)
    except FileNotFoundError:
        return None


def show(name: str, value: float) -> str:
    """An amount in its unit."""
    if math.isinf(value):
        return "never"
    amount = text.amount(name, value)
    return amount if name == "seconds" or name.endswith("_bits") else f"{amount} {name}"


def advise(race: Race, best: Setting, runs: int, folder: Path | None) -> Advice:
    """Everything about the outcome of a race."""
    spent, low, high = race.interval(best)
    return Advice(
        name=race.what.name, goal=level(race.goal), spend=race.spend, within=dict(race.within),
        best=race.values(best), met=race.standing(best)[0] == FEASIBLE, spent=spent, low=low, high=high,
        settings=_settings(race, best), knobs=_knobs(race, best), limits=_limits(race, best),
        runs=runs, grid_runs=len(race.what.orders), folder=folder,
    )  # fmt: skip


def _settings(race: Race, best: Setting) -> pd.DataFrame:
    import pandas as pd

    rows = []
    tried = [setting for setting in race.all if len(race.seen(setting))]
    for setting in sorted(tried, key=lambda s: (s != best, -len(race.seen(s)), race.standing(s))):
        trials = race.trials(setting)
        spent, low, high = race.interval(setting)
        each = trials[race.spend].to_numpy(np.float64)
        costs = {name: race.cost(setting, name) for name in race.within if name != race.spend}
        rows.append(
            race.values(setting)
            | {"seeds": len(race.seen(setting)), "reached": float(trials["reached"].mean())}
            | {race.spend: spent, "low": low, "high": high, "least": each.min(), "most": each.max()}
            | costs
            | {"trials": len(each), "verdict": STATES[int(race.standing(setting)[0])]}
            | {"warnings": race.warnings(setting)}
        )
    return pd.DataFrame(rows)


def _knobs(race: Race, best: Setting) -> pd.DataFrame:
    """Along each knob through the best, every value that was tried."""
    import pandas as pd

    rows = []
    for i, (knob, values) in enumerate(race.knobs.items()):
        for j, value in enumerate(values):
            setting = (*best[:i], j, *best[i + 1 :])
            shared = range(min(len(race.seen(setting)), len(race.seen(best))))
            if shared:
                spent, own = race.cost(setting, race.spend, shared), race.cost(best, race.spend, shared)
                factor = spent / own if 0 < own < math.inf else math.nan
                rows.append((knob, value, spent, factor, len(shared), not race.over(setting, shared), setting == best))
    columns = ["knob", "value", race.spend, "factor", "seeds", "allowed", "chosen"]
    values = pd.Series([row[1] for row in rows], dtype=object)  # of several knobs: whole numbers stay whole
    return pd.DataFrame(rows, columns=columns).assign(value=values)


def _limits(race: Race, best: Setting) -> pd.DataFrame:
    """A limit binds if a setting that exceeds it alone would have done for less."""
    import pandas as pd

    rows = []
    for name, limit in race.within.items():
        used, cheaper = race.cost(best, name) / limit, []
        for setting in race.all:
            shared = range(min(len(race.seen(setting)), len(race.seen(best))))
            if shared and race.standing(setting, shared)[0] == TOO_DEAR and set(race.over(setting, shared)) == {name}:
                own, there = race.cost(best, race.spend, shared), race.cost(setting, race.spend, shared)
                if there < own:
                    cheaper.append((there / own, race.words(setting)))
        factor, words = min(cheaper, default=(1.0, ""))
        rows.append((name, limit, used, bool(cheaper), words, 1 - factor))
    return pd.DataFrame(rows, columns=["limit", "at_most", "used", "binds", "without", "saving"])


def _factor(value: float) -> str:
    return "never" if math.isinf(value) else "?" if math.isnan(value) else f"x{value:.3g}"
