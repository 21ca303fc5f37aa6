"""Matplotlib figures of results: each function draws on the given axes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedsim.results import Axis, Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinct without colour vision, and in grey by lightness (Okabe and Ito).
COLOURS = ("#0072b2", "#e69f00", "#cc3311", "#009e73", "#882255", "#56b4e9")
INK, FAINT = "#222222", "#8a8a8a"
# A phase of a visit has the same colour in all figures; transfers are blue, waiting is grey.
PHASES = {
    "download": COLOURS[5],
    "compute": COLOURS[1],
    "upload": COLOURS[0],
    "busy": COLOURS[1],
    "transfer": COLOURS[0],
    "wait": "#d9d9d9",
    "idle": "#d9d9d9",
    "late": COLOURS[0],
    "dropped": COLOURS[2],
    "called off": COLOURS[5],
}
NAMES = {
    "rounds": "communication rounds",
    "seconds": "virtual seconds",
    "uplink_bits": "uplink",
    "downlink_bits": "downlink",
    "backhaul_bits": "between sites",
    "total_bits": "all links",
}
METRIC_NAMES = {
    "w2": "Wasserstein-2 distance (w2)",
    "nll": "negative log likelihood",
    "ece": "expected calibration error",
    "brier": "Brier score",
    "rhat": "R-hat",
    "ess": "effective sample size",
    "ess_tail": "effective sample size, tails",
}


def blank(width: float = 10.0, height: float = 5.0) -> Figure:
    """Return an empty figure that is not registered with pyplot."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    padded = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)  # inches
    return Figure(figsize=(width, height), layout=padded, facecolor="white")


def curves(
    axes: Axes, results: Mapping[str, Result], metric: str, against: Axis = "rounds", log: str = "xy"
) -> None:  # fmt: skip
    """Draw a metric against a cost, one line per result, with a 5 to 95 % band if each replica has a value."""
    for (label, result), colour in zip(results.items(), cycle(COLOURS), strict=False):
        curve = result.curve(metric, against)
        axes.plot(curve[against], curve[metric], color=colour, lw=1.6, label=label)
        if "low" in curve:
            axes.fill_between(curve[against], curve["low"], curve["high"], color=colour, alpha=0.18, lw=0)
    for axis in log:
        axes.set(**{f"{axis}scale": "log"})
        getattr(axes, f"{axis}axis").set_major_formatter("{x:g}")  # 0.01 reads better than a power of ten
    axes.set_xlabel(NAMES[against])
    if against.endswith("_bits"):
        in_bits(axes, NAMES[against], max(float(r.curve(metric, against)[against].max()) for r in results.values()))
    axes.set_ylabel(METRIC_NAMES.get(metric, metric))
    plain(axes)


def in_bits(axes: Axes, name: str, most: float) -> None:
    """Label an x axis of bits in the unit that fits the largest value: uplink, Mbit."""
    size, unit = next(((s, u) for s, u in ((1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")) if most >= s), (1.0, "bit"))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / size:g}")
    axes.set_xlabel(f"{name}, {unit}")


def stacked(axes: Axes, parts: Mapping[str, Mapping[str, float]], xlabel: str) -> None:
    """Draw a stacked bar per name, one part per phase, with a legend."""
    left = [0.0] * len(parts)
    found = {phase for one in parts.values() for phase in one}
    for phase in [*(p for p in PHASES if p in found), *sorted(found - PHASES.keys())]:  # waiting last
        lengths = [one.get(phase, 0.0) for one in parts.values()]
        axes.barh(list(parts), lengths, left=left, color=PHASES.get(phase, FAINT), height=0.6, label=phase)
        left = [a + b for a, b in zip(left, lengths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(xlabel)
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.4, -0.14), fontsize=9)
    plain(axes)
    axes.grid(False, axis="y")


def level(axes: Axes, value: float, text: str) -> None:
    """Draw a labelled, dashed horizontal line."""
    axes.axhline(value, color=FAINT, lw=1, ls=(0, (4, 3)), zorder=0)
    axes.annotate(
        text, (0.012, value), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
        color=FAINT, fontsize=8.5, va="bottom",
    )  # fmt: skip


def cloud(axes: Axes, points: npt.ArrayLike, colour: str) -> None:
    """Draw two-dimensional samples as points."""
    x, y = np.asarray(points, float).T
    axes.scatter(x, y, s=7, color=colour, alpha=0.45, lw=0)


def ellipse(
    axes: Axes, mean: npt.ArrayLike, covariance: npt.ArrayLike, probability: float, colour: str = INK
) -> None:  # fmt: skip
    """Draw the contour of a two-dimensional Gaussian that contains this probability."""
    values, vectors = np.linalg.eigh(np.asarray(covariance, float))
    radius = np.sqrt(-2 * np.log1p(-probability))  # of the two-dimensional standard normal
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = radius * np.stack([np.cos(angle), np.sin(angle)])
    x, y = np.asarray(mean, float)[:, None] + vectors @ (np.sqrt(values)[:, None] * circle)
    axes.plot(x, y, color=colour, lw=1.2)


def ranges(frame: pd.DataFrame, column: str, title: str, by: str = "run") -> Figure:
    """Return a figure of each run's 5 to 95 % range and median; infinite values are counted on the right."""
    names = list(dict.fromkeys(frame[by]))
    figure = blank(8, 1.4 + 0.34 * len(names))
    axes = figure.subplots()
    for at, name in enumerate(names):
        values = frame.loc[frame[by] == name, column].dropna().to_numpy(np.float64)
        finite = values[np.isfinite(values)]
        if len(finite):
            low, middle, high = np.quantile(finite, [0.05, 0.5, 0.95])
            axes.plot([low, high], [at, at], color=COLOURS[0], lw=5, alpha=0.3, solid_capstyle="round")
            axes.plot([middle], [at], "o", color=COLOURS[0], ms=6)
        if len(finite) < len(values):
            axes.annotate(
                f"{len(values) - len(finite)} of {len(values)} never", (1.01, at), xycoords=("axes fraction", "data"),
                color=FAINT, fontsize=8.5, va="center", annotation_clip=False,
            )  # fmt: skip
    _rows(axes, names, title)
    return figure


def intervals(frame: pd.DataFrame, column: str, title: str, by: str = "run") -> Figure:
    """Return a figure of `column` and its interval from `low` to `high`, a line per row."""
    figure = blank(8, 1.4 + 0.34 * len(frame))
    axes = figure.subplots()
    for at, row in enumerate(frame.to_dict("records")):
        axes.plot([row["low"], row["high"]], [at, at], color=COLOURS[0], lw=5, alpha=0.3, solid_capstyle="round")
        axes.plot([row[column]], [at], "o", color=COLOURS[0], ms=6)
    _rows(axes, list(frame[by]), title)
    return figure


def _rows(axes: Axes, names: list[str], title: str) -> None:
    axes.set_yticks(range(len(names)), [str(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(title)
    plain(axes)
    axes.grid(False, axis="y")


def plain(axes: Axes) -> None:
    """Remove the upper and right spines and draw a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, which="both", labelsize=9, color=FAINT)
    axes.grid(True, color="#ececec", lw=0.7, zorder=-1)
    axes.set_axisbelow(True)
