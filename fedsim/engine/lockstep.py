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
from fedsim.engine.clock import Clock
from fedsim.engine.run import Run
from fedsim.engine.select import Cohort, Roster, cohort
from fedsim.engine.totals import tally
from fedsim.rng import Draws, Stream

Array = npt.NDArray[Any]


def suits(scenario: Any) -> bool:
    """Whether this way of keeping time gives the scenario's timeline."""
    alone = scenario.network is None or not scenario.network.contended
    untraced = not scenario.record.events
    return alone and untraced and timeline.always_on(scenario.devices) and hasattr(scenario.participation, "closing")


async def lockstep(run: Run) -> None:
    """Rounds until every replica's budget is spent."""
    run.path = "closed form"
    number, active, own = run.keeper.resume(run)
    now = own.get("now", np.zeros(len(run.replicas)))
    clocks = [Clock(float(t)) for t in now]
    many, one_by_one = stretches.suits(run), 0
    while len(active):
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
        run.keeper.after(run, number, active, lambda: {"now": now})


def _nothing(event: Any) -> None:
    """A round's one event: the clock moves, the work is done in flat arrays."""


@lru_cache(maxsize=2)
def _everybody(replicas: int, clients: int) -> Cohort:
    return cohort(np.broadcast_to(np.arange(clients), (replicas, clients)), clients)


async def _round(run: Run, active: Array, number: int, opened: Array) -> tuple[Array, Array]:
    who = _select(run, active, number)
    message = run.broadcast(active)
    down = run.down_bits(message)

    drawn = run.fates(opened[who.row], active[who.row], who.client, number)
    way_down, way_up = run.ways or (None, None)
    visits = timeline.visits(way_down, opened, who, down, drawn)
    bits = run.reply_shape(number).bits
    reply = None
    if bits is None:  # the clock needs the sizes: everybody who gets as far as the upload computes first
        computing = visits.phase % timeline.UPLOAD == 0
        reply = await run.replies(active, number, who.part(computing), message)
        up = np.zeros(len(who.client), np.int64)
        up[computing] = reply.bits
    else:
        up = np.full(len(who.client), bits, np.int64)
    out = timeline.outcome(way_up, run.policy, opened, who, visits, up, drawn.tie)
    columns = _columns(run, opened, who, out, down, bits)
    run.uploaded(active[who.row], who.client, out.sent_bits, number)
    within = run.within_budget(active, columns)
    going, folded = active, out.arrived
    kept: Any = slice(None)
    if not within.all():
        going, kept = active[within], within[who.row]
        folded = folded & kept
        message, columns = ({n: a[within] for n, a in part.items()} for part in (message, columns))
    if not len(going):
        return going, out.closed_s[:0]
    arrived = who.part(folded).among(within)
    if reply is None:
        reply = await run.replies(going, number, arrived, message)
    else:
        reply = reply.part(folded[computing])
    tally(run.totals, who.client[kept], out.arrived[kept], out.dropped[kept], out.late[kept], out.sent_bits[kept])
    run.fold(going, number, arrived, reply, np.zeros(len(arrived.client), np.int64))
    going = run.close(going, number + 1, columns)
    return going, out.closed_s if len(going) == len(active) else out.closed_s[np.isin(active, going)]


def _select(run: Run, active: Array, number: int) -> Cohort:
    if getattr(run.policy, "always", False):
        return _everybody(len(active), run.population)
    backend = run.setting.backend
    rng = Draws(
        backend.keys(run.setting.seed, Stream.SELECT, replica=run.replicas[active], round=number), source=backend
    )
    roster = Roster(run.weights, number, len(active), rng, lambda: run.cumulative)
    return cohort(run.policy.select(roster, rng), run.population)


def _columns(
    run: Run, opened: Array, who: Cohort, out: timeline.Outcome, down: int, bits: int | None
) -> dict[str, Array]:
    def count(x: Array) -> Array:
        total = np.concatenate([[0], np.cumsum(x)])  # whole numbers: any order of summation is exact
        return np.asarray(total[who.starts[1:]] - total[who.starts[:-1]])

    nothing = np.zeros(len(opened), np.int64)
    copies = run.population if run.scenario.reaches_all else who.sizes
    smooth = bool(out.arrived.all())
    return {
        "opened_s": opened,
        "closed_s": out.closed_s,
        "selected": who.sizes,
        "arrived": who.sizes if smooth else count(out.arrived),
        "dropped": nothing if smooth else count(out.dropped),
        "late": nothing if smooth else count(out.late),
        "uplink_bits": who.sizes * bits if smooth and bits is not None else count(out.sent_bits),
        "downlink_bits": np.full(len(opened), down, np.int64) * copies,
        "wasted_bits": nothing if smooth else count(out.wasted_bits),
    }
