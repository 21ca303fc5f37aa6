"""The result of tuning: the setting to use, its interval, the effect of each parameter, and the limits that bind."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import text
from fedsim.analysis.intervals import FEWEST
from fedsim.analysis.summary import level
from fedsim.results import write_atomic
from fedsim.results.checksums import read_json, with_checksum

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.sweeps.tuner import Setting, Tuner

FEASIBLE, OVER_LIMIT, NOT_REACHED = range(3)
VERDICTS = {FEASIBLE: "within all limits", OVER_LIMIT: "over a limit", NOT_REACHED: "goal not reached"}

FILE, FORMAT = "recommendation.json", "fedsim-recommendation-1"
OLD_FILE, OLD_FORMAT = "plan.json", "fedsim-plan-1"  # of 0.2.0


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The best setting that was found, and the tables behind it.

    `best` is the setting, and `met` is True if it reaches the goal within all limits. `spent` is the median cost of
    reaching the goal over seeds and replicas. `low` and `high` are its 95 % bootstrap interval, computed from the seeds
    that chose it, NaN below 5 trials. `settings` has one row per tried setting, the best first, with the range of its
    trials (`least`, `most`) and the `warnings` of its runs. `parameters` has one row per value of each parameter around
    the best setting, with its cost relative to the best on the same seeds (`factor`). `limits` has one row per limit.
    """

    name: str
    goal: str
    minimize: str
    best: dict[str, Any]
    met: bool
    spent: float
    low: float
    high: float
    settings: pd.DataFrame
    parameters: pd.DataFrame
    limits: pd.DataFrame
    runs: int  # executed now or earlier
    grid_runs: int  # of the full grid
    folder: Path | None = None

    def frame(self) -> pd.DataFrame:
        """Return one row per tried setting, the best first."""
        return self.settings

    def lines(self) -> list[str]:
        """Return the recommendation as lines of text."""
        best = ", ".join(f"{name}={value}" for name, value in self.best.items())
        runs = f"{text.plural(self.runs, 'run')} of the full grid's {self.grid_runs:,}"
        if not self.met:
            first = f"no setting that was tried reaches {self.goal}{self._limit_words()}; nearest: {best} ({runs})"
            return [first, *self._limit_lines()]
        row = self.settings.iloc[0]
        return [
            f"{self.goal} for the least {self.minimize}{self._limit_words()}: {best}",
            f"  {self.show(self.spent)} {self._interval(row)}",
            f"  {text.share(row['reached'])} of its trials reach the goal; {runs}",
            *([f"warning: {row['warnings']}"] if row["warnings"] else []),
            *self._parameter_lines(),
            *self._limit_lines(),
        ]

    def show(self, value: float) -> str:
        """Return an amount of the minimized resource as text."""
        return show(self.minimize, value)

    def save(self, folder: Path) -> Path:
        """Write the recommendation beside its runs, where `fedsim report` reads it."""
        names = ("name", "goal", "minimize", "best", "met", "runs", "spent", "low", "high", "grid_runs")
        facts = {name: getattr(self, name) for name in names} | {"lines": self.lines()}
        tables = {name: getattr(self, name).to_dict("records") for name in ("settings", "parameters", "limits")}
        path = folder / FILE
        write_atomic(path, with_checksum(FORMAT, facts | tables))
        return path

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"<Recommendation: {self}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>{self.settings.head(10).to_html(index=False, border=0)}"

    def _interval(self, row: Any) -> str:
        """Return the interval, or the range of the trials if there are too few for an interval."""
        if not math.isnan(self.low):
            ends = f"[{self.show(self.low)}, {self.show(self.high)}]"
            return f"{ends}, median over seeds and replicas and its 95 % interval"
        ends = f"from {self.show(row['least'])} to {self.show(row['most'])}"
        return f"{ends}, median and range of {text.plural(int(row['trials']), 'trial')}: an interval needs {FEWEST}"

    def _limit_words(self) -> str:
        rows = self.limits.to_dict("records")
        limits = [f"{row['limit']} <= {show(row['limit'], row['at_most'])}" for row in rows]
        return f" within {', '.join(limits)}" if limits else ""

    def _parameter_lines(self) -> list[str]:
        lines = []
        for name, rows in self.parameters.groupby("parameter", sort=False):
            cells = [
                f"{row['value']}: {_factor(row['factor'])}" for row in rows.to_dict("records") if not row["chosen"]
            ]
            if cells:
                lines.append(f"  {name}={self.best[str(name)]} against {', '.join(cells)}")
        return ["effect of each parameter (cost relative to the best setting):", *lines] if lines else []

    def _limit_lines(self) -> list[str]:
        lines = []
        for row in self.limits.to_dict("records"):
            name, limit = row["limit"], show(row["limit"], row["at_most"])
            if row["binds"]:
                lines.append(
                    f"{name} <= {limit} binds: without it {row['without']} would cost {row['saving']:.0%} less"
                )
            elif row["used"] > 1:
                lines.append(f"{name} <= {limit} is exceeded {row['used']:.3g} times over")
            else:
                lines.append(f"{name} <= {limit} does not bind: {row['used']:.0%} of it is used")
        return lines


def read_recommendation(folder: Path) -> dict[str, Any] | None:
    """Read what `Recommendation.save` has written; None if the folder has no recommendation."""
    for name, format in ((FILE, FORMAT), (OLD_FILE, OLD_FORMAT)):
        with suppress(FileNotFoundError):
            return read_json(folder / name, format)
    return None


def show(name: str, value: float) -> str:
    """Return an amount of a resource as text."""
    if math.isinf(value):
        return "never"
    amount = text.amount(name, value)
    return amount if name == "seconds" or name.endswith("_bits") else f"{amount} {name}"


def recommend(tuner: Tuner, best: Setting, runs: int, folder: Path | None) -> Recommendation:
    """Return the recommendation of `best`."""
    spent, low, high = tuner.interval(best)
    return Recommendation(
        name=tuner.spec.name, goal=level(tuner.goal), minimize=tuner.minimize, best=tuner.values(best),
        met=tuner.rank(best)[0] == FEASIBLE, spent=spent, low=low, high=high, settings=_settings(tuner, best),
        parameters=_parameters(tuner, best), limits=_limits(tuner, best), runs=runs, grid_runs=len(tuner.spec.runs),
        folder=folder,
    )  # fmt: skip


def _settings(tuner: Tuner, best: Setting) -> pd.DataFrame:
    import pandas as pd

    rows = []
    tried = [setting for setting in tuner.all if len(tuner.seeds_done(setting))]
    for setting in sorted(tried, key=lambda s: (s != best, -len(tuner.seeds_done(s)), tuner.rank(s))):
        trials = tuner.trials(setting)
        spent, low, high = tuner.interval(setting)
        each = trials[tuner.minimize].to_numpy(np.float64)
        costs = {name: tuner.cost(setting, name) for name in tuner.limits if name != tuner.minimize}
        rows.append(
            tuner.values(setting)
            | {"seeds": len(tuner.seeds_done(setting)), "reached": float(trials["reached"].mean())}
            | {tuner.minimize: spent, "low": low, "high": high, "least": each.min(), "most": each.max()}
            | costs
            | {"trials": len(each), "verdict": VERDICTS[int(tuner.rank(setting)[0])]}
            | {"warnings": tuner.warnings(setting)}
        )
    return pd.DataFrame(rows)


def _parameters(tuner: Tuner, best: Setting) -> pd.DataFrame:
    """Compare every tried value of one parameter at a time with the best setting."""
    import pandas as pd

    rows = []
    for i, (name, values) in enumerate(tuner.parameters.items()):
        for j, value in enumerate(values):
            setting = (*best[:i], j, *best[i + 1 :])
            shared = tuner.shared_seeds(setting, best)
            if shared:
                spent, least = (tuner.cost(one, tuner.minimize, shared) for one in (setting, best))
                factor = spent / least if 0 < least < math.inf else math.nan
                allowed = not tuner.exceeded(setting, shared)
                rows.append((name, value, spent, factor, len(shared), allowed, setting == best))
    columns = ["parameter", "value", tuner.minimize, "factor", "seeds", "allowed", "chosen"]
    values = pd.Series([row[1] for row in rows], dtype=object)  # of several parameters, so types must not be merged
    return pd.DataFrame(rows, columns=columns).assign(value=values)


def _limits(tuner: Tuner, best: Setting) -> pd.DataFrame:
    """A limit binds if a setting that exceeds only this limit would cost less."""
    import pandas as pd

    rows = []
    for name, limit in tuner.limits.items():
        used, cheaper = tuner.cost(best, name) / limit, []
        for setting in tuner.all:
            shared = tuner.shared_seeds(setting, best)
            if not shared or tuner.rank(setting, shared)[0] != OVER_LIMIT:
                continue
            spent, least = (tuner.cost(one, tuner.minimize, shared) for one in (setting, best))
            if set(tuner.exceeded(setting, shared)) == {name} and spent < least:
                cheaper.append((spent / least, tuner.words(setting)))
        factor, words = min(cheaper, default=(1.0, ""))
        rows.append((name, limit, used, bool(cheaper), words, 1 - factor))
    return pd.DataFrame(rows, columns=["limit", "at_most", "used", "binds", "without", "saving"])


def _factor(value: float) -> str:
    return "never" if math.isinf(value) else "?" if math.isnan(value) else f"x{value:.3g}"
