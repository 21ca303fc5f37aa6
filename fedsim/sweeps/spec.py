"""A sweep as a value: the text of a scenario file, values for each swept setting, and a name for every run.

A run's name is a hash of everything that decides its bits: source, settings, data and version. So sweeps can share and
extend a folder, and completed runs are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from itertools import islice, product
from pathlib import Path
from typing import Any

import fedsim
from fedsim.engine.manifest import described
from fedsim.errors import CorruptData, InvalidInput
from fedsim.protocols import Executable
from fedsim.results import files, lock, write_atomic
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.files import check_writable, explained
from fedsim.scenario import Scenario
from fedsim.scenario_file import ScenarioFile
from fedsim.settings import check_runs, listed
from fedsim.text import short_repr

FILE = "sweep.json"
FORMAT, OLDER = "fedsim-sweep-2", ("fedsim-sweep-1",)
NAME = re.compile(r"[0-9a-f]{12}")  # of a run
CLAIM_S = 30.0  # how long to wait for another shard that claims the folder
ATTEMPTS = 20  # combinations that may be refused before the file itself is


@dataclass(frozen=True)
class RunSpec:
    """One run of a sweep."""

    name: str  # 12 hex digits, also the name of its folder
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class SweepSpec:
    """A sweep as it is stored in its folder."""

    name: str
    file: str
    folder: str  # of the file, for its imports
    source: str
    grid: dict[str, list[Any]]
    settings: dict[str, Any]
    version: str
    data: str  # digest of the problem's arrays
    modules: dict[str, str] = field(default_factory=dict)  # digests of the modules that the file imports

    @cached_property
    def runs(self) -> tuple[RunSpec, ...]:
        """All runs, in the order of the grid."""
        combinations = (dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values()))
        return tuple(self._run(self.settings | chosen) for chosen in combinations)

    def shard(self, shard: tuple[int, int] | None) -> tuple[RunSpec, ...]:
        """Return the runs of one of several array jobs; None stands for all runs."""
        if shard is None:
            return self.runs
        part, parts = shard
        if not (parts >= 1 and 0 <= part < parts):
            raise InvalidInput(f"shard {part}/{parts}: shards of {parts} are numbered 0 to {parts - 1}")
        return self.runs[part::parts]

    def _run(self, settings: dict[str, Any]) -> RunSpec:
        facts = {"source": self.source, "settings": settings, "data": self.data, "version": self.version}
        if self.modules:
            facts["modules"] = self.modules
        return RunSpec(_digest(facts, 6), settings)

    def claim(self, out: Path, *, resume: bool, shared: bool) -> None:
        """Store this sweep in `out`, or check that it is stored there; `shared` if other shards may have done so.

        A lock orders sweeps that start at the same time.
        """
        if not (out / FILE).exists():
            _check_free(out)
        with explained(out):
            files.make_parents(out)
            held = lock.take(out, wait_s=CLAIM_S)
        try:
            self._claim(out, resume, shared)
        finally:
            held.release()

    def _claim(self, out: Path, resume: bool, shared: bool) -> None:
        if not (out / FILE).exists():
            _check_free(out)
            self._write(out)
            return
        there = SweepSpec.read(out)
        if there.version != self.version:
            raise InvalidInput(
                f"{out} holds a sweep of fedsim {there.version}, and this is {self.version}; choose another --out"
            )
        if not (resume or shared):
            raise InvalidInput(f"{out} already holds a sweep; add --resume to go on with it, or choose another --out")
        for name in ("source", "settings"):
            if getattr(there, name) != getattr(self, name):
                raise InvalidInput(f"{out} holds a sweep with another {name}; choose another --out")
        if there.grid != self.grid:
            extends = list(there.grid) == list(self.grid) and all(
                self.grid[name][: len(values)] == values for name, values in there.grid.items()
            )
            if not (extends and resume):
                raise InvalidInput(
                    f"{out} holds a sweep of another grid; keep its axes, put new values last, or choose another --out"
                )
        if there.data != self.data:
            raise InvalidInput(f"{out} holds a sweep over other data; choose another --out")
        if there.modules != self.modules and not resume:
            names = {*there.modules, *self.modules}
            changed = sorted(name for name in names if there.modules.get(name) != self.modules.get(name))
            raise InvalidInput(
                f"{out} holds a sweep with another version of {', '.join(changed)}, which {self.file} imports; "
                "add --resume to run it again beside the old runs, or choose another --out"
            )
        if there.grid != self.grid or there.modules != self.modules:
            self._write(out)

    def _write(self, out: Path) -> None:
        write_atomic(out / FILE, with_checksum(FORMAT, asdict(self)))

    @staticmethod
    def read(out: Path) -> SweepSpec:
        """Read the sweep that is stored in a folder."""
        try:
            facts = read_json(out / FILE, FORMAT, OLDER)
        except FileNotFoundError:
            raise InvalidInput(f"{out} is no sweep's folder: it has no {FILE}") from None
        except NotADirectoryError:
            raise InvalidInput(f"{out} is no folder") from None
        kinds = {f.name: dict if f.name in ("grid", "settings", "modules") else str for f in fields(SweepSpec)}
        axes = facts.get("grid", {}).values() if isinstance(facts.get("grid"), dict) else ()
        if (
            not kinds.keys() - {"modules"} <= facts.keys() <= kinds.keys()
            or any(not isinstance(value, kinds[name]) for name, value in facts.items())
            or any(not isinstance(values, list) for values in axes)
        ):
            raise CorruptData(f"{out / FILE} is damaged: it lacks fields of a sweep, or has others")
        return SweepSpec(**facts)


def make_spec(file: ScenarioFile, grid: Mapping[str, Iterable[Any]] | None, settings: Mapping[str, Any]) -> SweepSpec:
    """Check names and values and return the sweep; `grid=None` stands for the file's own grid."""
    if grid is None:
        grid = {name: values for name, values in file.grid.items() if name not in settings}
    if not isinstance(grid, Mapping) or not isinstance(settings, Mapping):
        raise InvalidInput(
            f"grid={short_repr(grid)}, settings={short_repr(settings)}: give mappings of names to values"
        )
    axes = {str(name): listed(f"grid[{short_repr(name)}]", values) for name, values in grid.items()}
    check_runs(axes)
    if twice := sorted(set(axes) & set(settings)):
        raise InvalidInput(f"{twice[0]} is set and swept; choose one of --set and --grid")
    first = _first_scenario(file, axes, settings)
    typed = {name: [file.typed(name, value, first) for value in values] for name, values in axes.items()}
    for name, values in typed.items():
        if len(set(map(repr, values))) < len(values):
            raise InvalidInput(f"the grid's {name} names a value twice: {', '.join(map(str, values))}")
    fixed = {name: file.typed(name, value, first) for name, value in settings.items()}
    data = _digest(described(first if isinstance(first, Executable) else first.problem), 8)
    folder = str(file.path.parent.absolute())
    return SweepSpec(
        file.name, str(file.path), folder, file.source, typed, fixed, fedsim.__version__, data, file.modules
    )


def _first_scenario(file: ScenarioFile, axes: dict[str, list[Any]], settings: Mapping[str, Any]) -> Scenario:
    """Build the first valid combination; an invalid one is a failed run and does not stop the sweep."""
    refused: InvalidInput | None = None
    for values in islice(product(*axes.values()), ATTEMPTS):
        try:
            return file.build({**settings, **dict(zip(axes, values, strict=True))})
        except InvalidInput as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _check_free(out: Path) -> None:
    if not out.exists():
        check_writable(out)
    elif not out.is_dir() or any(p for p in out.iterdir() if not p.name.startswith(".")):
        raise InvalidInput(f"{out} is no sweep's folder; choose another --out")


def _digest(facts: object, size: int) -> str:
    return blake2b(json.dumps(facts, sort_keys=True, default=str).encode(), digest_size=size).hexdigest()
