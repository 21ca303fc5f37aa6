"""Studies: the complete runs of one scenario file with their settings, as a table of runs and a table of curves."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedsim.analysis.summary import final_metrics, stopped, warnings
from fedsim.analysis.targets import to_target
from fedsim.errors import FedsimError, InUse, NotRecorded
from fedsim.readers import parquet
from fedsim.results import Axis, Result, files, load, lock, median_spent, sent_bits, total_bits, write_atomic
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.folder import state, write_table
from fedsim.scenario_file import ScenarioFile
from fedsim.sweeps.spec import RunSpec, SweepSpec
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd

RUNS, CURVES, MERGED = "runs.parquet", "curves.parquet", "merged.json"  # the last holds digests of the others
FORMAT = "fedsim-merged-2"
MERGING, WAIT_S = ".merging", 60.0
Rows = tuple[dict[str, Any], "pd.DataFrame"]  # a run's row in the table of runs, and its rows in that of curves
AXES: tuple[Axis, ...] = ("rounds", "seconds", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits")


@dataclass(frozen=True)
class Failure:
    """A failed run and its error."""

    run: str
    settings: dict[str, Any]
    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class Study:
    """The complete runs of a scenario file: `runs` holds (settings, result) in the order of the grid."""

    name: str
    runs: Sequence[tuple[dict[str, Any], Result]]
    failed: tuple[Failure, ...] = ()
    folder: Path | None = None
    tables: Callable[[], tuple[pd.DataFrame, pd.DataFrame]] | None = None  # of runs and of curves, if they are in files

    def frame(self) -> pd.DataFrame:
        """Return one row per run: its settings, then its costs and its final metrics, as in `outcome`.

        A setting with the name of one of the latter has the prefix "set ".
        """
        import pandas as pd

        if self.tables is not None:
            return self.tables()[0]
        return pd.DataFrame([row(settings, result) for settings, result in self.runs])

    def _repr_html_(self) -> str:
        """Return the table of `frame()` for a notebook."""
        return str(self.frame().to_html(index=False, border=0))

    def curve(self, metric: str, against: Axis = "rounds") -> pd.DataFrame:
        """Return the curves of all runs in one table: settings, `against`, the metric, and its band if it has one."""
        table = self.curve_table()
        own = table[table["metric"] == metric] if len(table) else table
        if own.empty:
            found = ", ".join(table["metric"].unique()) if len(table) else "none"
            raise NotRecorded(
                f"metric {short_repr(metric)} was not evaluated (these runs have: {found}); add it to metrics="
            )
        band = [name for name in ("low", "high") if own[name].notna().any()]
        settings = [name for name in table.columns if name not in (*AXES, "metric", "value", "low", "high")]
        if against not in AXES:
            raise NotRecorded(f"against={short_repr(against)}: choose one of {', '.join(AXES)}")
        out = own[[*settings, against, "value", *band]].rename(columns={"value": metric})
        return out.reset_index(drop=True)

    def curve_table(self) -> pd.DataFrame:
        """Return the curve of every metric and run against all costs, in one long table."""
        import pandas as pd

        if self.tables is not None:
            return self.tables()[1]
        return pd.concat([curves(settings, result) for settings, result in self.runs], ignore_index=True)


def grid_runs(file: ScenarioFile, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of every run of the file's grid; a given setting replaces its axis.

    Every scenario is built once, so that an error in the last run is found before the first run starts.
    """
    axes = {name: values for name, values in file.grid.items() if name not in given}
    runs = [{**given, **dict(zip(axes, values, strict=True))} for values in product(*axes.values())]
    if len(runs) > 1:
        for settings in runs:
            file.build(settings)
    return runs


def row(settings: Mapping[str, Any], result: Result) -> dict[str, Any]:
    """Return a run as one row of a table."""
    ends = outcome(result)
    return {f"set {n}" if n in ends else n: v for n, v in settings.items()} | ends


def curves(settings: Mapping[str, Any], result: Result) -> pd.DataFrame:
    """Return all metrics of a run at every round where they were evaluated, against all costs."""
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
    """Return what every replica had spent at the end of each round, in the rows of `result.rounds`."""
    rounds = result.rounds.sort_values(["replica", "round"])
    sent = {name: sent_bits(rounds, name) for name in ("uplink_bits", "downlink_bits", "backhaul_bits")}
    sent["total_bits"] = total_bits(rounds)
    spent = {name: bits.groupby(rounds["replica"]).cumsum() for name, bits in sent.items()}
    table = rounds[["round"]].assign(rounds=rounds["round"], seconds=rounds["closed_s"], **spent)
    return table.loc[result.rounds.index]


def outcome(result: Result) -> dict[str, Any]:
    """Return the costs of a run as medians over replicas, its final metrics, its stop reason and its warnings.

    With a target, also the cost of reaching it: `target`, `seconds_to_target`, `total_bits_to_target`, infinity if at
    least half of the replicas never reached it.
    """
    import numpy as np

    rounds = result.rounds
    of, place = np.unique(rounds["replica"].to_numpy(), return_inverse=True)

    def median(name: str, summed: bool) -> float:
        """Return the median over replicas of the sum or the maximum of a column."""
        values = rounds[name].to_numpy()
        each = np.zeros(len(of), values.dtype) if summed else np.full(len(of), values.min(initial=0), values.dtype)
        (np.add if summed else np.maximum).at(each, place, values)
        return float(np.median(each)) if len(of) else float("nan")

    bits = ("uplink_bits", "downlink_bits", "backhaul_bits", "wasted_bits")
    return {
        "rounds": median("round", summed=False),
        "seconds": median("closed_s", summed=False),
        **{name: median(name, summed=True) for name in bits if name in rounds},
        "total_bits": float(total_bits(rounds).groupby(rounds["replica"]).sum().median()),
        **to_target(result),
        **final_metrics(result),
        "stopped_by": stopped(result),
        "warnings": "; ".join(warnings(result)),
        "real_s": result.manifest.get("real_s"),
        "fingerprint": result.fingerprint,
    }


def complete_runs(spec: SweepSpec, out: Path) -> list[RunSpec]:
    """Return the complete runs, in the order of the grid."""
    folders = ((run, out / run.name) for run in spec.runs)
    return [run for run, folder in folders if files.is_folder(folder) and state(folder) == "complete"]


def rows_of(run: RunSpec, out: Path) -> Rows:
    """Return the rows of a complete run in the two tables."""
    result, settings = load(out / run.name), {"run": run.name, **run.settings}
    return row(settings, result), curves(settings, result)


def tables(
    runs: list[RunSpec], out: Path, fresh: Mapping[str, Rows] = MappingProxyType({})
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of runs and of curves; `fresh` has rows that were read already.

    Rows of an earlier merge are used again, because a complete run never changes.
    """
    import pandas as pd

    merged = _read_merged(out)
    if merged and not {name for run in runs for name in run.settings} <= {n.removeprefix("set ") for n in merged[0]}:
        merged = None  # an axis was added to the sweep
    known = set(merged[0]["run"]) if merged else set()
    new = [fresh.get(run.name) or rows_of(run, out) for run in runs if run.name not in known]
    parts = ([merged[0]] if merged else []) + ([pd.DataFrame([first for first, _ in new])] if new else [])
    long = [part for part in ([merged[1]] if merged else []) + [second for _, second in new] if len(part)]
    position = {run.name: i for i, run in enumerate(runs)}
    return _sorted(parts, position), _sorted(long, position)


def outcomes(runs: Sequence[RunSpec], out: Path) -> dict[str, dict[str, Any]]:
    """Return the outcomes of complete runs by name, as in a row of the table."""
    frame = tables(list(runs), out)[0]
    given = {"run", *(name for run in runs for name in run.settings)}
    settings = {f"set {name}" if f"set {name}" in frame else name for name in given}
    columns = frame.drop(columns=[name for name in frame.columns if name in settings])
    return {
        str(name): {column: value for column, value in row.items() if value == value}  # NaN: another run's metric
        for name, row in zip(frame["run"], columns.to_dict("records"), strict=True)
    }


def merge(spec: SweepSpec, out: Path, fresh: Mapping[str, Rows] = MappingProxyType({})) -> None:
    """Write both tables, then their digests."""
    try:
        held = lock.take(out, MERGING, wait_s=WAIT_S)
    except InUse:
        held = None  # readers notice tables that do not match, and build them again
    try:
        sums = {}
        for name, table in zip((RUNS, CURVES), tables(complete_runs(spec, out), out, fresh), strict=True):
            buffer = io.BytesIO()
            write_table(buffer, table)
            write_atomic(out / name, buffer.getvalue())
            sums[name] = sha256(buffer.getvalue()).hexdigest()
        write_atomic(out / MERGED, with_checksum(FORMAT, {"files": sums}))
    finally:
        if held is not None:
            held.release()


def _read_merged(out: Path) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Return the tables of an earlier merge; None if they are missing, damaged or half-written."""
    import pyarrow as pa

    try:
        sums = read_json(out / MERGED, FORMAT)["files"]
        data = [files.read(out / name) for name in (RUNS, CURVES)]
        if [sha256(part).hexdigest() for part in data] != [sums[name] for name in (RUNS, CURVES)]:
            return None
        runs, long = (parquet(io.BytesIO(part)) for part in data)
    except (OSError, ValueError, LookupError, TypeError, FedsimError, pa.ArrowException):
        return None
    if "run" not in runs or (len(long) and "run" not in long):
        return None
    # A run without curves may lack them here alone, so it is read again.
    evaluated = set(long["run"]) if len(long) else set()
    return (runs[runs["run"].isin(evaluated)], long[long["run"].isin(runs["run"])]) if evaluated else None


def _sorted(parts: list[pd.DataFrame], position: dict[str, int]) -> pd.DataFrame:
    import pandas as pd

    if not parts:
        return pd.DataFrame(columns=["run"])
    table = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    table = table[table["run"].isin(position)]
    table = table.sort_values("run", key=lambda run: run.map(position), kind="stable", ignore_index=True)
    for name in table.columns:  # a Parquet column has one type
        if table[name].dtype == object and table[name].map(type).nunique() > 1:
            table[name] = table[name].map(lambda value: None if value is None else str(value))
    return table
