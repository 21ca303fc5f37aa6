"""When rounds may be taken several at a go, and how many: what every way of keeping time that does so asks first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array
from fedsim.old_engine.world import World
from fedsim.protocols import Visitors

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

NUMBERS = 1_000_000  # updated in one stretch: what it draws stays in the caches, and signals soon get their turn
LARGE = 200_000  # updated in a round: threads gain more there than rounds taken one by one cost
SOON = 100_000  # updated in the first stretches, after round 1, of a run that is watched: it is seen to move


def learns_many(run: Run) -> bool:
    """Whether the algorithm takes several rounds at a go here, and nobody has to look at each of them."""
    return False  # the engine that replaces this one learns blocks of rounds


def all_answer(world: World) -> bool:
    """Whether everybody is asked and answers in every round, so that what is learnt may be ahead of the clock."""
    sure = world.devices is None or (world.devices.timeless and world.devices.reliable)
    return sure and world.always_on and world.policy.always and world.policy.waits


def alike(run: Run, number: int, active: Array) -> int:
    """How many rounds from here on need no look in between."""
    world = run.world
    if len(active) < len(world.replicas) or (run.checkpoints.asked and run.checkpoints.stopping):
        return 1
    record, rounds = world.scenario.record, world.budget.rounds
    numbers = int(len(active) * _asked(world) * world.problem.dim)  # updated in a round

    def until(every: int | None) -> int:
        return NUMBERS if every is None else every - number % every

    return min(
        max(1, NUMBERS // numbers),
        NUMBERS if rounds is None else int(rounds) - number,
        until(world.scenario.evaluate_every if run.evaluator.metrics and not run.evaluates_later() else None),
        until(record.rounds_every if record.rounds_every > 1 else None),
        until(run.checkpoints.rounds),
        (max(number + 1, SOON // numbers) if number else 1) if run.observers else NUMBERS,
    )


def _asked(world: World) -> int:
    """How many clients are asked in a round, at the most."""
    return world.population if world.policy.size is None else min(world.policy.size, world.population)


def _better_on_threads(world: World) -> bool:
    """Whether a round has work for several threads that replicas do not give them: a stretch is one task a replica."""
    work = float(np.max(world.algorithm.work(Visitors(np.arange(1)))))
    return len(world.replicas) == 1 and _asked(world) * world.problem.dim * work >= LARGE
