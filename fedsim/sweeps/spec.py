"""What a sweep consists of: a scenario file's text, a list of values per swept setting, a name for every run.

A run is called by a hash of all that decides its bits: source, settings, data and version. So a folder of runs
can be shared, extended and taken up by anyone, and nothing that is whole is ever repeated.
"""

from __future__ import annotations

import json
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
from fedsim.results import lock, write_atomic
from fedsim.results.checksums import read_json, sealed
from fedsim.results.files import check_writable, explained
from fedsim.scenario import Scenario
from fedsim.scenario_file import ScenarioFile
from fedsim.settings import check_runs, listed
from fedsim.text import short_repr

PLAN = "sweep.json"
FORMAT, UNSEALED = "fedsim-sweep-2", "fedsim-sweep-1"
CLAIM_S = 30.0  # how long another shard may take over the same step
ATTEMPTS = 20  # combinations that may refuse to be built before the file itself is to blame


@dataclass(frozen=True)
class Order:
    """One run of a sweep."""

    run: str  # 12 hex digits, and the name of its folder
    settings: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """A sweep, as its folder remembers it."""

    name: str
    file: str
    folder: str  # where the file stood, for what it imports from there
    source: str
    grid: dict[str, list[Any]]
    settings: dict[str, Any]
    version: str
    data: str  # digest of the problem's arrays
    modules: dict[str, str] = field(default_factory=dict)  # digests of what the file imports from beside itself

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        """All runs, in the order of the grid."""
        combinations = (dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values()))
        return tuple(self._order(self.settings | chosen) for chosen in combinations)

    def shard(self, shard: tuple[int, int] | None) -> tuple[Order, ...]:
        """The runs of one of several array jobs, which divide them evenly without talking to each other."""
        if shard is None:
            return self.orders
        part, parts = shard
        if not (parts >= 1 and 0 <= part < parts):
            raise InvalidInput(f"shard {part}/{parts}: shards of {parts} are numbered 0 to {parts - 1}")
        return self.orders[part::parts]

    def _order(self, settings: dict[str, Any]) -> Order:
        facts = {"source": self.source, "settings": settings, "data": self.data, "version": self.version}
        if self.modules:
            facts["modules"] = self.modules
        return Order(_digest(facts, 6), settings)

    # --- As a file ------------------------------------------------------------------------------------

    def claim(self, out: Path, *, resume: bool, shared: bool) -> None:
        """Make `out` this sweep's folder, or find that it is; `shared` where other shards may have made it.

        One at a time, so that of two sweeps that begin together the second sees the plan of the first.
        """
        if not (out / PLAN).exists():
            _check_free(out)
        with explained(out):
            out.mkdir(parents=True, exist_ok=True)
            held = lock.take(out, wait_s=CLAIM_S)
        try:
            self._claim(out, resume, shared)
        finally:
            held.release()

    def _claim(self, out: Path, resume: bool, shared: bool) -> None:
        if not (out / PLAN).exists():
            _check_free(out)
            self._write(out)
            return
        there = Plan.read(out)
        if not (resume or shared):
            raise InvalidInput(f"{out} already holds a sweep; add --resume to go on with it, or choose another --out")
        if there.version != self.version:
            raise InvalidInput(
                f"{out} holds a sweep of fedsim {there.version}, and this is {self.version}; choose another --out"
            )
        for what in ("source", "settings"):
            if getattr(there, what) != getattr(self, what):
                raise InvalidInput(f"{out} holds a sweep with another {what}; choose another --out")
        if there.grid != self.grid:
            grown = list(there.grid) == list(self.grid) and all(
                self.grid[name][: len(values)] == values for name, values in there.grid.items()
            )
            if not (grown and resume):
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
                "add --resume to run it anew beside the old runs, or choose another --out"
            )
        if there.grid != self.grid or there.modules != self.modules:
            self._write(out)

    def _write(self, out: Path) -> None:
        write_atomic(out / PLAN, sealed(FORMAT, asdict(self)))

    @staticmethod
    def read(out: Path) -> Plan:
        """The plan of a sweep's folder."""
        try:
            facts = read_json(out / PLAN, FORMAT, (UNSEALED,))
        except FileNotFoundError:
            raise InvalidInput(f"{out} is no sweep's folder: it has no {PLAN}") from None
        except NotADirectoryError:
            raise InvalidInput(f"{out} is no folder") from None
        kinds = {f.name: dict if f.name in ("grid", "settings", "modules") else str for f in fields(Plan)}
        lists = facts.get("grid", {}).values() if isinstance(facts.get("grid"), dict) else ()
        if (
            not kinds.keys() - {"modules"} <= facts.keys() <= kinds.keys()
            or any(not isinstance(value, kinds[name]) for name, value in facts.items())
            or any(not isinstance(values, list) for values in lists)
        ):
            raise CorruptData(f"{out / PLAN} is damaged: it does not say what a sweep's plan says")
        return Plan(**facts)


def plan(file: ScenarioFile, grid: Mapping[str, Iterable[Any]] | None, settings: Mapping[str, Any]) -> Plan:
    """Check names and values, and name every run; `grid=None` takes the file's own."""
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
    first = _first(file, axes, settings)
    typed = {name: [file.typed(name, value, first) for value in values] for name, values in axes.items()}
    for name, values in typed.items():
        if len(set(map(repr, values))) < len(values):
            raise InvalidInput(f"the grid's {name} names a value twice: {', '.join(map(str, values))}")
    fixed = {name: file.typed(name, value, first) for name, value in settings.items()}
    data = _digest(described(getattr(first, "problem", first)), 8)
    where = str(file.path.parent.absolute())
    return Plan(file.name, str(file.path), where, file.source, typed, fixed, fedsim.__version__, data, file.modules)


def _first(file: ScenarioFile, axes: dict[str, list[Any]], settings: Mapping[str, Any]) -> Scenario:
    """The first combination that can be built; single ones that cannot are failed runs, not a failed sweep."""
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
