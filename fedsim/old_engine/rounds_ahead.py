"""Many rounds in closed form whose cohorts the seed alone decides: all is drawn at once, then timed round after round.

A round opens when the one before has closed, so times are still summed in order; but no policy, device or server is
asked in between. Every number is the one that the rounds taken one by one give.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np

from fedsim.arrays import Array, Numbers
from fedsim.old_engine import arrivals
from fedsim.old_engine.arrivals import VisitDraws
from fedsim.old_engine.round import Cohort, Ended, Stretch, Visits, columns
from fedsim.old_engine.selection import Roster, cohort
from fedsim.old_engine.world import World
from fedsim.protocols import View
from fedsim.rng import Stream


def suits(world: World) -> bool:
    """Whether who is asked, and what happens to a visit, depend on the seed and the round's number alone."""
    timeless = world.devices is None or world.devices.timeless
    return timeless and world.policy.batched and world.policy.as_arrays() is not None and not world.reports_loss


def stretch(
    world: World, number: int, active: Array, opened_s: Array, count: int, bits: tuple[int, Numbers], copy_s: float
) -> Stretch | None:
    """So many rounds, or fewer where one would meet the copies of the broadcast before it; None: not even two.

    `bits` are those of a message down, and of one or of each up.
    """
    down, up = bits
    position, numbers = np.tile(active, count), np.repeat(np.arange(number, number + count), len(active))
    who = _select(world, number, numbers, position)
    drawn = world.visit_draws(np.zeros(len(who.client)), position[who.row], who.client, numbers[who.row])
    timed = _all_arrive if world.policy.waits and not drawn.phase.any() else _some_arrive
    with np.errstate(over="ignore", invalid="ignore"):  # after a round that never closes: taken singly, it is refused
        times, ended = timed(world, opened_s, who, count, down, up, drawn)
        opened, closed = times[:-1].ravel(), times[1:].ravel()
        made = columns(opened, closed, who.sizes, who.starts, ended, world.copied(who) * down)
    visits = Visits(ended, who.starts[len(active) :: len(active)], None)
    shaped = {name: column.reshape(count, len(active)) for name, column in made.items()}
    whole = Stretch(number, active, shaped, 0, visits=visits, who=who)
    until = _meeting(times, copy_s)
    return whole.first(until) if until > 1 else None


def _select(world: World, number: int, numbers: Array, position: Array) -> Cohort:
    rng = world.draws(Stream.SELECT, position, round=numbers)
    roster = Roster(world.weights, number, len(position), rng, lambda: world.cumulative, world.problem.sizes)
    return cohort(world.policy.select(cast(View, roster), rng), world.population)


def _meeting(times: Array, copy_s: float) -> int:
    """How many rounds open after the copies of the one before are through."""
    count = len(times) - 1
    if copy_s <= 0:
        return count
    opened = times[1:-1]
    meets = (opened - times[:-2] <= copy_s + 4 * np.spacing(opened)).any(axis=1)
    return 1 + int(np.argmax(meets)) if meets.any() else count


def _all_arrive(
    world: World, opened_s: Array, who: Cohort, count: int, down: int, up: Numbers, drawn: VisitDraws
) -> tuple[Array, Ended]:
    """Opening times and the last close (count + 1, replicas), and the visits, where rounds wait for everybody."""
    replicas, ends = len(opened_s), np.empty(len(who.client))
    times = np.empty((count + 1, replicas))
    times[0] = opened_s
    legs = [drawn.compute_s]
    if world.paths is not None:
        ways = [(way.of(who.client), bits) for way, bits in zip(world.paths, (down, up), strict=True)]
        before, after = ([way.latency_s, way.transfer_s(bits)] for way, bits in ways)
        legs = [*before, *legs, *after]
    row = who.row % replicas
    bounds = who.starts[::replicas].tolist()
    for k in range(count):
        own = slice(bounds[k], bounds[k + 1])
        t = times[k][row[own]]
        for leg in legs:
            t = t + leg[own]
        ends[own] = t
        times[k + 1] = times[k]
        np.maximum.at(times[k + 1], row[own], t)
    m = len(ends)
    yes, no = np.ones(m, bool), np.zeros(m, bool)
    sent, came_down = (np.broadcast_to(np.asarray(bits, np.int64), (m,)) for bits in (up, down))
    return times, Ended(who.client, yes, no, no, no, sent, came_down, ends - times[:-1].ravel()[who.row])


def _some_arrive(
    world: World, opened_s: Array, who: Cohort, count: int, down: int, up: Numbers, drawn: VisitDraws
) -> tuple[Array, Ended]:
    """The same where visits drop out or come too late."""
    replicas, parts = len(opened_s), []
    times = np.empty((count + 1, replicas))
    times[0] = opened_s
    tie = cache(drawn.tie)
    for k in range(count):
        starts = who.starts[k * replicas : (k + 1) * replicas + 1]
        own = slice(starts[0], starts[-1])
        here = Cohort(who.row[own] - k * replicas, who.client[own], who.multiplicity[own], starts - starts[0])
        draws = VisitDraws(drawn.compute_s[own], drawn.phase[own], drawn.fraction[own], _part(tie, own))
        way = None if world.paths is None else world.paths[0]
        start = arrivals.outset(way, times[k], here, down, draws)
        bits = np.broadcast_to(np.asarray(up, np.int64), len(who.client))[own]
        times[k + 1], ended = arrivals.outcome(world.paths, world.policy, times[k], here, start, down, bits, draws.tie)
        parts.append(ended)
    return times, Ended.join(parts)


def _part(tie: Callable[[], Array], own: slice) -> Callable[[], Array]:
    return lambda: tie()[own]
