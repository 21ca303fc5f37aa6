"""All replicas, round by round, as flat arrays: for synchronous rounds in which nobody waits for anybody's link.

Arrival times then have a closed form (`timeline`). Every replica still has its own SimPy clock; a round, or a stretch
of them, is one event on it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.engine import stretch as stretches
from fedsim.engine import timeline
from fedsim.engine.account import columns as columns_of
from fedsim.engine.clock import Clock
from fedsim.engine.events import Replica, rounds, wound
from fedsim.engine.run import Run
from fedsim.engine.select import Cohort, Roster, cohort
from fedsim.engine.totals import tally
from fedsim.rng import Draws, Stream

Array = npt.NDArray[Any]


def suits(scenario: Any) -> bool:
    """Whether this way of keeping time gives the scenario's timeline."""
    alone = scenario.network is None or not scenario.network.contended
    seen = scenario.record.events or getattr(scenario.participation, "history", False)  # visit by visit
    return alone and not seen and timeline.always_on(scenario.devices) and hasattr(scenario.participation, "closing")


async def lockstep(run: Run) -> None:
    """Rounds until every replica's budget is spent."""
    run.path = "closed form"
    number, active, own = run.keeper.resume(run)
    if number and "now" not in own:  # the events had taken over
        await wound(run, number, active)
        return
    run.noted.forget()
    now = own.get("now", np.zeros(len(run.replicas)))
    before = own.get("before", np.full(len(run.replicas), -np.inf))  # when the round before was opened
    clocks = [Clock(float(t)) for t in now]
    many, one_by_one = stretches.suits(run), 0
    while len(active):
        if run.copies and _meets_copies(run, now[active] - before[active]):
            await _hand_over(run, active, number, before, now)
            return
        before[active] = now[active]
        count = stretches.length(run, active, number) if many and number >= one_by_one else 1
        done = await stretches.stretch(run, active, number, now[active], count) if count > 1 else None
        if done is None:
            one_by_one = max(one_by_one, number + count)
            done = (1, *await _round(run, active, number, now[active]))
        count, active, closed = done
        now[active] = closed
        for i, t in zip(active.tolist(), closed.tolist(), strict=True):
            clocks[i].at(t, _nothing)
            clocks[i].step()
        number += count
        run.keeper.after(run, number, active, lambda: {"now": now, "before": before})


def _nothing(event: Any) -> None:
    """A round's one event: the clock moves, the work is done in flat arrays."""


def _meets_copies(run: Run, apart: Array) -> bool:
    """Whether rounds opened so far apart find a client's way down still taken by its copy from the round before."""
    assert run.ways is not None
    taken = run.ways[0].transfer_s(run.down_bits(run.broadcast(np.arange(1)))).max()
    return bool(taken > 0 and (apart <= taken * (1 + 1e-6)).any())  # the events decide what is that close


async def _hand_over(run: Run, active: Array, number: int, before: Array, now: Array) -> None:
    """Go on event by event, with the copies of the last round under way."""
    run.path = "closed form, then event"
    down = run.down_bits(run.broadcast(active))
    who = _select(run, active, number - 1)
    replicas = [Replica(run, i, float(before[i]) if i in active else 0.0) for i in range(len(run.replicas))]
    for r, i in enumerate(active):
        replicas[i].copy(who.client[who.starts[r] : who.starts[r + 1]], down)
        replicas[i].clock.run_to(float(now[i]))
    await rounds(run, replicas, number, active)


@lru_cache(maxsize=2)
def _everybody(replicas: int, clients: int) -> Cohort:
    return cohort(np.broadcast_to(np.arange(clients), (replicas, clients)), clients)


async def _round(run: Run, active: Array, number: int, opened: Array) -> tuple[Array, Array]:
    who = _select(run, active, number)
    message = run.broadcast(active)
    down = run.down_bits(message)

    drawn = run.fates(opened[who.row], active[who.row], who.client, number)
    visits = timeline.visits(None if run.ways is None else run.ways[0], opened, who, down, drawn)
    bits = run.reply_shape(number).bits
    reply = None
    if bits is None:  # the clock needs the sizes: everybody who gets as far as the upload computes first
        computing = visits.phase % timeline.UPLOAD == 0
        reply = await run.replies(active, number, who.part(computing), message)
        up = np.zeros(len(who.client), np.int64)
        up[computing] = reply.bits
        if run.copies:  # the events may take over
            run.noted.add("sizes", active[who.row], up)
    else:
        up = np.broadcast_to(np.int64(bits), len(who.client))
    closed, out = timeline.outcome(run.ways, run.policy, opened, who, visits, down, up, drawn.tie)
    columns = columns_of(opened, closed, who.sizes, who.starts, out, run.copied(who) * down)
    run.uploaded(active[who.row], who.client, out.up_bits, number)
    within = run.within_budget(active, columns)
    going, folded = active, out.arrived
    kept: Any = slice(None)
    if not within.all():
        going, kept = active[within], within[who.row]
        folded = folded & kept
        message, columns = ({n: a[within] for n, a in part.items()} for part in (message, columns))
    if not len(going):
        return going, closed[:0]
    arrived = who.part(folded).among(within)
    if reply is None:
        reply = await run.replies(going, number, arrived, message)
    else:
        reply = reply.part(folded[computing])
    tally(run.totals, out if within.all() else out.part(kept), number + 1)
    run.fold(going, number, arrived, reply, np.zeros(len(arrived.client), np.int64))
    going = run.close(going, number + 1, columns)
    return going, closed if len(going) == len(active) else closed[np.isin(active, going)]


def _select(run: Run, active: Array, number: int) -> Cohort:
    if getattr(run.policy, "always", False):
        return _everybody(len(active), run.population)
    backend = run.setting.backend
    rng = Draws(
        backend.keys(run.setting.seed, Stream.SELECT, replica=run.replicas[active], round=number), source=backend
    )
    roster = Roster(run.weights, number, len(active), rng, lambda: run.cumulative, run.problem.sizes)
    return cohort(run.policy.select(roster, rng), run.population)
