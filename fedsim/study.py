"""A study: the finished runs of one scenario file, each with the settings that made it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from fedsim.results import METRICS, ROUNDS, Result
from fedsim.scenario_file import ScenarioFile

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Study:
    """`runs` holds (settings, result) in the order of the grid."""

    name: str
    runs: tuple[tuple[dict[str, Any], Result], ...]

    def frame(self) -> pd.DataFrame:
        """One row per run: its settings, then what it spent and its metrics at the end, as in `outcome`.

        A setting that is called like one of the latter has "set " in front.
        """
        import pandas as pd

        rows = []
        for settings, result in self.runs:
            ends = outcome(result)
            rows.append({f"set {n}" if n in ends else n: v for n, v in settings.items()} | ends)
        return pd.DataFrame(rows)


def grid_runs(file: ScenarioFile, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of every run that the file's grid asks for; a setting that is given takes its axis out.

    All are built once and dropped, so that a mistake in the last one is refused before the first one starts.
    """
    axes = {name: values for name, values in file.grid.items() if name not in given}
    runs = [{**given, **dict(zip(axes, values, strict=True))} for values in product(*axes.values())]
    if len(runs) > 1:
        for settings in runs:
            file.build(settings)
    return runs


def outcome(result: Result) -> dict[str, Any]:
    """What a run spent, medians over replicas, and its metrics at the end."""
    last = result.rounds.groupby("replica")[["round", "closed_s"]].max().median()
    spent = result.rounds.groupby("replica")[["uplink_bits", "downlink_bits", "wasted_bits"]].sum().median()
    return {
        "rounds": last["round"],
        "seconds": last["closed_s"],
        **spent.to_dict(),
        **final_metrics(result),
        "real_s": result.manifest.get("real_s"),
        "fingerprint": result.fingerprint,
    }


def final_metrics(result: Result) -> dict[str, float]:
    """Every metric where it was last evaluated; the median over replicas of those that each replica has."""
    over = {name: result.metrics[name].dropna() for name in result.metrics.columns.drop(list(METRICS))}
    each = {
        name: result.rounds.dropna(subset=[name]).groupby("replica")[name].last()
        for name in result.rounds.columns.drop(list(ROUNDS))
    }
    ends = {name: float(values.iloc[-1]) for name, values in over.items() if len(values)}
    return ends | {name: float(values.median()) for name, values in each.items() if len(values)}
