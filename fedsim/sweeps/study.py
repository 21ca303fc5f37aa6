"""A study: the finished runs of one scenario file, each with the settings that made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.analysis.spending import to_target
from fedsim.analysis.summary import final_metrics, stopped, warnings
from fedsim.errors import NotRecorded, quoted
from fedsim.results import Axis, Result, median_spent, sent_bits, total_bits
from fedsim.scenario_file import ScenarioFile

if TYPE_CHECKING:
    import pandas as pd

AXES: tuple[Axis, ...] = ("rounds", "seconds", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits")


@dataclass(frozen=True)
class Failure:
    """A run that failed, and why, in one sentence."""

    run: str
    settings: dict[str, Any]
    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class Study:
    """`runs` holds (settings, result) in the order of the grid; those of a folder are read when looked at."""

    name: str
    runs: Sequence[tuple[dict[str, Any], Result]]
    failed: tuple[Failure, ...] = ()
    folder: Path | None = None
    tables: Callable[[], tuple[pd.DataFrame, pd.DataFrame]] | None = None  # ready-made: one row per run, all curves

    def frame(self) -> pd.DataFrame:
        """One row per run: its settings, then what it spent and its metrics at the end, as in `outcome`.

        A setting that is called like one of the latter has "set " in front.
        """
        import pandas as pd

        if self.tables is not None:
            return self.tables()[0]
        return pd.DataFrame([row(settings, result) for settings, result in self.runs])

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of `frame()`."""
        return str(self.frame().to_html(index=False, border=0))

    def curve(self, metric: str, against: Axis = "rounds") -> pd.DataFrame:
        """The curves of all runs, one below the other: settings, `against`, the metric, its band if any."""
        table = self.curve_table()
        own = table[table["metric"] == metric] if len(table) else table
        if own.empty:
            found = ", ".join(table["metric"].unique()) if len(table) else "none"
            raise NotRecorded(
                f"metric {quoted(metric)} was not evaluated (these runs have: {found}); add it to metrics="
            )
        band = [name for name in ("low", "high") if own[name].notna().any()]
        settings = [name for name in table.columns if name not in (*AXES, "metric", "value", "low", "high")]
        if against not in AXES:
            raise NotRecorded(f"against={quoted(against)}: choose one of {', '.join(AXES)}")
        out = own[[*settings, against, "value", *band]].rename(columns={"value": metric})
        return out.reset_index(drop=True)

    def curve_table(self) -> pd.DataFrame:
        """Every metric's curve of every run against all that was spent, in one long table."""
        import pandas as pd

        if self.tables is not None:
            return self.tables()[1]
        return pd.concat([curves(settings, result) for settings, result in self.runs], ignore_index=True)


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


def row(settings: Mapping[str, Any], result: Result) -> dict[str, Any]:
    """A run in one line of a table."""
    ends = outcome(result)
    return {f"set {n}" if n in ends else n: v for n, v in settings.items()} | ends


def curves(settings: Mapping[str, Any], result: Result) -> pd.DataFrame:
    """All metrics of a run at every round where they were evaluated, against everything that was spent."""
    import numpy as np
    import pandas as pd

    over, each = result.over_replicas, result.per_replica
    taken = {*AXES, "metric", "value", "low", "high"}
    known = {f"set {n}" if n in taken else n: v for n, v in settings.items()}
    parts = []
    if over:
        table = result.metrics.sort_values("round")
        spent_then = {axis: np.asarray(median_spent(result, table, axis), np.float64) for axis in AXES}
    for name in over:
        there = table[name].notna().to_numpy()
        columns: dict[str, Any] = {axis: spent_then[axis][there] for axis in AXES}
        parts.append(columns | {"metric": name, "value": table[name].to_numpy()[there], "low": np.nan, "high": np.nan})
    spent = _spent(result) if each else None
    for name in each:
        curve = result.curve(name, "rounds")
        medians = spent[result.rounds[name].notna()].groupby("round")[list(AXES)].median()  # type: ignore[index]
        columns = {axis: medians[axis].to_numpy(np.float64) for axis in AXES}
        parts.append(columns | {"metric": name, "value": curve[name], "low": curve["low"], "high": curve["high"]})
    order = [*known, "metric", *AXES, "value", "low", "high"]
    frames = [pd.DataFrame({name: (part | known)[name] for name in order}) for part in parts]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=order)


def _spent(result: Result) -> pd.DataFrame:
    """What every replica had spent by the end of each round, in the rows of `result.rounds`."""
    rounds = result.rounds.sort_values(["replica", "round"])
    sent = {name: sent_bits(rounds, name) for name in ("uplink_bits", "downlink_bits", "backhaul_bits")}
    sent["total_bits"] = total_bits(rounds)
    spent = {name: bits.groupby(rounds["replica"]).cumsum() for name, bits in sent.items()}
    table = rounds[["round"]].assign(rounds=rounds["round"], seconds=rounds["closed_s"], **spent)
    return table.loc[result.rounds.index]


def outcome(result: Result) -> dict[str, Any]:
    """What a run spent, medians over replicas, its metrics at the end, what stopped it, and its warnings, "" for none.

    With a target, also what reaching it took: `target`, `seconds_to_target`, `total_bits_to_target`; infinity where
    half of the replicas or more never did.
    """
    import numpy as np

    rounds = result.rounds
    of, place = np.unique(rounds["replica"].to_numpy(), return_inverse=True)

    def median(name: str, whole: bool) -> float:
        """Over replicas, of the sum of a column or of its largest."""
        values = rounds[name].to_numpy()
        each = np.zeros(len(of), values.dtype) if whole else np.full(len(of), values.min(initial=0), values.dtype)
        (np.add if whole else np.maximum).at(each, place, values)
        return float(np.median(each)) if len(of) else float("nan")

    bits = ("uplink_bits", "downlink_bits", "backhaul_bits", "wasted_bits")
    return {
        "rounds": median("round", whole=False),
        "seconds": median("closed_s", whole=False),
        **{name: median(name, whole=True) for name in bits if name in rounds},
        "total_bits": float(total_bits(rounds).groupby(rounds["replica"]).sum().median()),
        **to_target(result),
        **final_metrics(result),
        "stopped_by": stopped(result),
        "warnings": "; ".join(warnings(result)),
        "real_s": result.manifest.get("real_s"),
        "fingerprint": result.fingerprint,
    }
