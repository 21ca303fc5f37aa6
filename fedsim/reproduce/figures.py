"""The figure files that ship with fedsim, by paper and name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import InvalidInput
from fedsim.reproduce.claims import Claim, lacks
from fedsim.scenario_file import ScenarioFile, load_file, scenarios_folder


@dataclass(frozen=True, eq=False)
class Figure:
    """A loaded figure file."""

    paper: str
    name: str
    title: str
    file: ScenarioFile
    claims: tuple[Claim, ...]
    quick: dict[str, Any]
    full: dict[str, Any]
    needs: tuple[str, ...]
    table: Callable[[Any], Any] | None = None  # of the study; what is drawn is the file's `figure`

    def plan(self, form: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        """The grid and the settings of its quick or its full form."""
        chosen = self.quick if form == "quick" else self.full
        return (
            {name: value for name, value in chosen.items() if isinstance(value, list)},
            {name: value for name, value in chosen.items() if not isinstance(value, list)},
        )

    def missing(self) -> str:
        """Why it cannot be run here, or ""."""
        return "; ".join(filter(None, map(lacks, self.needs)))


def figures(asked: str | None = None) -> list[tuple[str, Path]]:
    """(paper, file) of all figures, or of those that `asked` names: PAPER or PAPER/FIGURE."""
    folder = scenarios_folder() / "papers"
    found = [(path.parent.name, path) for path in sorted(folder.glob("*/[!_]*.py"))]
    if asked is None:
        return found
    paper, slash, name = asked.strip("/").lower().partition("/")
    chosen = [(p, f) for p, f in found if p == paper and (not slash or f.stem.lower() == name)]
    if not chosen:
        papers = sorted({p for p, _ in found})
        known = [f.stem for p, f in found if p == paper]
        raise InvalidInput(f"reproduce {asked}: no such figure; choose among {', '.join(known or papers)}")
    return chosen


def makes_claims(file: ScenarioFile) -> bool:
    """Whether it is a figure file: its `figure` is of all its settings, so that one run alone cannot be drawn."""
    return "claims" in file.function.__globals__


def load_figure(paper: str, path: Path) -> Figure:
    """Load a figure file and check what it says beyond a scenario."""
    file = load_file(path)
    said = file.function.__globals__
    claims = tuple(said.get("claims", ()))
    if not claims or not all(isinstance(claim, Claim) for claim in claims):
        raise InvalidInput(f"{path}: claims is no list of Claim(...); a figure makes at least one")
    forms = [said.get(form) for form in ("quick", "full")]
    if not all(isinstance(form, Mapping) for form in forms):
        raise InvalidInput(f"{path}: a figure has its settings in quick = {{...}} and full = {{...}}")
    table = said.get("table")
    if table is not None and not callable(table):
        raise InvalidInput(f"{path}: table is {type(table).__name__}; make it a function of the study")
    title = (said.get("__doc__") or "").strip().split("\n")[0]
    quick, full = (dict(form) for form in forms if form is not None)
    return Figure(paper, path.stem, title, file, claims, quick, full, tuple(said.get("needs", ())), table)
