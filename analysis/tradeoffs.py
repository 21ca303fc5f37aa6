"""Accuracy, bits, virtual time and participation of a sweep in one figure.

    python analysis/tradeoffs.py runs/metro --metric accuracy --out tradeoffs.png

Each point is a setting (medians over its seeds). Pareto-optimal settings are labelled; the area of a point is the
number of clients that a round selects.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedsim import analysis
from fedsim.analysis import figures

COSTS = {"total_bits": "bits on all links", "seconds": "virtual seconds"}


def draw(folder: Path, metric: str):
    """Return the table of the settings and the figure."""
    frame = analysis.pareto(folder, metric, among=tuple(COSTS)).frame
    figure = figures.blank(10, 4.5)
    for axes, (cost, label) in zip(figure.subplots(1, 2, sharey=True), COSTS.items(), strict=True):
        colours = np.where(frame["front"], figures.COLOURS[0], figures.FAINT)
        area = 20 + 180 * frame["participation"] / frame["participation"].max()
        axes.scatter(frame[cost], frame[metric], s=area, c=colours, alpha=0.7, zorder=3)
        for row in frame[frame["front"]].to_dict("records"):
            axes.annotate(row["run"], (row[cost], row[metric]), xytext=(6, 4), textcoords="offset points", fontsize=8)
        axes.set(xlabel=label, ylabel=metric)
        figures.plain(axes)
    axes.set_title("blue: Pareto-optimal; area: clients selected per round", loc="right", fontsize=9)
    return frame, figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a sweep")
    parser.add_argument("--metric", default="accuracy")
    parser.add_argument("--out", type=Path, default=Path("tradeoffs.png"))
    options = parser.parse_args()
    frame, figure = draw(options.folder, options.metric)
    figure.savefig(options.out, dpi=150)
    columns = ["run", "seeds", options.metric, "total_bits", "seconds", "participation", "front"]
    print(frame[columns].to_string(index=False))
    print(f"figure  {options.out}")


if __name__ == "__main__":
    main()
