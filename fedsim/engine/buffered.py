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

from fedsim.checks import called
from fedsim.engine.orders import Orders
from fedsim.engine.run import Run
from fedsim.engine.select import Cohort
from fedsim.engine.totals import tally_visits
from fedsim.engine.workshop import Workshop
from fedsim.errors import positive
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
    await orders.place(shops[i] for i in active)
    while len(active):
        message = run.broadcast(active)
        down = run.down_bits(message)
        for r, i in enumerate(active):
            shops[i].release(number, {n: m[r] for n, m in message.items()}, down)
        await orders.place(shops[i] for i in active)
        await _advance(run, orders, [shops[i] for i in active])
        full = np.array([len(shops[i].arrived) >= run.policy.replies for i in active], bool)
        ended = active[~full]
        run.stop([i for i in ended if shops[i].clock.now > shops[i].limit_s], "seconds")
        run.stop([i for i in ended if shops[i].clock.now <= shops[i].limit_s], "no clients")
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
                run.sizes[shop.position, visit.client, visit.number] = visit.bits
                shop.journeys.upload(visit)


async def _fold(run: Run, orders: Orders, shops: list[Workshop], active: Array, number: int) -> Array:
    if not len(active):
        return active
    rows = [shops[i].columns() for i in active]
    columns = {n: np.array([row[n] for row in rows], np.float64 if n.endswith("_s") else np.int64) for n in rows[0]}
    ended = [(i, v.client, v.sent, v.version) for i in active for v in shops[i].arrived + shops[i].lost]
    run.uploaded(*np.array(ended, np.int64).T)
    active, columns = _within(run, active, columns)
    if not len(active):
        return active
    visits = [
        (r, v) for r, i in enumerate(active) for v in sorted(shops[i].arrived, key=lambda v: (v.client, v.number))
    ]
    await orders.fetch([(shops[active[r]], v) for r, v in visits])
    row = np.array([r for r, _ in visits], np.int64)
    client = np.array([v.client for _, v in visits], np.int64)
    who = Cohort(row, client, np.ones(len(row), np.int64), np.searchsorted(row, np.arange(len(active) + 1)))
    staleness = np.array([number - v.version for _, v in visits], np.int64)
    tally_visits(run.totals, [v for i in active for v in shops[i].arrived + shops[i].lost])
    if not run.skip:
        reply = Reply.join([v.reply for _, v in visits])
        run.fold(active, number, who, _rebased(run, shops, active, visits, reply, staleness), staleness)
    return run.close(active, number + 1, columns)


def _within(run: Run, active: Array, columns: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    within = run.within_budget(active, columns)
    return active[within], {n: c[within] for n, c in columns.items()}


def _discounted(discount: Any, staleness: int) -> float:
    factor = called("participation.buffered: discount", discount, staleness)
    factor = factor.item() if getattr(factor, "size", 0) == 1 else factor
    where = "participation.buffered: discount returned {}"
    return positive(where, factor, zero=True, remedy="it must be a number of at least 0")


def _rebased(run: Run, shops: list[Workshop], active: Array, visits: Any, reply: Reply, staleness: Array) -> Reply:
    """Replies as if their clients had started from the current version."""
    discount = run.policy.discount
    s = np.ones(len(staleness)) if discount is None else np.array([_discounted(discount, int(k)) for k in staleness])
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
