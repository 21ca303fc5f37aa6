"""All replicas, round by round, as flat arrays: for synchronous rounds in which nobody waits for anybody's link.

Arrival times then have a closed form (`timeline`). Every replica still has its own SimPy clock; a round is one event
on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from fedsim.engine import timeline
from fedsim.engine.run import Run
from fedsim.engine.select import Cohort, Roster, cohort
from fedsim.engine.wire import message_bits
from fedsim.rng import Draws, Stream
from fedsim.runtime.jobs import Batch, Reply

Array = npt.NDArray[Any]
STREAMS = {"compute": Stream.COMPUTE, "dropout": Stream.DROPOUT, "tie": Stream.TIE}


def suits(scenario: Any) -> bool:
    """Whether this way of keeping time gives the scenario's timeline."""
    alone = scenario.network is None or not scenario.network.contended
    present = scenario.devices is None or scenario.devices.always_available
    return alone and present and hasattr(scenario.participation, "closing")


async def lockstep(run: Run) -> None:
    """Rounds until every replica's budget is spent."""
    run.path = "closed form"
    clocks = [simpy.Environment() for _ in run.replicas]
    active = np.arange(len(run.replicas))
    number = 0
    while len(active):
        opened = np.array([clocks[i].now for i in active], float)
        active, closed = await _round(run, active, number, opened)
        for i, t in zip(active, closed, strict=True):
            clocks[i].timeout(t - clocks[i].now)
            clocks[i].step()
        number += 1


async def _round(run: Run, active: Array, number: int, opened: Array) -> tuple[Array, Array]:
    who = _select(run, active, number)
    message = run.broadcast(active)
    down = message_bits(message)

    def draws(purpose: str) -> Draws:
        key = run.setting.backend.keys(
            run.setting.seed, STREAMS[purpose], replica=run.replicas[active][who.row], client=who.client, round=number
        )
        return Draws(key, source=run.setting.backend)

    work = np.full(len(who.client), float(run.algorithm.work(None)))
    visits = timeline.visits(run.network, run.devices, opened, who, down, work, draws)
    bits = run.reply_shape(number).bits
    reply = None
    if bits is None:  # the clock needs the sizes: everybody who gets as far as the upload computes first
        computing = visits.phase % timeline.UPLOAD == 0
        reply = await _compute(run, active, number, who.part(computing), message)
        up = np.zeros(len(who.client), np.int64)
        up[computing] = reply.bits
    else:
        up = np.full(len(who.client), bits, np.int64)
    tie = draws("tie").uniform() if run.devices is not None or run.network is not None else who.client
    out = timeline.outcome(run.network, run.policy, opened, who, visits, up, tie)
    columns = _columns(run, opened, who, out, down)
    within = run.within_budget(active, columns)
    folded = out.arrived & within[who.row]
    going = active[within]
    if not len(going):
        return going, out.closed_s[:0]
    arrived = _renumber(who.part(folded), within)
    if reply is None:
        reply = await _compute(run, going, number, arrived, {n: m[within] for n, m in message.items()})
    else:
        reply = reply.part(folded[computing])
    run.fold(going, number, arrived, reply, np.zeros(len(arrived.client), np.int64))
    going = run.close(going, number + 1, {n: c[within] for n, c in columns.items()})
    return going, out.closed_s[np.isin(active, going)]


def _select(run: Run, active: Array, number: int) -> Cohort:
    backend = run.setting.backend
    rng = Draws(
        backend.keys(run.setting.seed, Stream.SELECT, replica=run.replicas[active], round=number), source=backend
    )
    return cohort(run.policy.select(Roster(run.weights, number, len(active), rng), rng), run.population)


async def _compute(run: Run, active: Array, number: int, who: Cohort, message: dict[str, Array]) -> Reply:
    position = active[who.row]
    batch = Batch(
        number, run.replicas[position], who.client, np.zeros(len(who.client), np.int64), message, who.row,
        run.recall(position, who.client),
    )  # fmt: skip
    return await run.compute(batch)


def _columns(run: Run, opened: Array, who: Cohort, out: timeline.Outcome, down: int) -> dict[str, Array]:
    def count(x: Array) -> Array:
        total = np.concatenate([[0], np.cumsum(x)])  # whole numbers: any order of summation is exact
        return np.asarray(total[who.starts[1:]] - total[who.starts[:-1]])

    copies = run.population if run.scenario.reaches_all else np.diff(who.starts)
    return {
        "opened_s": opened,
        "closed_s": out.closed_s,
        "selected": np.diff(who.starts),
        "arrived": count(out.arrived),
        "dropped": count(out.dropped),
        "late": count(out.late),
        "uplink_bits": count(out.sent_bits),
        "downlink_bits": np.full(len(opened), down, np.int64) * copies,
        "wasted_bits": count(out.wasted_bits),
    }


def _renumber(who: Cohort, kept: Array) -> Cohort:
    """The same rows with replicas counted among the kept ones."""
    if kept.all():
        return who
    place = np.cumsum(kept) - 1
    return Cohort(place[who.row], who.client, who.multiplicity, who.starts[np.append(kept, True)])

