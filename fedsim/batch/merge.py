"""All whole runs of a sweep as two tables: one row per run, and every metric's curve."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.batch.plan import Order, Plan
from fedsim.results import load, write_atomic
from fedsim.results.folder import write_table
from fedsim.study import curves, row

if TYPE_CHECKING:
    import pandas as pd

RUNS, CURVES = "runs.parquet", "curves.parquet"


def whole(plan: Plan, out: Path) -> list[Order]:
    """The runs that are there, in the order of the plan."""
    return [order for order in plan.orders if (out / order.run / "manifest.json").exists()]


def tables(orders: list[Order], out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables of these runs; rows of an earlier merge are kept, for a whole run never changes."""
    import pandas as pd

    known = _earlier(out)
    have = set(known[0]["run"]) if known else set()
    rows, lines = [], []
    for order in orders:
        if order.run not in have:
            result = load(out / order.run)
            rows.append(row({"run": order.run, **order.settings}, result))
            lines.append(curves({"run": order.run, **order.settings}, result))
    parts = ([known[0]] if known else []) + ([pd.DataFrame(rows)] if rows else [])
    long = [part for part in ([known[1]] if known else []) + lines if len(part)]
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


def merge(plan: Plan, out: Path) -> None:
    """Write both tables, each whole or not at all."""
    for name, table in zip(
        (CURVES, RUNS), reversed(tables(whole(plan, out), out)), strict=True
    ):  # the table of runs vouches for both
        buffer = io.BytesIO()
        write_table(buffer, table)
        write_atomic(out / name, buffer.getvalue())


def _earlier(out: Path) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """What an earlier merge left; other shards may be writing, so anything odd means none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        runs, long = (pq.ParquetFile(out / name).read().to_pandas() for name in (RUNS, CURVES))
    except (OSError, ValueError, pa.ArrowException):
        return None
    if "run" not in runs or (len(long) and "run" not in long):
        return None
    # Curves may have been replaced between the two reads; runs that have rows in both are surely complete.
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
