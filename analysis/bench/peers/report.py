"""Medians over turns, a table, Parquet and a plot of what `python -m analysis.bench.peers` measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

SAME_LOSS = 0.02  # of how far the loss fell: what other draws of clients and rows make of it
MARKS = "<!-- peers -->", "<!-- end of peers -->"  # the table's place in a page
START_LOSS = {"softmax": np.log(10.0), "linear": 50.0}  # at zero weights
SHOWN = ["load", "who", "s_per_round", "updates_per_s", "startup_s", "peak_mib", "loss", "ratio", "counts"]


def summary(rows: pd.DataFrame, kinds: dict[str, str], updates: dict[str, int]) -> pd.DataFrame:
    """One line for each workload and contender: medians over turns, the ratio to the bare loop, whether it counts.

    It counts if all updates were done and the loss is the bare loop's: ours that of the loop with a fresh subset of rows
    at every step, the others' that of the loop which walks through shuffled rows.
    """
    numbers = ["s_per_round", "updates_per_s", "startup_s", "peak_mib", "loss", "updates"]
    table = rows.groupby(["load", "who"], sort=False)[numbers].median().reset_index()
    bare = table[table["who"] == "bare"].set_index("load")
    table["ratio"] = table["s_per_round"] / table["load"].map(bare["s_per_round"])
    fresh = table[table["who"] == "bare (fresh subsets)"].set_index("load")
    ours = table["who"].str.startswith("fedsim") | (table["who"] == "bare (fresh subsets)")
    loss = table["load"].map(fresh["loss"]).where(ours, table["load"].map(bare["loss"]))
    same = (table["loss"] - loss).abs() <= SAME_LOSS * (table["load"].map(kinds).map(START_LOSS) - loss)
    table["counts"] = same & (table["updates"] == table["load"].map(updates))
    return table


def ratios(table: pd.DataFrame) -> dict[str, float]:
    """Ours over the bare loop, for the guard."""
    ours = table[table["counts"] & table["who"].str.startswith("fedsim")]
    return {f"{load}, {who}": float(r) for load, who, r in zip(ours["load"], ours["who"], ours["ratio"], strict=True)}


def plot(table: pd.DataFrame, file: Path) -> None:
    """Seconds a round, a panel for each workload."""
    import matplotlib.pyplot as plt

    loads = list(dict.fromkeys(table["load"]))
    figure, axes = plt.subplots(1, len(loads), figsize=(4 * len(loads), 3), squeeze=False, layout="constrained")
    for axis, load in zip(axes[0], loads, strict=True):
        part = table[(table["load"] == load) & table["counts"]].sort_values("s_per_round", ascending=False)
        ours = part["who"].str.startswith("fedsim")
        axis.barh(part["who"], part["s_per_round"], color=np.where(ours, "C0", "0.7"))
        axis.set(title=load, xlabel="seconds a round", xscale="log")
    figure.savefig(file, dpi=150)
    plt.close(figure)


def markdown(table: pd.DataFrame) -> str:
    """Everything."""
    lines = ["| " + " | ".join(SHOWN) + " |", "|---" * len(SHOWN) + "|"]
    for row in table[SHOWN].itertuples(index=False):
        cells = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def small(table: pd.DataFrame) -> str:
    """Milliseconds a round, a column for each workload; what does not count is left out."""
    loads = list(dict.fromkeys(table["load"]))
    lines = ["| | " + " | ".join(f"{load}, ms" for load in loads) + " |", "|---" * (1 + len(loads)) + "|"]
    for who in dict.fromkeys(table["who"]):
        own = table[(table["who"] == who) & table["counts"]].set_index("load")
        times = [1e3 * own["s_per_round"][load] if load in own.index else None for load in loads]
        cells = ["" if t is None else f"{t:,.0f}" if t >= 10 else f"{t:.2g}" for t in times]
        lines.append(f"| {who} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_into(page: str, table: str) -> str:
    """The page with this table between its two marks."""
    before, mark, rest = page.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (mark and end):
        raise SystemExit(f"the page has no place for the table; put {MARKS[0]} and {MARKS[1]} on lines of their own")
    return f"{before}{mark}\n{table}\n{end}{after}"
