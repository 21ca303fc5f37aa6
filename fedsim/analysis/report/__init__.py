"""HTML pages about a run, several runs, a sweep or the papers' claims. A page needs no network and executes no code.

`sections` describes one run, `comparisons` several, `claims` a figure of a paper; `charts` has the plots, `html` the
frame and the tables.
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

WIDTH = 110  # columns of text
TUNED = "Rule: the setting that reaches the goal of fs.tune at the lowest cost within its limits is recommended."


def run_page(name: str, result: Result, drawn: Mapping[str, bytes] | None = None) -> str:
    """Return the page about one run; `drawn` are its own figures as PNG."""
    terminal = [*summary.heading(result, WIDTH), "", *summary.lines(result, WIDTH)]
    source = (result.manifest.get("source") or {}).get("text", "")
    manifest = json.dumps({k: v for k, v in result.manifest.items() if k != "source"}, indent=1, default=str)
    warnings = [line for line in summary.lines(result, 10_000) if line.startswith("warning: ")]
    parts = [
        *(html.text(line.removeprefix("warning: "), "warn") for line in warnings),
        sections.numbers(result),
        *(html.picture(title, png) for title, png in (drawn or {}).items()),
        sections.scenario(result),
        sections.metrics({name: result}),
        sections.rounds(result),
        sections.network(result),
        sections.clients(result),
        sections.posterior(result),
        html.section(
            "Details",
            html.details("summary", "\n".join(terminal)),
            html.details("scenario file", source if isinstance(source, str) else ""),
            html.details("manifest", manifest),
        ),
    ]
    return html.page(name, comparisons.sentence(result), parts)


def comparison_page(results: Mapping[str, Result]) -> str:
    """Return the page that compares several runs."""
    named = dict(results)
    metrics = comparisons.shared_metrics(named)
    table = comparisons.outcomes(named)
    parts = [
        *comparisons.warning_paragraphs(table),
        html.section("Differences", html.table(comparisons.differences(named))),
        html.section("Outcomes", html.table(table)),
        sections.metrics(named),
        *(comparisons.trade_off(table, metric)[0] for metric in metrics[:1]),
        comparisons.waste(named),
        html.section(
            "Details",
            *(html.details(name, "\n".join(summary.lines(result, WIDTH))) for name, result in named.items()),
        ),
    ]
    return html.page(" against ".join(named), comparisons.best(table, metrics), parts)


def sweep_page(
    name: str, status: list[str], frame: pd.DataFrame, lines: Mapping[str, pd.DataFrame], axes: list[str],
    drawn: Mapping[str, bytes] | None = None, tuned: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Return the page about a sweep: recommended setting, trade-off, settings, effect of each parameter, all runs.

    `tuned` is the saved recommendation of `fs.tune` if it made the runs.
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
    met = tuned is not None and bool(tuned["met"])
    chosen = comparisons.name_of(tuned["best"], varied) if tuned is not None and met else ""
    rule = TUNED if met else comparisons.RULE
    section, chosen, why = comparisons.trade_off(settings, metrics[0], chosen, rule) if metrics else ("", "", "")
    answer = f"Recommended setting: {why}" if why else status[0]
    if tuned:
        goal, cost = tuned["lines"][0], tuned["lines"][1].strip()
        answer = f"Recommended setting: {chosen} ({goal.rpartition(': ')[0]}, {cost})" if met else goal
    marks = [run == chosen for run in settings["run"]] if chosen else None
    parts = [
        html.details("recommendation of fs.tune", "\n".join(tuned["lines"])) if tuned else "",
        *comparisons.warning_paragraphs(settings),
        *(html.picture(title, png) for title, png in (drawn or {}).items()),
        section,
        html.section("Settings", html.text("Medians over seeds.", "note"), html.table(settings, marks)),
        html.section(
            "Effect of each parameter",
            html.text("Medians and 5 to 95 % bands over all runs with a value (ranges for fewer than 5 runs).", "note"),
            *curves,
            *comparisons.effects(settings, varied, metrics),
        ),
        html.section("All runs", html.details("status of the sweep", "\n".join(status)), html.table(_runs(frame))),
    ]
    return html.page(name, answer, parts)


def claims_page(
    title: str, rows: list[dict[str, Any]], counts: Mapping[str, int], drawn: Mapping[str, bytes],
    tables: Mapping[str, Any] | None = None,
) -> str:  # fmt: skip
    """Return the page about the papers' claims: failures first, then every figure with its picture, verdicts and costs.

    `counts` has the number of claims by verdict, in the order of the page; `drawn` has PNG files by PAPER/FIGURE/name,
    `tables` the content of tables.json by PAPER/FIGURE.
    """
    answer = f"{text.plural(len(rows), 'claim')}: {', '.join(f'{n} {word}' for word, n in counts.items())}."
    order = list(counts)
    ranked = sorted(rows, key=lambda row: order.index(row["verdict"]))
    groups: dict[str, list[dict[str, Any]]] = {f"{row['paper']}/{row['figure']}": [] for row in rows}
    for row in ranked:
        groups[f"{row['paper']}/{row['figure']}"].append(row)
    pictures = {name: [png for key, png in drawn.items() if key.startswith(f"{name}/")] for name in groups}
    parts = [claims.figure(name, own, pictures[name], (tables or {}).get(name)) for name, own in groups.items()]
    return html.page(title, answer, [claims.failures(ranked), *parts])


def _runs(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=[name for name in ("fingerprint", "real_s") if name in frame])


__all__ = ["claims_page", "comparison_page", "run_page", "sweep_page"]
