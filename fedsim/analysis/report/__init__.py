"""One HTML page about a run, several runs, a sweep or the papers' claims. It needs no network and executes nothing.

`charts` are its plots, `html` its frame, tables and sections, `sections` what is said of one run, `claims` of a figure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedsim import text
from fedsim.analysis import summary
from fedsim.analysis.report import charts, claims, comparisons, html, sections
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd

WIDE = 110  # columns of text


def run_page(name: str, result: Result, drawn: Mapping[str, bytes] | None = None) -> str:
    """A page about one run, from what it left behind alone; `drawn` are pictures of its own as PNG."""
    terminal = [*summary.heading(result, WIDE), "", *summary.lines(result, WIDE)]
    source = (result.manifest.get("source") or {}).get("text", "")
    whole = json.dumps({k: v for k, v in result.manifest.items() if k != "source"}, indent=1, default=str)
    warnings = [line for line in summary.lines(result, 10_000) if line.startswith("! ")]
    parts = [
        *(html.text(line[2:], "warn") for line in warnings),
        sections.numbers(result),
        *(html.picture(title, png) for title, png in (drawn or {}).items()),
        sections.scenario(result),
        sections.bought({name: result}),
        sections.rounds(result),
        sections.network(result),
        sections.people(result),
        sections.posterior(result),
        html.section(
            "All of it",
            html.folded("as the terminal shows it", "\n".join(terminal)),
            html.folded("scenario file", source if isinstance(source, str) else ""),
            html.folded("manifest", whole),
        ),
    ]
    return html.page(name, comparisons.sentence(result), parts)


def comparison_page(results: Mapping[str, Result]) -> str:
    """Several runs: what differs in their scenarios, and what it did."""
    named = dict(results)
    metrics = comparisons.shared_metrics(named)
    table = comparisons.outcomes(named)
    parts = [
        *comparisons.doubted(table),
        html.section("What differs", html.table(comparisons.differences(named))),
        html.section("What it did", html.table(table)),
        sections.bought(named),
        *(comparisons.trade_off(table, metric)[0] for metric in metrics[:1]),
        comparisons.waste(named),
        html.section(
            "All of it",
            *(html.folded(name, "\n".join(summary.lines(result, WIDE))) for name, result in named.items()),
        ),
    ]
    return html.page(" against ".join(named), comparisons.best(table, metrics), parts)


def sweep_page(
    name: str, status: list[str], frame: pd.DataFrame, lines: Mapping[str, pd.DataFrame], axes: list[str],
    drawn: Mapping[str, bytes] | None = None, plan: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """A page about a sweep: what to choose, each metric's curves with bands over seeds, every setting and every run.

    `plan` is the recommendation of `fs.tune`, if it made the runs.
    """
    varied = [axis for axis in axes if axis != "seed" and axis in frame and frame[axis].nunique() > 1]
    metrics = [metric for metric in lines if metric in frame]
    settings = comparisons.by_setting(frame, varied)
    curves = [
        html.plot(charts.curves(groups, metric), 400)
        for metric, table in lines.items()
        for axis in varied or [""]
        if (groups := comparisons.bands(table, axis))
    ]
    chosen = comparisons.words(plan["best"], varied) if plan else ""
    section, chosen, why = comparisons.trade_off(settings, metrics[0], chosen) if metrics else ("", "", "")
    answer = " ".join(plan["lines"][:2]) if plan else why or status[0]
    marks = [run == chosen for run in settings["run"]] if chosen else None
    parts = [
        html.folded("what the planner found", "\n".join(plan["lines"])) if plan else "",
        *comparisons.doubted(settings),
        *(html.picture(title, png) for title, png in (drawn or {}).items()),
        section,
        html.section("Settings", html.text("Medians over seeds.", "note"), html.table(settings, marks)),
        html.section(
            "What each knob does",
            html.text(
                "Medians over all runs with that value; bands hold 5 to 95 % of them, all where fewer than 5.", "note"
            ),
            *curves,
        ),
        comparisons.effects(settings, varied, metrics),
        html.section("All runs", html.folded("state of the sweep", "\n".join(status)), html.table(_runs(frame))),
    ]
    return html.page(name, answer, parts)


def claims_page(
    title: str, verdicts: list[dict[str, Any]], drawn: Mapping[str, bytes], tables: Mapping[str, Any] | None = None
) -> str:
    """The papers' claims, figure by figure: our figure, the paper's, whether it held, and why not where it did not.

    `drawn` are pictures by PAPER/FIGURE/name, `tables` the tables.json by PAPER/FIGURE, read as data.
    """
    can = [v for v in verdicts if v["expected"] == "holds" and v["held"] is not None]
    count = {word: sum(v["held"] is held for v in verdicts) for held, word in claims.WORDS.items()}
    answer = (
        f"Of {len(can)} published claims that can hold and were run, {sum(v['held'] for v in can)} did "
        f"({text.many(len(verdicts), 'claim')}: {', '.join(f'{n} {word}' for word, n in count.items())})."
    )
    groups: dict[str, list[dict[str, Any]]] = {}
    for verdict in verdicts:
        groups.setdefault(f"{verdict['paper']}/{verdict['figure']}", []).append(verdict)
    pictures = {name: [png for key, png in drawn.items() if key.startswith(f"{name}/")] for name in groups}
    parts = [claims.figure(name, own, pictures[name], (tables or {}).get(name)) for name, own in groups.items()]
    return html.page(title, answer, parts)


def _runs(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=[name for name in ("fingerprint", "real_s") if name in frame])


__all__ = ["claims_page", "comparison_page", "run_page", "sweep_page"]
