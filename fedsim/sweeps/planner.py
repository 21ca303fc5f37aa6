"""`fs.plan`: which settings reach a goal for the least, by successive halving over seeds.

All settings are run with one seed, the best third of them with three, the best ninth with nine, and so on, so that the
seeds are spent where the decision is close. Every run is one of a sweep's and stays in its folder: asked again, or with
more values or another goal, what is there is not repeated, and `fedsim report` and `fs.load` read it.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedsim.analysis.spending import AXES, goal_of
from fedsim.errors import InvalidInput, positive, quoted, whole
from fedsim.protocols import Runtime
from fedsim.scenario_file import load_file
from fedsim.sweeps import Event, carry_out
from fedsim.sweeps.advice import Advice, advise
from fedsim.sweeps.plan import plan as planned
from fedsim.sweeps.race import FEASIBLE, Race, Setting

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
            raise InvalidInput(f"plan({name}={quoted(given)}): give a mapping of names to values")
    limits = {
        _cost("within", name): positive(f"within[{name!r}]={{}}", limit) for name, limit in (within or {}).items()
    }
    seeds = whole("plan(seeds={})", seeds)
    if not isinstance(vary, Mapping) or not vary:
        raise InvalidInput(f"plan(vary={quoted(vary)}): name at least one setting, such as {{'local_steps': [1, 10]}}")
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
        raise InvalidInput(f"plan({where}={quoted(name)}): choose among {', '.join(COSTS)}")
    return str(name)
