"""A study: the finished runs of one scenario file, each with the settings that made it.

All whole runs of a sweep as two tables: one row per run, and every metric's curve.
"""

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
from fedsim.results import Axis, Result, load, lock, median_spent, sent_bits, total_bits, write_atomic
from fedsim.results.checksums import read_json, sealed
from fedsim.results.folder import write_table
from fedsim.scenario_file import ScenarioFile
from fedsim.sweeps.spec import Order, Plan
from fedsim.text import short_repr

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
                f"metric {short_repr(metric)} was not evaluated (these runs have: {found}); add it to metrics="
            )
        band = [name for name in ("low", "high") if own[name].notna().any()]
        settings = [name for name in table.columns if name not in (*AXES, "metric", "value", "low", "high")]
        if against not in AXES:
            raise NotRecorded(f"against={short_repr(against)}: choose one of {', '.join(AXES)}")
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


if TYPE_CHECKING:
    import pandas as pd

RUNS, CURVES, MERGED = "runs.parquet", "curves.parquet", "merged.json"  # the last holds digests of the others
FORMAT = "fedsim-merged-2"
MERGING, WAIT_S = ".merging", 60.0
Lines = tuple[dict[str, Any], "pd.DataFrame"]


def whole(plan: Plan, out: Path) -> list[Order]:
    """The runs that are there, in the order of the plan."""
    return [order for order in plan.orders if (out / order.run / "manifest.json").exists()]


def lines(order: Order, out: Path) -> Lines:
    """A whole run in the two tables: its row, and its curves."""
    result, settings = load(out / order.run), {"run": order.run, **order.settings}
    return row(settings, result), curves(settings, result)


def tables(
    orders: list[Order], out: Path, fresh: Mapping[str, Lines] = MappingProxyType({})
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables of these runs, of which some have been read already.

    Rows of an earlier merge are kept, for a whole run never changes.
    """
    import pandas as pd

    known = _earlier(out)
    have = set(known[0]["run"]) if known else set()
    new = [fresh.get(order.run) or lines(order, out) for order in orders if order.run not in have]
    parts = ([known[0]] if known else []) + ([pd.DataFrame([first for first, _ in new])] if new else [])
    long = [part for part in ([known[1]] if known else []) + [second for _, second in new] if len(part)]
    place = {order.run: i for i, order in enumerate(orders)}
    return _ordered(parts, place), _ordered(long, place)


def outcomes(orders: Sequence[Order], out: Path) -> dict[str, dict[str, Any]]:
    """What came out of each of these whole runs, by run, as in a row of the table."""
    frame = tables(list(orders), out)[0]
    given = {"run", *(name for order in orders for name in order.settings)}
    settings = {f"set {name}" if f"set {name}" in frame else name for name in given}
    ends = frame.drop(columns=[name for name in frame.columns if name in settings])
    return {
        str(run): {name: value for name, value in row.items() if value == value}  # NaN: another run's metric
        for run, row in zip(frame["run"], ends.to_dict("records"), strict=True)
    }


def merge(plan: Plan, out: Path, fresh: Mapping[str, Lines] = MappingProxyType({})) -> None:
    """Write both tables, each whole or not at all, then what vouches for them."""
    try:
        held = lock.take(out, MERGING, wait_s=WAIT_S)
    except InUse:
        held = None  # tables that do not fit together are made again by whoever reads them
    try:
        sums = {}
        for name, table in zip((RUNS, CURVES), tables(whole(plan, out), out, fresh), strict=True):
            buffer = io.BytesIO()
            write_table(buffer, table)
            write_atomic(out / name, buffer.getvalue())
            sums[name] = sha256(buffer.getvalue()).hexdigest()
        write_atomic(out / MERGED, sealed(FORMAT, {"files": sums}))
    finally:
        if held is not None:
            held.release()


def _earlier(out: Path) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """What an earlier merge left; other shards may be writing, and files are damaged: anything odd means none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        sums = read_json(out / MERGED, FORMAT)["files"]
        data = [(out / name).read_bytes() for name in (RUNS, CURVES)]
        if [sha256(part).hexdigest() for part in data] != [sums[name] for name in (RUNS, CURVES)]:
            return None
        runs, long = (pq.ParquetFile(io.BytesIO(part)).read().to_pandas(ignore_metadata=True) for part in data)
    except (OSError, ValueError, LookupError, TypeError, FedsimError, pa.ArrowException):
        return None
    if "run" not in runs or (len(long) and "run" not in long):
        return None
    # A run without curves may only lack them here: it is read again.
    evaluated = set(long["run"]) if len(long) else set()
    return (runs[runs["run"].isin(evaluated)], long[long["run"].isin(runs["run"])]) if evaluated else None


def _ordered(parts: list[pd.DataFrame], place: dict[str, int]) -> pd.DataFrame:
    import pandas as pd

    if not parts:
        return pd.DataFrame(columns=["run"])
    table = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    table = table[table["run"].isin(place)]
    table = table.sort_values("run", key=lambda run: run.map(place), kind="stable", ignore_index=True)
    for name in table.columns:  # Parquet holds one kind of value a column
        if table[name].dtype == object and table[name].map(type).nunique() > 1:
            table[name] = table[name].map(lambda value: None if value is None else str(value))
    return table
