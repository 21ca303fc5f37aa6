"""What a paper claims, as a predicate of a study; and a few readers of studies that such predicates share.

The figure files that ship with fedsim, by paper and name.

The system that the papers' figures run on: they give none, so one is assumed for all, and the page says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim import devices, rng, topologies
from fedsim.arrays import Array
from fedsim.checks import check_choice
from fedsim.data import load
from fedsim.errors import InvalidInput
from fedsim.results import Result
from fedsim.scenario_file import ScenarioFile, load_file, scenarios_folder

if TYPE_CHECKING:
    from fedsim.sweeps.study import Study

Expected = Literal["holds", "cannot", "undecided"]


@dataclass(frozen=True)
class Finding:
    """What a study says of a claim: whether it holds, our figure, and whether our interval covers both answers."""

    held: bool
    ours: str
    undecided: bool = False


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper. `judge` None is a claim that is not run, and `why` says why; a judge that returns None
    says that this form of the figure does not have the runs that the claim is about.

    `expected` is "holds", or "cannot" where the paper's own recursion contradicts it (`why` has the code of
    `fedsim explain`), or "undecided" where its size is below what can be told apart.
    """

    claim: str
    judge: Callable[[Any], Finding | None] | None
    published: str
    why: str
    expected: Expected = "holds"

    def __post_init__(self) -> None:
        remedy = "it must be 'holds', 'cannot' or 'undecided'"
        check_choice("Claim(expected={!r})", self.expected, ("holds", "cannot", "undecided"), remedy)


def pick(study: Study, **settings: object) -> Result:
    """The one run of a study with these settings."""
    rows = study.frame().to_dict("records")  # the settings alone: a folder's runs are read when looked at
    found = [i for i, row in enumerate(rows) if all(row.get(f"set {k}", row.get(k)) == v for k, v in settings.items())]
    if len(found) != 1:
        raise InvalidInput(f"pick({settings}): {len(found)} runs have these settings; name exactly one")
    result: Result = study.runs[found[0]][1]
    return result


def end(result: Result, metric: str, rows: int = 1) -> float:
    """A metric at the end: over its last so many evaluations, and over replicas where each has its own."""
    if metric in result.metrics:
        return float(result.metrics[metric].dropna().to_numpy()[-rows:].mean())
    return float(spread(result, metric, rows).mean())


def spread(result: Result, metric: str, rows: int = 1) -> Array:
    """The same of every replica, (replicas,)."""
    table = result.rounds[["replica", "round", metric]].dropna()
    return np.array([own[metric].to_numpy()[-rows:].mean() for _, own in table.groupby("replica")])


def bootstrap(values: Sequence[float] | Array, draws: int = 2000, level: float = 0.95) -> tuple[float, float]:
    """A percentile interval of the mean of `values`, the same on every machine."""
    own = np.asarray(values, np.float64)
    chosen = (rng.uniform(rng.keys(0, rng.Stream.DATA, client=np.arange(draws)), len(own)) * len(own)).astype(int)
    means = own[chosen].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def available(*names: str) -> str:
    """The first of these data sets that is there; the last where none is."""
    return next((name for name in names if lacks(name) == ""), names[-1])


def lacks(name: str) -> str:
    """Why something that a figure needs is not there, or ""."""
    if name == "torch":
        return "" if find_spec("torch") else "needs torch: pip install 'fedsim-systems[torch]'"
    try:
        load(name)
    except InvalidInput:
        return f"needs the data set {name}, in the folder that FEDSIM_DATA names"
    return ""


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


LINKS = "each client on a link of its own: 1 Mbit/s up, 10 Mbit/s down, 20 ms"
PHONES = f"{LINKS}; a local step takes 10 ms on the median phone (lognormal, sigma 0.5)"


def system(clients: int, *, phones: bool = True) -> dict[str, Any]:
    """Fields of a scenario: Scenario(..., **system(50)). What is learnt does not depend on them: nobody is lost.

    Without `phones` computing takes no time: rounds that are all alike are then simulated many at a go.
    """
    network = topologies.star(clients, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
    return {"network": network, "devices": devices.lognormal(median_step_s=0.01, sigma=0.5) if phones else None}
