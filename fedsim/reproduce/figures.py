"""Figure files: their settings, their judges and their claims, and the assumed system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsim import devices, topologies
from fedsim.data import load
from fedsim.errors import InvalidInput
from fedsim.reproduce.claims import Claim
from fedsim.reproduce.claims import load as load_claims
from fedsim.reproduce.judging import Judge, judges_of
from fedsim.scenario_file import ScenarioFile, load_file, load_names, scenarios_folder


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


THEOREMS = "theorems"  # the file that judges the claims of a paper without a figure


@dataclass(frozen=True, eq=False)
class Figure:
    """A loaded figure file; `file` is None for a file without runs, such as `theorems.py`."""

    paper: str
    name: str
    path: Path
    names: Mapping[str, Any]  # of the module
    file: ScenarioFile | None
    claims: tuple[Claim, ...]
    judges: Mapping[str, Judge]

    def _mapping(self, name: str) -> dict[str, Any]:
        value = self.names.get(name, {})
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{self.path}: {name} is {type(value).__name__}; write {name} = {{...}}")
        return dict(value)

    @property
    def title(self) -> str:
        return (self.names.get("__doc__") or "").strip().split("\n")[0]

    @property
    def quick(self) -> dict[str, Any]:
        return self._mapping("quick")

    @property
    def full(self) -> dict[str, Any]:
        return self._mapping("full")

    @property
    def paper_settings(self) -> dict[str, Any]:
        """The settings that the paper gives."""
        return self._mapping("paper")

    @property
    def harmless(self) -> dict[str, str]:
        """The departures from the paper that change no verdict, with the reason of each."""
        return self._mapping("harmless")

    @property
    def stand_in(self) -> str:
        """The data in place of the paper's; "" with the paper's own."""
        return str(self.names.get("stand_in", ""))

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(self.names.get("needs", ()))

    @property
    def paired(self) -> tuple[str, ...]:
        """The settings whose runs share random numbers on purpose."""
        return tuple(self.names.get("paired", ()))

    @property
    def table(self) -> Callable[[Any], Any] | None:
        """The function of the study that returns the paper's table."""
        table = self.names.get("table")
        if table is not None and not callable(table):
            raise InvalidInput(f"{self.path}: table is {type(table).__name__}; make it a function of the study")
        return table

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


def is_figure(file: ScenarioFile) -> bool:
    """Return True for a figure file, whose `figure` needs all runs of its grid."""
    return {"quick", "full"} <= file.function.__globals__.keys()


def load_figure(paper: str, path: Path) -> Figure:
    """Load a figure file, and check its names against the claims of its paper."""
    if path.stem == THEOREMS:
        file, names = None, load_names(path)
    else:
        file = load_file(path)
        names = file.function.__globals__
        if missing := [form for form in ("quick", "full") if not isinstance(names.get(form), Mapping)]:
            raise InvalidInput(f"{path}: {missing[0]} is missing; define {missing[0]} = {{...}}")
    known = path.with_name("claims.toml").is_file()
    claims = tuple(c for c in load_claims(paper) if (c.figure or THEOREMS) == path.stem) if known else ()
    judges = judges_of(names)
    if unknown := [id for id in judges if id not in {claim.id for claim in claims}]:
        raise InvalidInput(f"{path}: judge({unknown[0]!r}): no claim of this figure in claims.toml has this id")
    return Figure(paper, path.stem, path, names, file, claims, judges)


LINKS = "each client on its own link: 1 Mbit/s up, 10 Mbit/s down, 20 ms"
PHONES = f"{LINKS}; a local step takes 10 ms on the median phone (lognormal, sigma 0.5)"


def system(clients: int, *, phones: bool = True) -> dict[str, Any]:
    """Return the assumed network and devices: Scenario(..., **system(50)). The papers specify none.

    No client is late or drops out, so the samples do not depend on them. Without `phones` computing takes no time.
    """
    network = topologies.star(clients, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
    return {"network": network, "devices": devices.lognormal(median_step_s=0.01, sigma=0.5) if phones else None}
