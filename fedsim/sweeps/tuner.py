"""`fs.tune`: find the setting that reaches a goal at the lowest cost, by successive halving over seeds.

Every setting is run with one seed, the best third with three, the best ninth with nine, and so on. So the seeds are
spent where settings are close. All runs belong to one sweep and stay in its folder: a second search with more values or
another goal skips them, and `fedsim report` and `fs.load` read them.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis.intervals import median_interval
from fedsim.analysis.summary import warnings, warnings_of
from fedsim.analysis.targets import AXES, goal_of, median, spent_at
from fedsim.budget import Target
from fedsim.checks import check_int, check_positive
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.protocols import Runtime
from fedsim.results import load
from fedsim.results.folder import MANIFEST
from fedsim.scenario_file import load_file
from fedsim.sweeps import Event, run_sweep
from fedsim.sweeps.execution import FAILED
from fedsim.sweeps.recommendation import FEASIBLE, NOT_REACHED, OVER_LIMIT, Recommendation, recommend
from fedsim.sweeps.spec import RunSpec, SweepSpec, make_spec
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd

REDUCTION = 3  # a third of the settings continue with three times the seeds
COSTS = (*AXES, "epsilon")
Setting = tuple[int, ...]  # the index of the value of each parameter


def tune(
    file: str | Path, grid: Mapping[str, Iterable[Any]], goal: str, minimize: str = "seconds",
    limits: Mapping[str, float] | None = None, *, out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None, seeds: int = 9, jobs: int | None = None, runtime: Runtime | None = None,
    observers: Iterable[Callable[[Event], None]] = (), log: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Recommendation:  # fmt: skip
    """Return the setting of `grid` that reaches `goal` at the lowest cost.

    `goal` is a metric and a level, "accuracy >= .83". A setting reaches it if the median over its seeds and replicas
    does. `minimize` names the cost: rounds, seconds, uplink_bits, downlink_bits, backhaul_bits, total_bits or epsilon.
    `limits` bounds costs at the time the goal is reached. The file's own budget must be large enough to reach the goal.
    Runs stay in `out`; without it they are deleted. `log` receives a line before each stage.
    """
    target = goal_of(goal)
    for name, given in (("limits", limits), ("settings", settings)):
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInput(f"tune({name}={short_repr(given)}): give a mapping of names to values")
    bounds = {
        _cost("limits", name): check_positive(f"limits[{name!r}]={{}}", limit)
        for name, limit in (limits or {}).items()
    }  # fmt: skip
    seeds = check_int("tune(seeds={})", seeds)
    if not isinstance(grid, Mapping) or not grid:
        raise InvalidInput(
            f"tune(grid={short_repr(grid)}): name at least one setting, such as {{'local_steps': [1, 10]}}"
        )
    if "seed" in grid or "seed" in (settings or {}):
        raise InvalidInput("tune(): seed is chosen by the search; set the number of seeds with seeds=")
    with ExitStack() as stack:
        folder = Path(out).absolute() if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spec = make_spec(load_file(file), {**grid, "seed": range(seeds)}, settings or {}, folder)
        tuner = Tuner(spec, folder, target, _cost("minimize", minimize), bounds)

        def execute(chosen: list[Setting], count: int) -> None:
            runs = tuple(run for setting in chosen for run in tuner.runs(setting, range(count)))
            run_sweep(
                spec, folder, jobs=jobs, resume=True, runtime=runtime, observers=tuple(observers), stop=stop, only=runs
            )

        best = _search(tuner, execute, log or (lambda line: None))
        executed = sum(len(tuner.seeds_done(setting)) for setting in tuner.all)
        found = recommend(tuner, best, executed, None if out is None else folder)
        if out is not None:
            found.save(folder)
        return found


@dataclass(frozen=True, eq=False)
class Tuner:
    """Costs and ranks of the settings of a sweep whose last axis is the seed."""

    spec: SweepSpec
    out: Path
    goal: Target
    minimize: str
    limits: Mapping[str, float]

    @cached_property
    def parameters(self) -> dict[str, list[Any]]:
        """The swept parameters and their values."""
        return {name: values for name, values in self.spec.grid.items() if name != "seed"}

    @cached_property
    def all(self) -> list[Setting]:
        """All settings, in the order of the grid."""
        return list(product(*(range(len(values)) for values in self.parameters.values())))

    @cached_property
    def seeds(self) -> int:
        """The largest number of seeds of a setting."""
        return len(self.spec.grid["seed"])

    @cached_property
    def _read(self) -> dict[str, pd.DataFrame]:
        return {}

    @cached_property
    def _position(self) -> dict[Setting, int]:
        return {setting: i for i, setting in enumerate(self.all)}

    def values(self, setting: Setting) -> dict[str, Any]:
        """Return the value of each parameter."""
        return {name: values[i] for (name, values), i in zip(self.parameters.items(), setting, strict=True)}

    def words(self, setting: Setting) -> str:
        """Return the setting as text."""
        return ", ".join(f"{name}={value}" for name, value in self.values(setting).items())

    def runs(self, setting: Setting, seeds: range) -> list[RunSpec]:
        """Return the runs of a setting with these seeds."""
        first = self._position[setting] * self.seeds
        return [self.spec.runs[first + seed] for seed in seeds]

    def seeds_done(self, setting: Setting) -> range:
        """Return the seeds whose runs have ended; they are always the first ones."""
        done = 0
        while done < self.seeds and self._trials(self.runs(setting, range(done, done + 1))[0]) is not None:
            done += 1
        return range(done)

    def shared_seeds(self, one: Setting, other: Setting) -> range:
        """Return the seeds that are done for both settings."""
        return range(min(len(self.seeds_done(one)), len(self.seeds_done(other))))

    def trials(self, setting: Setting, seeds: range | None = None) -> pd.DataFrame:
        """Return the costs of reaching the goal, one row per seed and replica; infinity for a failed run."""
        import pandas as pd

        runs = self.runs(setting, self.seeds_done(setting) if seeds is None else seeds)
        return pd.concat([t for run in runs if (t := self._trials(run)) is not None], ignore_index=True)

    def _trials(self, run: RunSpec) -> pd.DataFrame | None:
        import pandas as pd

        if run.name not in self._read:
            folder = self.out / run.name
            if (folder / MANIFEST).exists():
                result = load(folder)
                frame = spent_at(result, self.goal).assign(warnings="; ".join(warnings(result)), run=run.name)
                for name in (self.minimize, *self.limits):
                    if name not in frame:
                        raise NotRecorded(
                            f"these runs do not account for {name}; add fs.privacy.spent(delta=...) to their metrics"
                        )
            elif (folder / FAILED).exists():
                costs = dict.fromkeys((self.minimize, *self.limits), math.inf)
                facts = {"replica": -1, "reached": False, "last": math.nan, "warnings": "", "run": run.name}
                frame = pd.DataFrame([facts | costs])
            else:
                return None
            self._read[run.name] = frame
        return self._read[run.name]

    def cost(self, setting: Setting, name: str, seeds: range | None = None) -> float:
        """Return the median cost of reaching the goal over seeds and replicas."""
        return median(self.trials(setting, seeds)[name].to_numpy(np.float64))

    def warnings(self, setting: Setting) -> str:
        """Return the warnings of its runs, "" if there are none."""
        return warnings_of(self.trials(setting).groupby("run", sort=False)["warnings"].first().tolist())

    def interval(self, setting: Setting) -> tuple[float, float, float]:
        """Return the median cost and its interval."""
        return median_interval(self.trials(setting)[self.minimize].to_numpy(np.float64))

    def rank(self, setting: Setting, seeds: range | None = None) -> tuple[float, ...]:
        """Return a sort key: feasible settings by cost, then settings over a limit by their excess, then settings
        that do not reach the goal by the share of trials that do and by the distance of the last values."""
        trials = self.trials(setting, seeds)
        spent = median(trials[self.minimize].to_numpy(np.float64))
        if math.isinf(spent) or not trials["reached"].mean() >= 0.5:
            level = self.goal.above if self.goal.above is not None else self.goal.below
            distance = abs(float(trials["last"].median()) - float(level or 0.0))
            return NOT_REACHED, -float(trials["reached"].mean()), math.inf if math.isnan(distance) else distance
        exceeded = self.exceeded(setting, seeds)
        if exceeded:
            return OVER_LIMIT, max(exceeded.values()), spent
        return FEASIBLE, spent, 0.0

    def exceeded(self, setting: Setting, seeds: range | None = None) -> dict[str, float]:
        """Return the limits that a setting exceeds before it reaches the goal, with the factors."""
        used = {name: self.cost(setting, name, seeds) / limit for name, limit in self.limits.items()}
        return {name: factor for name, factor in used.items() if factor > 1}

    def ranked(self, settings: Sequence[Setting]) -> list[Setting]:
        """Return the settings, the best first."""
        return sorted(settings, key=self.rank)

    def neighbours(self, setting: Setting) -> list[Setting]:
        """Return the settings that differ in one parameter: by one step if it is a number, else by any value."""
        found = []
        for i, values in enumerate(self.parameters.values()):
            if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                order = sorted(range(len(values)), key=lambda j: values[j])
                at = order.index(setting[i])
                steps = [order[j] for j in (at - 1, at + 1) if 0 <= j < len(order)]
            else:
                steps = [j for j in range(len(values)) if j != setting[i]]
            found += [(*setting[:i], j, *setting[i + 1 :]) for j in steps]
        return found


def _search(tuner: Tuner, execute: Callable[[list[Setting], int], None], log: Callable[[str], None]) -> Setting:
    """Return the best setting after all seeds; its neighbours get some seeds, for the effect of each parameter."""
    candidates, seeds = list(tuner.all), 1
    while True:
        log(f"{len(candidates):,} setting{'s' * (len(candidates) != 1)}, {seeds} seed{'s' * (seeds != 1)} each")
        execute(candidates, seeds)
        if seeds == tuner.seeds:
            break
        candidates = tuner.ranked(candidates)[: max(1, math.ceil(len(candidates) / REDUCTION))]
        seeds = min(tuner.seeds, seeds * REDUCTION)
    best = tuner.ranked(candidates)[0]
    if tuner.rank(best)[0] == FEASIBLE:
        around, shared = tuner.neighbours(best), range(min(REDUCTION, tuner.seeds))
        log(f"{len(around):,} neighbours of the best, {len(shared)} seeds each")
        execute(around, len(shared))
        # A neighbour that was dropped early and ranks higher on the same seeds gets the other seeds.
        better = [one for one in around if tuner.rank(one, shared) < tuner.rank(best, shared)]
        if short := [one for one in better if len(tuner.seeds_done(one)) < tuner.seeds]:
            log(f"{len(short):,} of them may be better: {tuner.seeds} seeds each")
            execute(short, tuner.seeds)
        best = tuner.ranked([best, *better])[0]
    return best


def _cost(where: str, name: object) -> str:
    if name not in COSTS:
        raise InvalidInput(f"tune({where}={short_repr(name)}): choose among {', '.join(COSTS)}")
    return str(name)
