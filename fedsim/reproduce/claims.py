"""Figure files and their claims: `Claim`, `Finding`, functions that read studies, and the assumed system."""

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
    """The result of checking a claim: whether it holds, our value, and whether our interval is inconclusive."""

    held: bool
    ours: str
    undecided: bool = False


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper and its check.

    `judge(study)` returns a Finding, or None if this form of the figure lacks the runs that the claim needs. A claim
    with `judge=None` is not run; `why` has the reason. `expected` is "holds"; "cannot" if the paper's own recursion
    contradicts the claim (`why` begins with a code of `fedsim explain`); or "undecided" if the effect is too small.
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
    """Return the one run of a study with these settings."""
    rows = study.frame().to_dict("records")  # does not load the runs
    found = [i for i, row in enumerate(rows) if all(row.get(f"set {k}", row.get(k)) == v for k, v in settings.items())]
    if len(found) != 1:
        raise InvalidInput(f"pick({settings}): {len(found)} runs have these settings; name exactly one")
    result: Result = study.runs[found[0]][1]
    return result


def end(result: Result, metric: str, rows: int = 1) -> float:
    """Return the mean of a metric over its last `rows` evaluations, and over replicas if each has a value."""
    if metric in result.metrics:
        return float(result.metrics[metric].dropna().to_numpy()[-rows:].mean())
    return float(spread(result, metric, rows).mean())


def spread(result: Result, metric: str, rows: int = 1) -> Array:
    """Return the mean of a metric over its last `rows` evaluations per replica: (replicas,)."""
    table = result.rounds[["replica", "round", metric]].dropna()
    return np.array([own[metric].to_numpy()[-rows:].mean() for _, own in table.groupby("replica")])


def bootstrap(values: Sequence[float] | Array, draws: int = 2000, level: float = 0.95) -> tuple[float, float]:
    """Return a percentile bootstrap interval of the mean of `values`, identical on every machine."""
    own = np.asarray(values, np.float64)
    chosen = (rng.uniform(rng.keys(0, rng.Stream.DATA, client=np.arange(draws)), len(own)) * len(own)).astype(int)
    means = own[chosen].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def available(*names: str) -> str:
    """Return the first of these data sets that is available, or the last one."""
    return next((name for name in names if requirement(name) == ""), names[-1])


def requirement(name: str) -> str:
    """Return what is missing for a requirement of a figure; "" if it is available."""
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
    table: Callable[[Any], Any] | None = None  # of the study

    def sweep(self, form: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
        """Return the grid and the settings of the quick or the full form."""
        chosen = self.quick if form == "quick" else self.full
        return (
            {name: value for name, value in chosen.items() if isinstance(value, list)},
            {name: value for name, value in chosen.items() if not isinstance(value, list)},
        )

    def missing(self) -> str:
        """Return what is missing to run the figure; "" if nothing is."""
        return "; ".join(filter(None, map(requirement, self.needs)))


def figures(name: str | None = None) -> list[tuple[str, Path]]:
    """Return (paper, file) of all figures, or of those of PAPER or PAPER/FIGURE."""
    folder = scenarios_folder() / "papers"
    found = [(path.parent.name, path) for path in sorted(folder.glob("*/[!_]*.py"))]
    if name is None:
        return found
    paper, slash, stem = name.strip("/").lower().partition("/")
    chosen = [(p, f) for p, f in found if p == paper and (not slash or f.stem.lower() == stem)]
    if not chosen:
        papers = sorted({p for p, _ in found})
        known = [f.stem for p, f in found if p == paper]
        raise InvalidInput(f"reproduce {name}: no such figure; choose from {', '.join(known or papers)}")
    return chosen


def makes_claims(file: ScenarioFile) -> bool:
    """Return True for a figure file, whose `figure` needs all runs of its grid."""
    return "claims" in file.function.__globals__


def load_figure(paper: str, path: Path) -> Figure:
    """Load a figure file and check its additional names."""
    file = load_file(path)
    names = file.function.__globals__
    claims = tuple(names.get("claims", ()))
    if not claims or not all(isinstance(claim, Claim) for claim in claims):
        raise InvalidInput(f"{path}: claims is not a list of Claim(...); define at least one")
    forms = [names.get(form) for form in ("quick", "full")]
    if not all(isinstance(form, Mapping) for form in forms):
        raise InvalidInput(f"{path}: quick or full is missing; define quick = {{...}} and full = {{...}}")
    table = names.get("table")
    if table is not None and not callable(table):
        raise InvalidInput(f"{path}: table is {type(table).__name__}; make it a function of the study")
    title = (names.get("__doc__") or "").strip().split("\n")[0]
    quick, full = (dict(form) for form in forms if form is not None)
    return Figure(paper, path.stem, title, file, claims, quick, full, tuple(names.get("needs", ())), table)


LINKS = "each client on its own link: 1 Mbit/s up, 10 Mbit/s down, 20 ms"
PHONES = f"{LINKS}; a local step takes 10 ms on the median phone (lognormal, sigma 0.5)"


def system(clients: int, *, phones: bool = True) -> dict[str, Any]:
    """Return the assumed network and devices: Scenario(..., **system(50)). The papers specify none.

    No client is late or drops out, so the samples do not depend on them. Without `phones` computing takes no time.
    """
    network = topologies.star(clients, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
    return {"network": network, "devices": devices.lognormal(median_step_s=0.01, sigma=0.5) if phones else None}
