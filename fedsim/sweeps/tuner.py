"""The settings that a planner chooses among, what their runs cost so far, and which of them is ahead.

`fs.plan`: which settings reach a goal for the least, by successive halving over seeds.

All settings are run with one seed, the best third of them with three, the best ninth with nine, and so on, so that the
seeds are spent where the decision is close. Every run is one of a sweep's and stays in its folder: asked again, or with
more values or another goal, what is there is not repeated, and `fedsim report` and `fs.load` read it.
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
from fedsim.scenario_file import load_file
from fedsim.sweeps import Event, carry_out
from fedsim.sweeps.recommendation import FEASIBLE, NOT_REACHED, TOO_DEAR, Advice, Setting, advise
from fedsim.sweeps.spec import Order, Plan
from fedsim.sweeps.spec import plan as planned
from fedsim.text import short_repr

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Race:
    """A plan whose last axis is the seed, the folder of its runs, and what is asked of them."""

    what: Plan
    out: Path
    goal: Target
    spend: str
    within: Mapping[str, float]

    @cached_property
    def knobs(self) -> dict[str, list[Any]]:
        return {name: values for name, values in self.what.grid.items() if name != "seed"}

    @cached_property
    def all(self) -> list[Setting]:
        return list(product(*(range(len(values)) for values in self.knobs.values())))

    @cached_property
    def seeds(self) -> int:
        return len(self.what.grid["seed"])

    @cached_property
    def _known(self) -> dict[str, pd.DataFrame]:
        return {}

    @cached_property
    def _place(self) -> dict[Setting, int]:
        return {setting: i for i, setting in enumerate(self.all)}

    def values(self, setting: Setting) -> dict[str, Any]:
        return {name: values[i] for (name, values), i in zip(self.knobs.items(), setting, strict=True)}

    def words(self, setting: Setting) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values(setting).items())

    def orders(self, setting: Setting, seeds: range) -> list[Order]:
        first = self._place[setting] * self.seeds
        return [self.what.orders[first + seed] for seed in seeds]

    def seen(self, setting: Setting) -> range:
        """The seeds that have been run; they are always the first ones."""
        done = 0
        while done < self.seeds and self._trials(self.orders(setting, range(done, done + 1))[0]) is not None:
            done += 1
        return range(done)

    def trials(self, setting: Setting, seeds: range | None = None) -> pd.DataFrame:
        """What every replica of these runs spent to get there; a failed run never does."""
        import pandas as pd

        orders = self.orders(setting, self.seen(setting) if seeds is None else seeds)
        return pd.concat([t for order in orders if (t := self._trials(order)) is not None], ignore_index=True)

    def _trials(self, order: Order) -> pd.DataFrame | None:
        import pandas as pd

        if order.run not in self._known:
            folder = self.out / order.run
            if (folder / "manifest.json").exists():
                result = load(folder)
                frame = spent_at(result, self.goal).assign(warnings="; ".join(warnings(result)), run=order.run)
                for name in (self.spend, *self.within):
                    if name not in frame:
                        raise NotRecorded(
                            f"these runs do not account for {name}; add fs.privacy.spent(delta=...) to their metrics"
                        )
            elif (folder / "failed.json").exists():
                costs = dict.fromkeys((self.spend, *self.within), math.inf)
                facts = {"replica": -1, "reached": False, "last": math.nan, "warnings": "", "run": order.run}
                frame = pd.DataFrame([facts | costs])
            else:
                return None
            self._known[order.run] = frame
        return self._known[order.run]

    def cost(self, setting: Setting, name: str, seeds: range | None = None) -> float:
        """The median over seeds and replicas of what had been spent at the goal."""
        return median(self.trials(setting, seeds)[name].to_numpy(np.float64))

    def warnings(self, setting: Setting) -> str:
        """The warnings of its runs, "" for none."""
        return warnings_of(self.trials(setting).groupby("run", sort=False)["warnings"].first().tolist())

    def interval(self, setting: Setting) -> tuple[float, float, float]:
        return median_interval(self.trials(setting)[self.spend].to_numpy(np.float64))

    def standing(self, setting: Setting, seeds: range | None = None) -> tuple[float, ...]:
        """A key to sort by: those that keep within all limits by what they spend, then by how far they overspend, then
        those that do not reach the goal by how many trials do and how near the others end."""
        trials = self.trials(setting, seeds)
        spent = median(trials[self.spend].to_numpy(np.float64))
        if math.isinf(spent) or not trials["reached"].mean() >= 0.5:
            level = self.goal.above if self.goal.above is not None else self.goal.below
            off = abs(float(trials["last"].median()) - float(level or 0.0))
            return NOT_REACHED, -float(trials["reached"].mean()), math.inf if math.isnan(off) else off
        over = self.over(setting, seeds)
        if over:
            return TOO_DEAR, max(over.values()), spent
        return FEASIBLE, spent, 0.0

    def over(self, setting: Setting, seeds: range | None = None) -> dict[str, float]:
        """The limits that a setting exceeds on its way to the goal, and by what factor."""
        used = {name: self.cost(setting, name, seeds) / limit for name, limit in self.within.items()}
        return {name: factor for name, factor in used.items() if factor > 1}

    def ranked(self, settings: Sequence[Setting]) -> list[Setting]:
        return sorted(settings, key=self.standing)

    def neighbours(self, setting: Setting) -> list[Setting]:
        """The settings one step of one knob away: the next smaller and larger value, or any other of one with words."""
        found = []
        for i, values in enumerate(self.knobs.values()):
            if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
                order = sorted(range(len(values)), key=lambda j: values[j])
                at = order.index(setting[i])
                steps = [order[j] for j in (at - 1, at + 1) if 0 <= j < len(order)]
            else:
                steps = [j for j in range(len(values)) if j != setting[i]]
            found += [(*setting[:i], j, *setting[i + 1 :]) for j in steps]
        return found


KEEP = 3  # one in so many settings goes on to so many times the seeds
COSTS = (*AXES, "epsilon")


def plan(
    file: str | Path, vary: Mapping[str, Iterable[Any]], goal: str, spend: str = "seconds",
    within: Mapping[str, float] | None = None, *, out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None, seeds: int = 9, jobs: int | None = None, runtime: Runtime | None = None,
    observers: Iterable[Callable[[Event], None]] = (), say: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Advice:  # fmt: skip
    """The setting among all combinations of `vary` that reaches `goal` for the least `spend`.

    `goal` is a metric and a level, "accuracy >= .83"; a setting reaches it if the median over its seeds and replicas
    does. `spend` and the keys of `within`, which limits what may have been spent by then, are of rounds, seconds,
    uplink_bits, downlink_bits, total_bits and epsilon. The file's own budget must leave room to get there. Runs are
    kept in `out`; without it they are thrown away. `say` hears a line before each stage.
    """
    target = goal_of(goal)
    for name, given in (("within", within), ("settings", settings)):
        if given is not None and not isinstance(given, Mapping):
            raise InvalidInput(f"plan({name}={short_repr(given)}): give a mapping of names to values")
    limits = {
        _cost("within", name): check_positive(f"within[{name!r}]={{}}", limit) for name, limit in (within or {}).items()
    }
    seeds = check_int("plan(seeds={})", seeds)
    if not isinstance(vary, Mapping) or not vary:
        raise InvalidInput(
            f"plan(vary={short_repr(vary)}): name at least one setting, such as {{'local_steps': [1, 10]}}"
        )
    if "seed" in vary or "seed" in (settings or {}):
        raise InvalidInput("plan(): the planner chooses the seeds; say how many with seeds=")
    grid = {**vary, "seed": range(seeds)}
    what = planned(load_file(file), grid, settings or {})
    with ExitStack() as stack:
        folder = Path(out).absolute() if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        race = Race(what, folder, target, _cost("spend", spend), limits)

        def run(wanted: list[Setting], upto: int) -> None:
            orders = tuple(order for setting in wanted for order in race.orders(setting, range(upto)))
            carry_out(
                what, folder, jobs=jobs, resume=True, runtime=runtime, observers=tuple(observers), stop=stop,
                orders=orders,
            )  # fmt: skip

        best = _halve(race, run, say or (lambda line: None))
        used = sum(len(race.seen(setting)) for setting in race.all)
        advice = advise(race, best, used, None if out is None else folder)
        if out is not None:
            advice.save(folder)
        return advice


def _halve(race: Race, run: Callable[[list[Setting], int], None], say: Callable[[str], None]) -> Setting:
    """The winner, once it has had all seeds; its neighbours get some, to tell what knobs are worth."""
    alive, seeds = list(race.all), 1
    while True:
        say(f"{len(alive):,} setting{'s' * (len(alive) != 1)}, {seeds} seed{'s' * (seeds != 1)} each")
        run(alive, seeds)
        if seeds == race.seeds:
            break
        alive = race.ranked(alive)[: max(1, math.ceil(len(alive) / KEEP))]
        seeds = min(race.seeds, seeds * KEEP)
    best = race.ranked(alive)[0]
    if race.standing(best)[0] == FEASIBLE:
        around = race.neighbours(best)
        say(f"{len(around):,} neighbours of the best, {min(KEEP, race.seeds)} seeds each")
        run(around, min(KEEP, race.seeds))
        # A neighbour that was cut too early and looks better on the same seeds gets the rest of them.
        shared = range(min(KEEP, race.seeds))
        ahead = [one for one in around if race.standing(one, shared) < race.standing(best, shared)]
        if ahead := [one for one in ahead if len(race.seen(one)) < race.seeds]:
            say(f"{len(ahead):,} of them may be better: {race.seeds} seeds each")
            run(ahead, race.seeds)
            best = race.ranked([best, *ahead])[0]
    return best


def _cost(where: str, name: object) -> str:
    if name not in COSTS:
        raise InvalidInput(f"plan({where}={short_repr(name)}): choose among {', '.join(COSTS)}")
    return str(name)
