"""One HTML page about a run or a sweep: numbers, curves, timeline. Pictures are inside; it needs no network."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from fedsim.analysis import figures, summary, timeline
from fedsim.results import Axis, Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

AXES: tuple[Axis, ...] = ("rounds", "seconds", "uplink_bits")
WIDE = 110  # columns of text
LINES = 12  # curves in one picture, and rows of clients in a timeline, before it is unreadable
FIRST = 5  # rounds of the timeline
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
pre,table{font-size:13px}table{border-collapse:collapse}
td,th{padding:.15rem .7rem;text-align:right;border-bottom:1px solid #eee}
img{max-width:100%}pre{overflow:auto}"""


def run_page(name: str, result: Result, drawn: Mapping[str, bytes] | None = None) -> str:
    """A page about one run, from what it left behind alone; `drawn` are pictures of its own as PNG."""
    names = [*result.over_replicas, *result.per_replica]
    pictures = [
        _picture(f"{metric} over what was spent", _curves({"": result}, metric))
        for metric in names
        if len(result.curve(metric))
    ]
    told = [*summary.heading(result, WIDE), "", *summary.lines(result, WIDE)]
    parts = [f"<pre>{escape(chr(10).join(told))}</pre>", *_images(drawn), *pictures, _timeline(result)]
    source = (result.manifest.get("source") or {}).get("text", "")
    if source and isinstance(source, str):
        parts.append(f"<details><summary>scenario file</summary><pre>{escape(source)}</pre></details>")
    whole = json.dumps({k: v for k, v in result.manifest.items() if k != "source"}, indent=1, default=str)
    parts.append(f"<details><summary>manifest</summary><pre>{escape(whole)}</pre></details>")
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
    """The first rounds of the first replica, a lane per client: when each was sent to, computed and answered."""
    if result.events is None or result.events.empty or result.rounds.empty:
        return ""
    figure = figures.blank(11, 4)
    lanes = timeline.draw_rounds(figure.subplots(), result, result.replicas[0], FIRST, most=LINES)
    figure.set_figheight(1.6 + 0.3 * lanes)
    return _picture(f"Timeline: the first {FIRST} rounds of replica {result.replicas[0]}", figure)


def _picture(title: str, figure: Figure) -> str:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=110)
    return _image(title, png.getvalue())


def _images(drawn: Mapping[str, bytes] | None) -> list[str]:
    return [_image(title, png) for title, png in (drawn or {}).items()]


def _image(title: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return f'<h2>{escape(title)}</h2><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
