"""One HTML page about a run or a sweep: numbers, curves, timeline. Pictures are inside; it needs no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from fedsim.analysis import figures
from fedsim.results import METRICS, ROUNDS, Axis, Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

AXES: tuple[Axis, ...] = ("rounds", "seconds", "uplink_bits")
LINES = 12  # curves in one picture, and rows of clients in a timeline, before it is unreadable
STEPS = {"download": figures.COLOURS[5], "compute": figures.COLOURS[0], "upload": figures.COLOURS[1]}
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
pre,table{font-size:13px}table{border-collapse:collapse}
td,th{padding:.15rem .7rem;text-align:right;border-bottom:1px solid #eee}
img{max-width:100%}pre{overflow:auto}"""


def run_page(name: str, result: Result, summary: list[str], drawn: Mapping[str, bytes] | None = None) -> str:
    """A page about one run; `summary` is what the terminal said of it, `drawn` are pictures of its own as PNG."""
    names = [*result.metrics.columns.drop(list(METRICS)), *result.rounds.columns.drop(list(ROUNDS))]
    pictures = [_picture(f"{metric} over what was spent", _curves({"": result}, metric)) for metric in names]
    source = (result.manifest.get("source") or {}).get("text", "")
    parts = [f"<pre>{escape(chr(10).join(summary))}</pre>", *_images(drawn), *pictures, _timeline(result)]
    if source and isinstance(source, str):
        parts.append(f"<details><summary>scenario file</summary><pre>{escape(source)}</pre></details>")
    return page(name, parts)


def sweep_page(
    name: str, status: list[str], frame: pd.DataFrame, lines: Mapping[str, pd.DataFrame], axes: list[str],
    drawn: Mapping[str, bytes] | None = None,
) -> str:  # fmt: skip
    """A page about a sweep: its table, and each metric's median curve for every value of each swept setting."""
    pictures = [
        _picture(f"{metric} by {axis}", _by(table, metric, axis))
        for metric, table in lines.items()
        for axis in axes
        if 1 < table[axis].nunique() <= LINES
    ]
    shown = frame.drop(columns=[c for c in ("fingerprint", "real_s") if c in frame])
    table = shown.to_html(index=False, border=0, float_format=lambda x: f"{x:.4g}")
    told = f"<pre>{escape(chr(10).join(status))}</pre>"
    return page(name, [told, *_images(drawn), *pictures, "<h2>All runs</h2>", table])


def page(title: str, parts: list[str]) -> str:
    """The frame around it all."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _curves(results: dict[str, Result], metric: str) -> Figure:
    figure = figures.blank(11, 3.4)
    for axes, against in zip(figure.subplots(1, len(AXES)), AXES, strict=True):
        figures.curves(axes, results, metric, against, log="")
    return figure


def _by(table: pd.DataFrame, metric: str, axis: str) -> Figure:
    figure = figures.blank(7, 3.6)
    axes = figure.subplots()
    for (value, own), colour in zip(table.groupby(axis, sort=False), figures.COLOURS * LINES, strict=False):
        middle = own.groupby("rounds")[metric].median()
        axes.plot(middle.index, middle, color=colour, lw=1.6, label=f"{axis} = {value}")
    axes.set_xlabel("communication rounds")
    axes.set_ylabel(metric)
    axes.legend(frameon=False, fontsize=8)
    figures.plain(axes)
    return figure


def _timeline(result: Result) -> str:
    """The first rounds of the first replica, a row per client: when each was sent to, computed and answered."""
    events = result.events
    if events is None or events.empty:
        return ""
    own = events[(events["replica"] == result.replicas[0]) & events["event"].isin(STEPS)]
    own = own[own["round"] <= 5]
    clients = own["client"].drop_duplicates().sort_values().head(LINES).tolist()
    opened = result.rounds[result.rounds["replica"] == result.replicas[0]].set_index("round")["opened_s"]
    figure = figures.blank(11, 0.6 + 0.28 * max(len(clients), 2))
    axes = figure.subplots()
    for (round, client), visit in own[own["client"].isin(clients)].groupby(["round", "client"]):
        begin = float(opened.get(round, visit["time_s"].min()))
        for row in visit.sort_values("time_s").itertuples():
            axes.barh(clients.index(client), row.time_s - begin, left=begin, color=STEPS[row.event], height=0.7)
            begin = row.time_s
    axes.set_yticks(range(len(clients)), [f"client {c}" for c in clients])
    axes.set_xlabel("virtual seconds (first five rounds; light: download, blue: compute, amber: upload)")
    figures.plain(axes)
    return _picture("Timeline", figure)


def _picture(title: str, figure: Any) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    return _image(title, png.getvalue())


def _images(drawn: Mapping[str, bytes] | None) -> list[str]:
    return [_image(title, png) for title, png in (drawn or {}).items()]


def _image(title: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return f'<h2>{escape(title)}</h2><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
