"""All whole runs of a sweep as two tables: one row per run, and every metric's curve."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedsim.errors import FedsimError, InUse
from fedsim.results import load, lock, write_atomic
from fedsim.results.folder import write_table
from fedsim.results.sealed import read_json, sealed
from fedsim.sweeps.plan import Order, Plan
from fedsim.sweeps.study import curves, row

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
