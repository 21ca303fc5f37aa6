"""`fedsim report`: a page about runs, sweeps or claims. `fedsim reproduce`: the papers' claims as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsim import text
from fedsim.analysis import report as pages
from fedsim.cli.run import draw
from fedsim.cli.status import status
from fedsim.cli.terminal import heartbeat, outputs, stop_signals
from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.reproduce.judging import VERDICTS
from fedsim.reproduce.run import TABLES, FigureProgress, Row
from fedsim.reproduce.run import reproduce as run_figures
from fedsim.results import Result, files, write_atomic
from fedsim.results.checksums import parsed
from fedsim.scenario_file import load_file
from fedsim.sweeps import load
from fedsim.sweeps.recommendation import read_recommendation
from fedsim.sweeps.spec import SweepSpec
from fedsim.sweeps.study import Study

PAGE, CLAIMS = "report.html", "claims.json"
PNG = b"\x89PNG\r\n\x1a\n"


def report(folders: Sequence[Path], figure: str | None = None, out: Path | None = None) -> Path:
    """Write the page and return its path: `out`, or DIR/report.html of one folder, or ./report.html of several.

    `figure` is a scenario file whose figure() is drawn first. No code from the folders is executed.
    """
    one = len(folders) == 1
    path = out if out is not None else folders[0] / PAGE if one else Path(PAGE)
    try:
        html = _one(folders[0], figure) if one else _several(folders, figure)
    except FedsimError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # malformed content of a folder
        named = ", ".join(map(str, folders))
        raise CorruptData(
            f"no report of {named}: its content is malformed ({type(error).__name__}: {error})"
        ) from error
    write_atomic(path, html.encode("utf-8", "replace"))
    return path


def _one(folder: Path, figure: str | None) -> str:
    if files.is_file(folder / CLAIMS) and figure is None:
        return claims(folder)
    found = load(folder)
    if figure is not None:
        _draw(figure, found, folder)
    pictures = _pictures(folder, "*.png")
    if isinstance(found, Result):
        return pages.run_page(folder.absolute().name, found, pictures)
    table = found.curve_table()
    lines = {metric: table[table["metric"] == metric] for metric in table["metric"].unique()} if len(table) else {}
    axes = list(SweepSpec.read(folder).axes)
    tuned = read_recommendation(folder)
    return pages.sweep_page(found.name, status(folder)[0], found.frame(), lines, axes, pictures, tuned)


def _several(folders: Sequence[Path], figure: str | None) -> str:
    """Return a comparison of all runs in the folders; runs of a sweep are labelled by their settings."""
    if figure is not None:
        raise InvalidInput("--figure FILE needs exactly one DIR")
    results: dict[str, Result] = {}
    for folder in folders:
        found = load(folder)
        runs = [({}, found)] if isinstance(found, Result) else found.runs
        for settings, result in runs:
            words = " ".join(f"{name}={value}" for name, value in settings.items())
            label = " ".join(filter(None, (folder.absolute().name, words)))
            results[label if label not in results else str(folder)] = result
    return pages.comparison_page(results)


def claims(folder: Path) -> str:
    """Return the page of `fedsim reproduce` from its claims.json, figures and tables."""
    rows: Any = parsed(folder / CLAIMS)
    tables = {path.parent.relative_to(folder).as_posix(): parsed(path) for path in sorted(folder.glob(f"*/*/{TABLES}"))}
    pictures = _pictures(folder, "*/*/*.png")
    return pages.claims_page("Published claims, reproduced", rows, counts(rows), pictures, tables)


def _pictures(folder: Path, pattern: str) -> dict[str, bytes]:
    found = [path for path in sorted(folder.glob(pattern)) if _is_picture(path)]
    return {path.relative_to(folder).with_suffix("").as_posix(): files.read(path) for path in found}


def _draw(figure: str, found: Result | Study, folder: Path) -> None:
    """Draw the figure() of a scenario file from the folder's results."""
    file = load_file(figure)
    if file.figure is None:
        raise InvalidInput(f"--figure {figure}: the file defines no figure(study)")
    if isinstance(found, Result):
        settings = (found.manifest.get("source") or {}).get("settings") or {}
        found = Study(file.name, ((dict(settings), found),))
    draw(found, file, folder)


def _is_picture(path: Path) -> bool:
    if not files.is_file(path):
        return False
    with files.reading(path) as file:
        return file.read(len(PNG)) == PNG


COLUMN = 15


def reproduce(
    name: str | None, *, quick: bool, full: bool, store: bool, jobs: int | None, out: Path | None, quiet: bool
) -> int:
    """Check the claims of a paper or figure (None: all); return 1 if a run failed."""
    if quick and full:
        raise InvalidInput("--quick and --full: use one of them; --quick is the default")
    form = "full" if full else "quick"
    out = out if out is not None else Path("runs") / f"reproduce-{form}"
    write, _ = outputs(quiet)
    width = text.width()

    latest = ["starting"]

    def show(progress: FigureProgress) -> None:
        title = f"{progress.figure.paper}/{progress.figure.name}"
        latest[0] = f"{title}, {text.plural(progress.runs, 'run')}"
        if progress.verdicts is None:
            write(f"{title}  {text.plural(progress.runs, 'run')}")
            return
        rows = sorted(progress.verdicts, key=lambda row: VERDICTS.index(row["verdict"]))
        lines = [line for row in rows for line in claim_lines(row, width)]
        if progress.not_drawn:
            lines += text.wrapped(f"  not drawn: {progress.not_drawn}", width, indent=4)
        write(
            *text.wrapped(f"{title}  {progress.figure.title}", width, indent=2),
            *(settings_lines(rows[0]["settings"], form, width) if rows else []),
            *lines, f"  {text.seconds(progress.real_s)}", "",
        )  # fmt: skip

    with stop_signals() as stop, heartbeat(write, lambda: latest[0]):
        rows, failures = run_figures(name, out=out, form=form, jobs=jobs, observer=show, stop=stop, store=store)
    write(*count_lines(rows), f"claims  {out / CLAIMS}", f"page    {_page(out)}")
    for failure in failures:
        write(f"failed  {failure}")
    return 1 if failures else 0


def _page(out: Path) -> str:
    """Write the page about all claims; return its path, or why it was not written."""
    try:
        return str(report([out]))
    except InvalidInput as error:
        return str(error)


def settings_lines(table: list[Row], form: str, width: int) -> list[str]:
    """Return the settings that the paper gives beside those of this form, with departures marked."""
    rows = [["  setting", "paper", form, ""]]
    for row in table:
        departure = f"departs{', ' + row['harmless'] if row['harmless'] else ''}" if row["departs"] else ""
        rows.append([f"  {row['setting']}", str(row["paper"]), str(row[form]), departure])
    return text.columns(rows, width) if table else []


def claim_lines(row: Row, width: int) -> list[str]:
    """Return the lines of a claim: verdict, quotation, our value, the published value and the reasons."""
    pad = " " * (COLUMN + 2)
    lines = [f"  {row['verdict']:{COLUMN}}{row['claim']}: \u201c{text.short_str(row['quote'], 160)}\u201d"]
    facts = {
        "stand-in": row["on_stand_in"], "stored": row["date"], "older": row["older"], "ours": row["ours"],
        "published": row["published"] or (row["criterion"] if row["ours"] else ""), "why": row["why"],
        "change": row["change"],
    }  # fmt: skip
    lines += [f"{pad}{name:11}{value}" for name, value in facts.items() if value]
    return [
        line
        for i, each in enumerate(lines)
        for line in text.wrapped(each, width, indent=COLUMN + (2 if i == 0 else 13))
    ]


def counts(rows: list[Row]) -> dict[str, int]:
    """Return the number of claims by verdict."""
    return {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}


def count_lines(rows: list[Row]) -> list[str]:
    """Return the numbers of claims by verdict, without a ratio."""
    found = ", ".join(f"{number} {verdict}" for verdict, number in counts(rows).items())
    return [f"{text.plural(len(rows), 'claim')}: {found}"]
