"""`fedsim report`: a page about each folder, beside what it is about."""

from __future__ import annotations

from pathlib import Path

from fedsim.batch import load
from fedsim.batch.plan import Plan
from fedsim.cli import summary
from fedsim.cli.sweep import status
from fedsim.errors import InvalidInput
from fedsim.results import Result, write_atomic
from fedsim.scenario_file import from_origin


def report(folder: Path) -> Path:
    """Write DIR/report.html and return its path."""
    from fedsim.analysis import report as pages

    found = load(folder)
    if isinstance(found, Result):
        html = pages.run_page(folder.absolute().name, found, _summary(found))
    else:
        table = found.curve_table()
        lines = {metric: found.curve(metric) for metric in table["metric"].unique()} if len(table) else {}
        html = pages.sweep_page(found.name, status(folder)[0], found.frame(), lines, list(Plan.read(folder).grid))
    path = folder / "report.html"
    write_atomic(path, html.encode())
    return path


def _summary(result: Result) -> list[str]:
    """As after the run, if its scenario can be built again; otherwise what the folder alone can tell."""
    try:
        file, settings = from_origin(result.manifest.get("source") or {})
        return summary.lines(file.build(settings), result)
    except InvalidInput:
        return summary.plain(result)
