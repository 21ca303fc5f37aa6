"""Plots of a page as plotly figures in plain data; page.js draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import text
from fedsim.analysis import figures
from fedsim.analysis.report.html import Chart
from fedsim.arrays import Array
from fedsim.results import Axis

if TYPE_CHECKING:
    import pandas as pd

AXES: tuple[Axis, ...] = ("seconds", "total_bits", "uplink_bits", "rounds")  # buttons of a curve
NODES = {  # colour, size, shape
    "relay": ("#bbbbbb", 7, "circle"),
    "client": (figures.COLOURS[5], 11, "circle"),
    "edge": (figures.COLOURS[1], 14, "diamond"),
    "server": (figures.COLOURS[3], 18, "square"),
}
POINTS = 400  # the most of a line
BARS = 60  # the most lanes or bars of a plot
LABELS = 30  # the most points of which all are labelled


def curves(lines: Mapping[str, pd.DataFrame], metric: str) -> Chart:
    """Return a metric against a cost that buttons choose, one line each with its band if any.

    A line is a table of `seconds, total_bits, uplink_bits, rounds, value` and optionally `low, high`.
    """
    lines = {name: thinned(table) for name, table in lines.items()}
    most = {axis: max((float(t[axis].max()) for t in lines.values()), default=0.0) for axis in AXES}
    scales = {axis: text.scale(axis, most[axis]) for axis in AXES}
    data: list[dict[str, Any]] = []
    places: dict[str, list[Array]] = {axis: [] for axis in AXES}
    for i, (name, table) in enumerate(lines.items()):
        colour = _colour(i)
        x = {axis: table[axis].to_numpy(float) / scales[axis][0] for axis in AXES}
        if "low" in table and table["low"].notna().any():
            ends = np.concatenate([table["high"], table["low"][::-1]])
            data.append({
                "type": "scatter", "mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": f"{colour}30",
                "hoverinfo": "skip", "showlegend": False, "legendgroup": name, "y": ends, "name": name,
            })  # fmt: skip
            for axis in AXES:
                places[axis].append(np.concatenate([x[axis], x[axis][::-1]]))
        data.append({
            "type": "scatter", "mode": "lines" if len(table) > 1 else "markers", "name": name, "legendgroup": name,
            "line": {"color": colour, "width": 2}, "y": table["value"], "hovertemplate": "%{y:.4g}",
        })  # fmt: skip
        for axis in AXES:
            places[axis].append(x[axis])
    titles = {axis: _title(axis, scales[axis][1]) for axis in AXES}
    first: Axis = next((axis for axis in AXES if most[axis] > 0), "rounds")
    for trace, place in zip(data, places[first], strict=True):
        trace["x"] = place
    buttons = [
        {"label": _title(axis, ""), "method": "update",
         "args": [{"x": places[axis]}, {"xaxis.title.text": titles[axis]}]}
        for axis in AXES
        if most[axis] > 0
    ]  # fmt: skip
    layout = base(figures.METRIC_NAMES.get(metric, metric), titles[first]) | {
        "hovermode": "x unified",
        "showlegend": len(lines) > 1,
        "updatemenus": [
            {"type": "buttons", "direction": "right", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom",
             "showactive": True, "active": [b["label"] for b in buttons].index(_title(first, "")), "buttons": buttons,
             "pad": {"t": 0, "b": 4}, "font": {"size": 12}}
        ],
    }  # fmt: skip
    if spans_decades(np.concatenate([table["value"].to_numpy(float) for table in lines.values()])):
        layout["yaxis"]["type"] = "log"
    return {"data": data, "layout": layout}


def front(frame: pd.DataFrame, cost: str, metric: str, up: bool, chosen: str) -> Chart:
    """Return the settings as labelled points of cost and metric: dominated, Pareto-optimal, recommended."""
    size, unit = text.scale(cost, float(frame[cost].max()))
    data = []
    own = frame.sort_values(cost)
    looks = (
        (~own["front"], "dominated", len(own) <= LABELS, {"color": "#b5b5b5", "size": 8}),
        (own["front"], "Pareto-optimal", True, {"color": figures.COLOURS[0], "size": 10}),
        (own["run"] == chosen, "recommended", False,
         {"color": figures.COLOURS[2], "size": 16, "symbol": "circle-open"}),
    )  # fmt: skip
    for mask, name, labelled, marker in looks:
        rows = own[mask]
        data.append({
            "type": "scatter", "mode": "markers+text" if labelled else "markers", "name": name,
            "textposition": "top center", "textfont": {"size": 10, "color": marker["color"]},
            "x": rows[cost] / size, "y": rows[metric],
            "text": rows["run"], "marker": marker, "hovertemplate": "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>",
        })  # fmt: skip
    name = f"{metric}, {'higher' if up else 'lower'} is better"
    layout = base(name, _title(cost, unit)) | {"hovermode": "closest"}
    if spans_decades(frame[metric].to_numpy(float)):
        layout["yaxis"]["type"] = "log"
    return {"data": data, "layout": layout}


def lanes(spans: Sequence[tuple[str, str, float, float]], closes: Sequence[float], names: Sequence[str]) -> Chart:
    """Return (client, phase, start, end) as bars, one lane per client, with a line at each close of a round."""
    data = []
    for phase in dict.fromkeys(phase for _, phase, _, _ in spans):
        own = [span for span in spans if span[1] == phase]
        data.append({
            "type": "bar", "orientation": "h", "name": phase, "y": [s[0] for s in own], "base": [s[2] for s in own],
            "x": [s[3] - s[2] for s in own], "marker": {"color": figures.PHASES.get(phase, figures.FAINT)},
            "hovertemplate": f"client %{{y}}, {phase}: %{{x:.4g}} s<extra></extra>",
        })  # fmt: skip
    layout = base("client", "virtual seconds")
    layout["yaxis"] |= {
        "type": "category",
        "categoryarray": list(names),
        "categoryorder": "array",
        "autorange": "reversed",
    }
    lines = [
        {
            "type": "line",
            "x0": at,
            "x1": at,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": figures.FAINT, "width": 1},
        }
        for at in closes
    ]
    return {"data": data, "layout": layout | {"barmode": "overlay", "hovermode": "closest", "shapes": lines}}


def bars(parts: Mapping[str, Mapping[str, float]], title: str, colours: Mapping[str, str] = figures.PHASES) -> Chart:
    """Return a stacked bar per name."""
    found = dict.fromkeys(phase for one in parts.values() for phase in one)
    data = [
        {"type": "bar", "orientation": "h", "name": phase, "y": list(parts),
         "x": [one.get(phase, 0.0) for one in parts.values()], "marker": {"color": colours.get(phase, _colour(i))},
         "hovertemplate": f"%{{y}}, {phase}: %{{x:.4g}}<extra></extra>"}
        for i, phase in enumerate(found)
    ]  # fmt: skip
    layout = base("", title) | {"barmode": "stack", "hovermode": "closest"}
    layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
    return {"data": data, "layout": layout}


def histograms(values: Mapping[str, Array], title: str) -> Chart:
    """Return the densities of several samples in one plot."""
    data = [
        {"type": "histogram", "histnorm": "probability density", "x": thin(own, 5 * POINTS), "name": name,
         "opacity": 0.6, "marker": {"color": _colour(i)}, "nbinsx": 50}
        for i, (name, own) in enumerate(values.items())
    ]  # fmt: skip
    return {"data": data, "layout": base("density", title) | {"barmode": "overlay", "hovermode": "closest"}}


def traces(rounds: Array, chains: Mapping[str, Array], title: str) -> Chart:
    """Return the trace of one coordinate, a line per replica."""
    data = [
        {"type": "scatter", "mode": "lines", "x": thin(rounds), "y": thin(own), "name": name,
         "line": {"color": _colour(i), "width": 1}}
        for i, (name, own) in enumerate(chains.items())
    ]  # fmt: skip
    return {"data": data, "layout": base(title, "communication rounds") | {"hovermode": "closest"}}


def cloud(x: Array, y: Array, names: tuple[str, str]) -> Chart:
    """Return a scatter plot of two coordinates of the samples."""
    marker = {"color": figures.COLOURS[0], "size": 4, "opacity": 0.45}
    data = [
        {"type": "scatter", "mode": "markers", "x": thin(x, 5 * POINTS), "y": thin(y, 5 * POINTS), "marker": marker}
    ]
    return {"data": data, "layout": base(names[1], names[0]) | {"hovermode": "closest"}}


def network(
    nodes: Sequence[Sequence[str]], links: Sequence[Sequence[Any]], at: Mapping[int, Array], worst: int | None
) -> Chart:
    """Return nodes and links at the positions `at`, with the bottleneck link in red."""
    data: list[dict[str, Any]] = []
    for name, own, line in (
        ("links", [link for i, link in enumerate(links) if i != worst], {"color": "#b5b5b5", "width": 1}),
        ("bottleneck", [] if worst is None else [links[worst]], {"color": figures.COLOURS[2], "width": 4}),
    ):
        if not own:
            continue
        x, y = ([v for a, b, *_ in own for v in (at[a][k], at[b][k], None)] for k in (0, 1))  # None separates the links
        data.append(
            {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "name": name, "hoverinfo": "skip"}
        )
    middles = [(at[a] + at[b]) / 2 for a, b, *_ in links]
    labels = [
        f"{nodes[a][0]} - {nodes[b][0]}: {text.bits(bps)}/s, {text.plural(count, 'transfer')}"
        for a, b, bps, count in links
    ]
    data.append({
        "type": "scatter", "mode": "markers", "x": [m[0] for m in middles], "y": [m[1] for m in middles],
        "text": labels, "marker": {"size": 10, "opacity": 0}, "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    })  # fmt: skip
    for kind, (colour, size, symbol) in NODES.items():
        members = [i for i, (_, own_kind) in enumerate(nodes) if own_kind == kind]
        if members:
            data.append({
                "type": "scatter", "mode": "markers",
                "x": [at[i][0] for i in members], "y": [at[i][1] for i in members],
                "text": [nodes[i][0] for i in members], "name": kind, "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": colour, "size": size, "symbol": symbol},
            })  # fmt: skip
    layout = base("", "") | {"hovermode": "closest"}
    layout["xaxis"] |= {"visible": False}
    layout["yaxis"] |= {"visible": False, "scaleanchor": "x"}
    return {"data": data, "layout": layout}


def base(y: str, x: str) -> dict[str, Any]:
    """Return the layout that all plots share."""
    axis = {
        "gridcolor": "#ececec",
        "linecolor": "#8a8a8a",
        "zeroline": False,
        "automargin": True,
        "exponentformat": "power",
    }
    return {
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": figures.INK}, "plot_bgcolor": "white",
        "paper_bgcolor": "white", "margin": {"l": 60, "r": 15, "t": 45, "b": 80},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        "xaxis": axis | {"title": {"text": x}}, "yaxis": axis | {"title": {"text": y}},
    }  # fmt: skip


def thinned(table: pd.DataFrame, most: int = POINTS) -> pd.DataFrame:
    """Return at most `most` rows, evenly spaced, with the first and the last."""
    return table if len(table) <= most else table.iloc[np.unique(np.linspace(0, len(table) - 1, most).astype(int))]


def thin(values: Array, most: int = POINTS) -> Array:
    """Return at most `most` values, evenly spaced, with the first and the last."""
    values = np.asarray(values)
    return values if len(values) <= most else values[np.unique(np.linspace(0, len(values) - 1, most).astype(int))]


def spans_decades(values: Array) -> bool:
    """Return True if the values are positive and span more than a factor of 30."""
    finite = values[np.isfinite(values)]
    return len(finite) > 0 and bool(finite.min() > 0) and bool(finite.max() > 30 * finite.min())


def _title(axis: str, unit: str) -> str:
    names = {"seconds": "virtual time", "total_bits": "all bits", "uplink_bits": "uplink", "rounds": "rounds"}
    to = " to target" if axis.endswith("_to_target") else ""
    axis = axis.removesuffix("_to_target")
    name = names.get(axis, axis.replace("_bits", "")) + to
    return f"{name}, {unit}" if unit else name


def _colour(i: int) -> str:
    return figures.COLOURS[i % len(figures.COLOURS)]
