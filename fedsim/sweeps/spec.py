"""A sweep as a value: the text of a scenario file, values for each swept setting, and a name for every run.

A run's name is a hash of everything that decides its bits: code, settings, data and version. Comments, the order of
values and settings that repeat a default do not count. So a sweep's folder can hold several grids, and completed runs
are skipped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from itertools import islice, product
from pathlib import Path
from typing import Any

import fedsim
from fedsim.code_digest import syntax_digest
from fedsim.engine.manifest import described
from fedsim.errors import CorruptData, InvalidInput
from fedsim.protocols import Executable
from fedsim.results import files, lock, write_atomic
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.files import check_writable, explained
from fedsim.scenario import Scenario
from fedsim.scenario_file import ScenarioFile
from fedsim.settings import check_runs, from_text, listed, plain
from fedsim.text import short_repr

FILE = "sweep.json"
FORMAT, OLDER = "fedsim-sweep-3", ("fedsim-sweep-2", "fedsim-sweep-1")
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
    data: str  # digest of the problem's arrays with the settings `sample`
    modules: dict[str, str] = field(default_factory=dict)  # digests of the modules that the file imports
    sample: dict[str, Any] = field(default_factory=dict)
    code: str = ""  # digest of the source without comments; "" in folders of earlier versions
    defaults: dict[str, Any] = field(default_factory=dict)  # of the arguments of scenario()
    more: list[dict[str, dict[str, Any]]] = field(default_factory=list)  # other grids in the folder, with settings

    @cached_property
    def runs(self) -> tuple[RunSpec, ...]:
        """All runs, in the order of the grids; each once."""
        found: dict[str, RunSpec] = {}
        for part in self._parts:
            for values in product(*part["grid"].values()):
                run = self._run(part["settings"] | dict(zip(part["grid"], values, strict=True)))
                found.setdefault(run.name, run)
        return tuple(found.values())

    @cached_property
    def axes(self) -> dict[str, list[Any]]:
        """The swept settings with their values in all grids."""
        found: dict[str, dict[str, Any]] = {}
        for run in self.runs:
            for name, value in run.settings.items():
                found.setdefault(name, {})[str(value)] = value
        return {name: list(own.values()) for name, own in found.items() if name in self.grid or len(own) > 1}

    @property
    def _parts(self) -> list[dict[str, dict[str, Any]]]:
        return [{"grid": self.grid, "settings": self.settings}, *self.more]

    def shard(self, shard: tuple[int, int] | None) -> tuple[RunSpec, ...]:
        """Return the runs of one of several array jobs; None stands for all runs."""
        if shard is None:
            return self.runs
        part, parts = shard
        if not (parts >= 1 and 0 <= part < parts):
            raise InvalidInput(f"shard {part}/{parts}: shards of {parts} are numbered 0 to {parts - 1}")
        return self.runs[part::parts]

    def _run(self, settings: dict[str, Any]) -> RunSpec:
        given = settings
        facts: dict[str, Any] = {"source": self.source, "data": self.data, "version": self.version}
        if self.code:
            given = {name: value for name, value in settings.items() if not self._is_default(name, value)}
            facts |= {"source": self.code, "defaults": self.defaults}
        if self.modules:
            facts["modules"] = self.modules
        shown = {name: self.defaults[name] for part in self.more for name in part["grid"] if name in self.defaults}
        return RunSpec(_digest(facts | {"settings": given}, 6), shown | settings)

    def _is_default(self, name: str, value: object) -> bool:
        return name in self.defaults and json.dumps(self.defaults[name]) == json.dumps(value)

    def claim(self, out: Path, *, resume: bool, shared: bool) -> SweepSpec:
        """Store this sweep in `out`, or add it to the sweep there; `shared` if other shards may have stored it.

        Return what is stored. A lock orders sweeps that start at the same time.
        """
        self.check(out, resume=resume, shared=shared)
        with explained(out):
            files.make_parents(out)
            held = lock.take(out, wait_s=CLAIM_S)
        try:
            there = self.check(out, resume=resume, shared=shared)
            stored = self if there is None else self._added_to(there)
            if stored is not there:
                write_atomic(out / FILE, with_checksum(FORMAT, asdict(stored)))
        finally:
            held.release()
        return stored

    def check(self, out: Path, *, resume: bool, shared: bool) -> SweepSpec | None:
        """Return the sweep that is stored in `out`, None if there is none; refuse one that this cannot be added to."""
        if not os.path.lexists(out / FILE):
            _check_free(out)
            return None
        there = SweepSpec.read(out)
        if there.version != self.version or not there.code:
            raise InvalidInput(
                f"{out} holds a sweep of fedsim {there.version}, and this is {self.version}; choose another --out"
            )
        if not (resume or shared):
            raise InvalidInput(f"{out} already holds a sweep; add --resume to go on with it, or choose another --out")
        if there.code != self.code or there.defaults != self.defaults:
            raise InvalidInput(f"{out} holds a sweep with another source; choose another --out")
        if there.modules != self.modules:
            if resume:
                return there
            names = {*there.modules, *self.modules}
            changed = sorted(name for name in names if there.modules.get(name) != self.modules.get(name))
            raise InvalidInput(
                f"{out} holds a sweep with another version of {', '.join(changed)}, which {self.file} imports; "
                "add --resume to run it again beside the old runs, or choose another --out"
            )
        if there.data != self.data:
            raise InvalidInput(f"{out} holds a sweep over other data; choose another --out")
        known = {run.name for run in there.runs}
        new = [run for run in self.runs if run.name not in known]
        if len(new) == len(self.runs):
            raise InvalidInput(
                f"{out} holds a sweep of another grid and other settings: none of these {len(new):,} runs is in it; "
                "repeat one of its values, or choose another --out"
            )
        if new and not resume:
            raise InvalidInput(
                f"{out} holds a sweep of another grid; add --resume to add {len(new):,} runs to it, or choose another "
                "--out"
            )
        return there

    def _added_to(self, there: SweepSpec) -> SweepSpec:
        """Return the sweep `there` with the runs of this one."""
        if there.modules != self.modules:
            return self
        known, own = {run.name for run in there.runs}, {run.name for run in self.runs}
        if own <= known:
            return there
        return self if known <= own else replace(there, more=[*there.more, *self._parts])

    @staticmethod
    def read(out: Path) -> SweepSpec:
        """Read the sweep that is stored in a folder."""
        try:
            facts = read_json(out / FILE, FORMAT, OLDER)
        except FileNotFoundError:
            raise InvalidInput(f"{out} is no sweep's folder: it has no {FILE}") from None
        except NotADirectoryError:
            raise InvalidInput(f"{out} is no folder") from None
        kinds = {f.name: _KINDS.get(str(f.type).partition("[")[0], str) for f in fields(SweepSpec)}
        needed = {f.name for f in fields(SweepSpec) if f.default is MISSING and f.default_factory is MISSING}
        damaged = CorruptData(f"{out / FILE} is damaged: it lacks fields of a sweep, or has others")
        if not needed <= facts.keys() <= kinds.keys():
            raise damaged
        if any(not isinstance(value, kinds[name]) for name, value in facts.items()):
            raise damaged
        spec = SweepSpec(**facts)
        for part in spec._parts:
            if not isinstance(part, dict) or part.keys() != {"grid", "settings"}:
                raise damaged
            if not all(isinstance(value, dict) for value in part.values()):
                raise damaged
            if not all(isinstance(values, list) for values in part["grid"].values()):
                raise damaged
            try:
                check_runs(part["grid"])
            except InvalidInput as error:
                raise CorruptData(f"{out / FILE} is damaged: {error}") from None
        return spec


_KINDS = {"str": str, "dict": dict, "list": list}


def make_spec(
    file: ScenarioFile, grid: Mapping[str, Iterable[Any]] | None, settings: Mapping[str, Any], out: Path | None = None
) -> SweepSpec:  # fmt: skip
    """Check names and values and return the sweep; `grid=None` stands for the file's own grid.

    `out` is the folder of the sweep. If it holds one of the same code, the digests of the data are of the same run.
    """
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
    code, there = syntax_digest(file.source), _stored(out)
    if there is not None and there.code == code:
        sample, first = there.sample, file.build(there.sample)
    else:
        sample, first = _first_scenario(file, axes, settings)
        sample = {name: file.typed(name, value, first) for name, value in sample.items()}
    typed = {name: [file.typed(name, value, first) for value in values] for name, values in axes.items()}
    for name, values in typed.items():
        if len(set(map(repr, values))) < len(values):
            raise InvalidInput(f"the grid's {name} names a value twice: {', '.join(map(str, values))}")
    fixed = {name: file.typed(name, value, first) for name, value in settings.items()}
    data = _digest(described(first if isinstance(first, Executable) else first.problem), 8)
    folder = str(file.path.parent.absolute())
    return SweepSpec(
        file.name, str(file.path), folder, file.source, typed, fixed, fedsim.__version__, data, file.modules, sample,
        code, _defaults(file),
    )  # fmt: skip


def _stored(out: Path | None) -> SweepSpec | None:
    return SweepSpec.read(out) if out is not None and os.path.lexists(out / FILE) else None


def _defaults(file: ScenarioFile) -> dict[str, Any]:
    """Return the defaults of the arguments of scenario() that JSON can store."""
    found = {}
    for parameter in file.parameters:
        if not parameter.required:
            with suppress(InvalidInput):
                value = from_text(parameter.name, parameter.default, parameter.annotation)
                found[parameter.name] = plain(parameter.name, value)
    return found


def _first_scenario(
    file: ScenarioFile, axes: dict[str, list[Any]], settings: Mapping[str, Any]
) -> tuple[dict[str, Any], Scenario]:  # fmt: skip
    """Return and build the first valid combination; an invalid one is a failed run and does not stop the sweep."""
    refused: InvalidInput | None = None
    for values in islice(product(*axes.values()), ATTEMPTS):
        given = {**settings, **dict(zip(axes, values, strict=True))}
        try:
            return given, file.build(given)
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
