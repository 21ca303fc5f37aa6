"""`fedsim report`: a page about each folder, beside what it is about."""

from __future__ import annotations

from pathlib import Path

from fedsim.batch import load
from fedsim.batch.plan import Plan
from fedsim.cli.sweep import status
from fedsim.results import Result, write_atomic


def report(folder: Path) -> Path:
    """Write DIR/report.html and return its path."""
    from fedsim.analysis import report as pages

    found = load(folder)
    if isinstance(found, Result):
        html = pages.run_page(folder.absolute().name, found)
    else:
        table = found.curve_table()
        lines = {metric: found.curve(metric) for metric in table["metric"].unique()} if len(table) else {}
        html = pages.sweep_page(found.name, status(folder)[0], found.frame(), lines, list(Plan.read(folder).grid))
    path = folder / "report.html"
    write_atomic(path, html.encode())
    return path
