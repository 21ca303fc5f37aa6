"""Figures of figure files: panels side by side, each of named series; a name has one colour."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim.analysis.figures import COLOURS, FAINT, METRIC_NAMES, blank, plain
from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["line", "dashes", "guide", "points", "band"]
LOWER_IS_BETTER = ("brier", "ece", "nll")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)))  # one per pass through the colours
FEW, MANY = 12, 200  # the most values of a line with markers; the most large points


@dataclass(frozen=True, eq=False)
class Series:
    """Values y at x, drawn as a line, dashes in the same colour, a grey guide or points; finite values only.

    A band is shaded from y to `upper`.
    """

    x: Any
    y: Any
    kind: Kind = "line"
    upper: Any = None


Panel = Mapping[str, Series | Sequence[Series]]  # all series of a name share its colour


def of(values: Mapping[float, float], kind: Kind = "line") -> Series:
    """Return the series of a mapping {x: y}."""
    return Series(list(values), list(values.values()), kind)


def curve(result: Result, metric: str, kind: Kind = "line", *, power: float = 1.0, steps: int = 1) -> Series:
    """Return the mean over replicas of metric ** power by round, or by iteration with `steps` per round."""
    table = result.metrics if metric in result.metrics else result.rounds
    table = table[["round", metric]].dropna()
    mean = (table[metric] ** power).groupby(table["round"]).mean()
    return Series(steps * mean.index.to_numpy(), mean.to_numpy(), kind)


def seeds(results: Sequence[Result], metric: str, *, power: float = 1.0, steps: int = 1) -> list[Series]:
    """Return the mean curve of runs that differ in their seed, and the band from their lowest to their highest."""
    curves = [curve(result, metric, power=power, steps=steps) for result in results]
    values = np.stack([one.y for one in curves])
    x = curves[0].x
    return [Series(x, values.mean(axis=0)), Series(x, values.min(axis=0), "band", values.max(axis=0))]


def best(results: Sequence[Result], metric: str) -> Series:
    """Return the curve of the result with the best final metric, as for a tuned step size."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    return min((curve(result, metric) for result in results), key=lambda series: sign * float(series.y[-1]))


def density(values: Array, at: Array) -> Series:
    """Return a kernel estimate of the density of `values`."""
    from scipy.stats import gaussian_kde

    return Series(at, gaussian_kde(values)(at))


def metric_name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric)


def panels(
    content: Mapping[str, Panel], x: str | Sequence[str], y: str | Sequence[str], log: str | Sequence[str] = "",
    note: str = "",
) -> Figure:  # fmt: skip
    """Return a figure of {title: {name: series}}; `x`, `y` and `log` ("", "x", "y", "xy") are shared or one per panel.

    `note` is printed below the panels.
    """
    shared = len({tuple(panel) for panel in content.values()}) == 1
    figure, grid = _grid(len(content), 3.1 if shared else 3.7, note or shared)
    for axes, (title, panel), *words in zip(
        grid, content.items(), *(_each(words, len(content)) for words in (x, y, log)), strict=True
    ):
        handles = [_draw(axes, series, number) for number, series in enumerate(panel.values())]
        _label(axes, title, *words)
        if not shared:
            axes.legend(
                handles, list(panel), ncols=_fitting(panel, 4.0), frameon=False, fontsize=8, loc="upper center",
                bbox_to_anchor=(0.45, 0), borderaxespad=4.3,
            )  # fmt: skip
    if note or (shared and len(handles) > 1):
        names = list(panel) if shared else []
        figure.legend(
            handles[: len(names)], names, loc="outside lower center", ncols=_fitting(names, figure.get_figwidth()),
            frameon=False, fontsize=9, title=note or None, title_fontsize=9,
        )  # fmt: skip
    return figure


def planes(densities: Mapping[str, Callable[[Array], Array]], centre: Array, half: Array) -> Figure:
    """Return two-dimensional densities side by side, functions of points (2, n), around a centre."""
    figure, grid = _grid(len(densities))
    x, y = (np.linspace(c - h, c + h, 80) for c, h in zip(centre, half, strict=True))
    points = np.stack(np.meshgrid(x, y)).reshape(2, -1)
    heights = [density(points).reshape(len(y), len(x)) for density in densities.values()]
    levels = np.linspace(0, max(height.max() for height in heights), 10)
    for axes, title, height in zip(grid, densities, heights, strict=True):
        axes.contourf(x, y, height, levels, cmap="Blues")
        _label(axes, title, "theta_1", "theta_2", "")
    return figure


def _grid(count: int, row: float = 3.6, below: object = False) -> tuple[Figure, list[Axes]]:
    """Return a figure with up to three panels in a row, four in two rows."""
    wide = 2 if count == 4 else min(count, 3)
    high = -(-count // wide)
    figure = blank(max(7.0, 4.0 * wide), (0.5 if below else 0.1) + (3.6 if high == 1 else row) * high)
    grid = list(figure.subplots(high, wide, squeeze=False).ravel())
    for axes in grid[count:]:
        axes.remove()
    return figure, grid[:count]


def _draw(axes: Axes, series: Series | Sequence[Series], number: int) -> Any:
    """Draw all series of a name and return the handle of the first for the legend."""
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    drawn = []
    for one in [series] if isinstance(series, Series) else series:
        if one.kind == "band":
            axes.fill_between(one.x, one.y, one.upper, color=colour, alpha=0.2, lw=0)
            continue
        x, y = (np.asarray(values, np.float64) for values in (one.x, one.y))
        finite = np.isfinite(x) & np.isfinite(y)
        few, many = finite.sum() <= FEW, finite.sum() > MANY
        styles: dict[Kind, dict[str, Any]] = {
            "line": {"color": colour, "lw": 1.6, "ls": dash, "marker": "o" if few else "", "ms": 3.5},
            "dashes": {"color": colour, "lw": 1.1, "ls": (0, (2, 2))},
            "guide": {"color": FAINT, "lw": 1.2, "ls": (0, (4, 3)), "zorder": 2.5},
            "points": {"color": colour, "ls": "", "marker": "o", "ms": 1.5 if many else 5.5, "mec": "white",
                       "mew": 0 if many else 0.7, "zorder": 3},
        }  # fmt: skip
        drawn += axes.plot(x[finite], y[finite], **styles[one.kind])
    return drawn[0]


def _fitting(names: Collection[str], inches: float) -> int:
    """Return the number of columns of a legend."""
    wide = 0.6 + 0.065 * max(map(len, names), default=0)
    return max(1, min(len(names), int(inches / wide)))


def _label(axes: Axes, title: str, x: str, y: str, log: str) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if name in log:
            axes.set(**{f"{name}scale": "log"})
            low, high = axis.get_view_interval()
            subs = (1.0, 2.0, 5.0) if high < 30 * low else (1.0,)
            axis.set_major_locator(MaxNLocator(5) if high < 5 * low else LogLocator(subs=subs))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(_number)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    plain(axes)


def _number(value: float, _: object) -> str:
    """Return a tick label: 3,000 or 1e6."""
    return f"{value:,.0f}" if 1e3 <= value < 1e6 else f"{value:.6g}".replace("e+0", "e").replace("e-0", "e-")


def _each(words: str | Sequence[str], count: int) -> Sequence[str]:
    if isinstance(words, str):
        return [words] * count
    if len(words) != count:
        raise InvalidInput(f"panels: {len(words)} labels for {count} panels; give one, or one per panel")
    return words
