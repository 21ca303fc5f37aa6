"""Asynchronous rounds: clients work continuously, the server folds every K arrivals into a new model version.

A visit keeps the version it started from and the memory its client had then; its noise is keyed by that version and by
the client's visit number. Replies are re-based before the server sees them: theta_now + s (beta - theta_started) for a
model, s times the value for anything else, with s the policy's discount of the staleness. No stationary law is claimed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.engine.account import Ended, ended
from fedsim.engine.account import columns as columns_of
from fedsim.engine.orders import Orders
from fedsim.engine.run import Run
from fedsim.engine.select import Cohort
from fedsim.engine.totals import tally
from fedsim.engine.workshop import Workshop
from fedsim.errors import InvalidInput
from fedsim.runtime.jobs import Reply

Array = npt.NDArray[Any]


async def buffered(run: Run) -> None:
    """Folds until every replica's budget is spent."""
    run.path = "event, asynchronous"
    orders = Orders(run)
    try:
        await _folds(run, orders)
    finally:
        await orders.close()


async def _folds(run: Run, orders: Orders) -> None:
    shops = [Workshop(run, i) for i in range(len(run.replicas))]
    number, active, own = run.keeper.resume(run)
    for i in active:
        shops[i].wind(number, run.down_bits(run.broadcast(active[:1])), own)
    run.noted.forget()
    await orders.place(shops[i] for i in active)
    while len(active):
        message = run.broadcast(active)
        down = run.down_bits(message)
        for r, i in enumerate(active):
            shops[i].release(number, {n: m[r] for n, m in message.items()}, down)
        await orders.place(shops[i] for i in active)
        await _advance(run, orders, [shops[i] for i in active])
        full = np.array([len(shops[i].arrived) >= run.policy.replies for i in active], bool)
        over = active[~full]
        run.stop([i for i in over if shops[i].clock.now > shops[i].limit_s], "seconds")
        run.stop([i for i in over if shops[i].clock.now <= shops[i].limit_s], "no clients")
        active = await _fold(run, orders, shops, active[full], number)
        number += 1
        run.keeper.after(run, number, active, partial(_in_flight, shops, active))


def _in_flight(shops: list[Workshop], active: Array) -> dict[str, Array]:
    """What the visits in flight started from, by replica and client."""
    out: dict[str, Array] = {}
    for i in active:
        for visit in shops[i].view.in_flight.values():
            place = f"{i}.{visit.client}."
            out |= {f"{place}message.{n}": a for n, a in visit.message.items()}
            out |= {f"{place}memory.{n}": a for n, a in visit.memory.items()}
            if visit.reply is not None:
                out |= {f"{place}value.{n}": a for n, a in visit.reply.values.items()}
                out |= {f"{place}next.{n}": a for n, a in visit.reply.memory.items()}
                out[place + "bits"] = visit.reply.bits
    return out


async def _advance(run: Run, orders: Orders, shops: list[Workshop]) -> None:
    """Everybody to a full buffer; replies whose size the clock needs are computed together on the way."""
    while waiting := [s for s in shops if not s.advance() and s.blocked]:
        await orders.fetch([(s, v) for s in waiting for v in s.blocked])
        for shop in waiting:
            blocked, shop.blocked = shop.blocked, []
            for visit in blocked:
                visit.bits = int(visit.reply.bits[0])
                shop.journeys.upload(visit)
            sizes = np.array([visit.bits for visit in blocked], np.int64)
            run.noted.add("sizes", np.full(len(sizes), shop.position), sizes)


async def _fold(run: Run, orders: Orders, shops: list[Workshop], active: Array, number: int) -> Array:
    if not len(active):
        return active
    own = [shops[i].folded() + shops[i].lost for i in active]
    out = ended([v for visits in own for v in visits])
    columns = _columns([shops[i] for i in active], np.cumsum([0, *map(len, own)]), out)
    position = np.repeat(active, [len(visits) for visits in own])
    run.uploaded(position, out.client, out.up_bits, np.array([v.version for visits in own for v in visits], np.int64))
    active, columns, within = _within(run, active, columns)
    if not len(active):
        return active
    visits = [(r, v) for r, i in enumerate(active) for v in shops[i].folded()]
    await orders.fetch([(shops[active[r]], v) for r, v in visits])
    row = np.array([r for r, _ in visits], np.int64)
    client = np.array([v.client for _, v in visits], np.int64)
    who = Cohort(row, client, np.ones(len(row), np.int64), np.searchsorted(row, np.arange(len(active) + 1)))
    staleness = np.array([number - v.version for _, v in visits], np.int64)
    tally(run.totals, out.part(np.repeat(within, [len(visits) for visits in own])), number + 1, staleness)
    if not run.skip:
        reply = Reply.join([v.reply for _, v in visits])
        if run.reports_loss:
            losses = run.losses(active[row], reply)
            for r, c, loss in zip(row.tolist(), client.tolist(), losses.tolist(), strict=True):
                shops[active[r]].view.told([c], [loss])
        run.fold(active, number, who, _rebased(run, shops, active, visits, reply, staleness), staleness)
    return run.close(active, number + 1, columns)


def _columns(shops: list[Workshop], starts: Array, out: Ended) -> dict[str, Array]:
    """What ended since the last fold. A download counts when it ends, in which round ever its visit does."""
    opened, closed = np.array([s.view.opened_s for s in shops]), np.array([s.clock.now for s in shops])
    columns = columns_of(opened, closed, np.array([s.started for s in shops], np.int64), starts, out, 0)
    down = [s.journeys.came_down + s.copied * s.down_bits for s in shops]
    return columns | {"downlink_bits": np.array(down, np.int64)}


def _within(run: Run, active: Array, columns: dict[str, Array]) -> tuple[Array, dict[str, Array], Array]:
    within = run.within_budget(active, columns)
    return active[within], {n: c[within] for n, c in columns.items()}, within


def _rebased(run: Run, shops: list[Workshop], active: Array, visits: Any, reply: Reply, staleness: Array) -> Reply:
    """Replies as if their clients had started from the current version."""
    discount = run.policy.discount
    s = np.array([1.0 if discount is None else float(discount(int(k))) for k in staleness])
    if not (np.isfinite(s).all() and (s >= 0).all()):
        raise InvalidInput(f"participation.buffered: discount returned {s.min()}; it must be a number of at least 0")
    values = {}
    for name, value in reply.values.items():
        factor = s.astype(value.dtype).reshape(-1, *[1] * (value.ndim - 1))
        if name in visits[0][1].message:
            started = np.stack([v.message[name] for _, v in visits])
            now = np.stack([shops[active[r]].message[name] for r, _ in visits])
            values[name] = now + factor * (value - started)
        else:
            values[name] = factor * value
    return Reply(values, reply.bits, reply.memory)
