"""The frame of a page and its parts: sections, sortable tables, plots. All text is escaped."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fedsim.errors import InvalidInput
from fedsim.text import amount

if TYPE_CHECKING:
    import pandas as pd

PRINT, SCREEN = 150, 96  # dots per inch of a PNG and of a page
Chart = dict[str, Any]  # a plotly figure: {"data": [...], "layout": {...}}


def page(title: str, answer: str, parts: Iterable[str]) -> str:
    """Return a self-contained page: style, script, plotly and data are embedded."""
    body = "\n".join(part for part in parts if part)
    links = "".join(f'<a href="#{mark}">{text}</a>' for mark, text in re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', body))
    own = files("fedsim.analysis.report")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{own.joinpath('page.css').read_text()}</style></head>\n<body><h1>{escape(title)}</h1>"
        f'<p class="answer">{escape(answer)}</p><nav>{links}</nav>\n{body}\n'
        f"<script>{_plotly()}</script>\n<script>{own.joinpath('page.js').read_text()}</script></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a heading and its parts, or "" without parts."""
    inside = [part for part in parts if part]
    mark = re.sub(r"[^a-z0-9]+", "-", title.lower())
    return f'<h2 id="{mark}">{escape(title)}</h2>\n' + "\n".join(inside) if inside else ""


def text(words: str, kind: str = "") -> str:
    """Return a paragraph; `kind` is a class of page.css: note or warn."""
    return f'<p class="{kind}">{escape(words)}</p>' if words else ""


def cards(facts: Mapping[str, tuple[str, str]]) -> str:
    """Return cards of a name, a value and a remark."""
    shown = (
        f'<div class="card"><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(more)}</small></div>'
        for name, (value, more) in facts.items()
    )
    return f'<div class="cards">{"".join(shown)}</div>'


def table(frame: pd.DataFrame, chosen: Sequence[bool] | None = None, most: int = 500, tall: bool = True) -> str:
    """Return the first `most` rows as a sortable table. Columns that end in _s or _bits have a unit.

    A table that is not `tall` scrolls in its own box.
    """
    if frame.empty:
        return ""
    heads = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
    marks = list(chosen) if chosen is not None else [False] * len(frame)
    rows = [
        f"<tr{' class=chosen' if mark else ''}>{''.join(map(_cell, frame.columns, row))}</tr>"
        for row, mark in list(zip(frame.itertuples(index=False, name=None), marks, strict=True))[:most]
    ]
    cut = text(f"the first {most:,} of {len(frame):,} rows", "note") if len(frame) > most else ""
    content = f'<table class="sorts"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<div class="scroll{"" if tall else " low"}">{content}</div>{cut}'


def facts(rows: Mapping[str, str]) -> str:
    """Return names and texts as a table of two columns."""
    body = "".join(
        f'<tr><td>{escape(name)}</td><td class="words">{escape(words)}</td></tr>' for name, words in rows.items()
    )
    return f'<div class="scroll"><table>{body}</table></div>' if body else ""


def plot(chart: Chart | None, height: int = 0) -> str:
    """Return an interactive plot, drawn by page.js."""
    if chart is None:
        return ""
    spec = json.dumps(_finite(chart), allow_nan=False).replace("<", "\\u003c")  # a name cannot end the script
    style = f' style="min-height:{height}px;height:{height}px"' if height else ""
    return f'<div class="plot"{style}></div><script type="application/json" class="spec">{spec}</script>'


def picture(title: str, png: bytes) -> str:
    """Return a PNG with a title."""
    return titled(title, image(title, png))


def image(what: str, png: bytes) -> str:
    """Return an embedded PNG at its printed size; it scrolls on narrow screens."""
    data = base64.b64encode(png).decode()
    wide = round(int.from_bytes(png[16:20], "big") * SCREEN / PRINT)  # the header of a PNG
    shown = f'<img alt="{escape(what)}" style="--wide:{wide}px" src="data:image/png;base64,{data}">'
    return f'<div class="picture">{shown}</div>'


def titled(title: str, body: str) -> str:
    """Return `body` under a small heading."""
    return f"<h3>{escape(title)}</h3>{body}"


def details(title: str, body: str) -> str:
    """Return text that opens on a click."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(body)}</pre></details>" if body else ""


def _cell(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        words = "" if value is None else str(value)
        return f'<td class="words">{escape(words)}</td>' if len(words) > 24 else f"<td>{escape(words)}</td>"
    if math.isnan(value):
        return '<td data-value=""></td>'
    shown = amount(str(name), float(value))
    return f'<td data-value="{float(value)!r}">{escape(shown)}</td>'


def _finite(value: Any) -> Any:
    """Return `value` with None for non-finite numbers and plain numbers for NumPy's."""
    if isinstance(value, Mapping):
        return {str(name): _finite(own) for name, own in value.items()}
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [_finite(own) for own in value]
    return _finite(value.item())


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InvalidInput("a report draws with plotly: pip install 'fedsim-systems[report]'") from None
    return str(get_plotlyjs())
