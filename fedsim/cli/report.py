"""`fedsim report`: a page about each folder, beside what it is about. Nothing from the folder is executed."""

from __future__ import annotations

from pathlib import Path

from fedsim.batch import load
from fedsim.batch.plan import Plan
from fedsim.cli.run import draw
from fedsim.cli.sweep import status
from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.results import Result, write_atomic
from fedsim.results.state import tidy
from fedsim.scenario_file import load_file
from fedsim.study import Study

PNG = b"\x89PNG\r\n\x1a\n"


def report(folder: Path, figure: str | None = None) -> Path:
    """Write DIR/report.html and return its path; `figure` names a scenario file whose figure is drawn first."""
    from fedsim.analysis import report as pages

    if folder.is_dir():
        tidy(folder)
    found = load(folder)
    if figure is not None:
        _draw(figure, found, folder)
    pictures = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.png")) if _is_picture(path)}
    try:
        if isinstance(found, Result):
            html = pages.run_page(folder.absolute().name, found, pictures)
        else:
            table = found.curve_table()
            lines = {metric: found.curve(metric) for metric in table["metric"].unique()} if len(table) else {}
            axes = list(Plan.read(folder).grid)
            html = pages.sweep_page(found.name, status(folder)[0], found.frame(), lines, axes, pictures)
    except FedsimError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # only a folder that says odd things
        raise CorruptData(f"{folder} cannot be reported on ({type(error).__name__}: {error})") from error
    path = folder / "report.html"
    write_atomic(path, html.encode("utf-8", "replace"))
    return path


def _draw(figure: str, found: Result | Study, folder: Path) -> None:
    """The figure of a file that the user names, from the folder's results."""
    file = load_file(figure)
    if file.figure is None:
        raise InvalidInput(f"--figure {figure}: that file defines no figure(study)")
    if isinstance(found, Result):
        settings = (found.manifest.get("source") or {}).get("settings") or {}
        found = Study(file.name, ((dict(settings), found),))
    draw(found, file, folder)


def _is_picture(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(PNG)) == PNG
