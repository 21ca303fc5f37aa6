"""A synchronous round in closed form: when everybody's reply arrives, and what that costs, for all replicas at once.

Times are summed from left to right exactly as the event path sums them: opening + latency + transfer, + compute,
+ latency + transfer. At the close the server calls late clients off: what had been sent by then was sent for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array, Numbers
from fedsim.old_engine.round import Cohort, Ended
from fedsim.participation import VisitEnds
from fedsim.protocols import Policy

NOT, BEFORE, COMPUTE, UPLOAD = range(4)  # where a visit drops out, as `devices.drop` says it
WHOLE = 1 + 2.0**-30  # 4799.999999 bits sent are 4800: a rounding error must not cost a bit


class ClientPaths(NamedTuple):
    """All clients' paths in one direction, a column each."""

    latency_s: Array
    stretch: Array
    bandwidth_bps: Array

    def of(self, client: Array) -> ClientPaths:
        """These clients' paths."""
        return ClientPaths(*(column[client] for column in self))

    def transfer_s(self, bits: Numbers) -> Array:
        """How long so many bits take each of them, apart from the latency."""
        return np.asarray(bits * self.stretch / self.bandwidth_bps)


@dataclass(frozen=True)
class VisitDraws:
    """What is drawn at a visit's outset: how long it will compute, whether it will drop out, its place in ties."""

    compute_s: Array  # (m,)
    phase: Array  # (m,) NOT, BEFORE, COMPUTE or UPLOAD
    fraction: Array  # (m,) how far into that phase
    tie: Callable[[], Array]  # (m,), drawn only if asked for


def at_once(visits: int, tie: Callable[[], Array]) -> VisitDraws:
    """Visits of devices that are instant and reliable."""
    return VisitDraws(np.zeros(visits), np.zeros(visits, np.int8), np.zeros(visits), tie)


@dataclass(frozen=True)
class Outset:
    """What is fixed at a visit's outset: its delays, and whether and where it will drop out."""

    downloaded_s: Array  # (m,) when the broadcast has arrived
    computed_s: Array  # (m,) when the reply is ready
    phase: Array  # (m,) NOT, BEFORE, COMPUTE or UPLOAD
    fraction: Array  # (m,) how far into that phase


def outset(down: ClientPaths | None, opened_s: Array, who: Cohort, down_bits: int, drawn: VisitDraws) -> Outset:
    """The download and compute of every visit; no way is an ideal one."""
    t = opened_s[who.row]
    if down is not None:
        own = down.of(who.client)
        t = t + own.latency_s
        t = t + own.transfer_s(down_bits)
    return Outset(t, t + drawn.compute_s, drawn.phase, drawn.fraction)


def steady(
    both: tuple[ClientPaths, ClientPaths] | None, opened_s: Array, down_bits: int, up_bits: int, rounds: int
) -> Array:
    """When each of so many rounds opens, and the last one closes, if all answer at once: (rounds + 1, replicas)."""
    together = (opened_s == opened_s[0]).all()  # then one replica's times are everybody's
    times = np.empty((rounds + 1, 1 if together else len(opened_s)))
    times[:] = opened_s[: times.shape[1]]
    if both is not None:
        (down, up) = both
        steps = (down.latency_s, down.transfer_s(down_bits), up.latency_s, up.transfer_s(up_bits))
        for k in range(rounds):
            t = times[k][:, None]
            for step in steps:
                t = t + step
            np.maximum(times[k], t.max(axis=1), out=times[k + 1])
    return np.broadcast_to(times, (rounds + 1, len(opened_s)))


def outcome(
    both: tuple[ClientPaths, ClientPaths] | None,
    policy: Policy,
    opened_s: Array,
    who: Cohort,
    v: Outset,
    down_bits: int,
    up_bits: Array,
    tie: Callable[[], Array],
) -> tuple[Array, Ended]:
    """The uploads, when each replica's round closes, and what became of everybody's visit."""
    opened = opened_s[who.row]
    way_up = None if both is None else both[1].of(who.client)
    ends = v.computed_s if way_up is None else v.computed_s + way_up.latency_s + way_up.transfer_s(up_bits)
    dropped = v.phase != NOT
    sent = up_bits
    came_down = np.broadcast_to(np.int64(down_bits), opened.shape)
    if dropped.any():
        part = np.floor(v.fraction * up_bits).astype(np.int64)
        sent = np.where(v.phase == UPLOAD, part, np.where(dropped, 0, sent))
        came_down = np.where(v.phase == BEFORE, 0, came_down)
        in_compute = v.downloaded_s + v.fraction * (v.computed_s - v.downloaded_s)
        broken = v.computed_s if way_up is None else v.computed_s + way_up.latency_s + way_up.transfer_s(part)
        ends = np.where(v.phase == UPLOAD, broken, np.where(v.phase == COMPUTE, in_compute, ends))
        ends = np.where(v.phase == BEFORE, opened, ends)
    closed, in_time = closing(policy, opened_s, who.row, ends, dropped, tie)
    if in_time.all() and not dropped.any():
        return closed, Ended(who.client, in_time, dropped, dropped, dropped, sent, came_down, ends - opened)
    arrived = in_time & ~dropped
    late = ~in_time & ~dropped
    # A visit that breaks off only after the close never gets there: the server has called it off as late.
    late |= dropped & (ends > closed[who.row])
    dropped = dropped & ~late
    called_off = late
    if late.any():
        close = closed[who.row]
        sent = np.where(late, left(way_up, close - v.computed_s, sent), sent)
        on_the_way = late & (v.downloaded_s > close)
        if on_the_way.any():
            way_down = None if both is None else both[0].of(who.client)
            came_down = np.where(on_the_way, left(way_down, close - opened, came_down), came_down)
        called_off, ends = late & (v.computed_s > close), np.where(late, close, ends)
    return closed, Ended(who.client, arrived, dropped, late, called_off, sent, came_down, ends - opened)


def closing(
    policy: Policy, opened_s: Array, row: Array, ends_s: Array, dropped: Array, tie: Callable[[], Array]
) -> tuple[Array, Array]:
    """When each replica's round closes, and which visits are in time."""
    if not policy.waits:
        return policy.closing(VisitEnds(opened_s, row, ends_s, dropped, tie))
    closed = opened_s.copy()
    np.maximum.at(closed, row, ends_s)
    return closed, np.ones(len(row), bool)


def left(way: ClientPaths | None, elapsed_s: Array, bits: Array) -> Array:
    """What has left its sender of messages begun so long ago. Latency is propagation: bits leave at once."""
    rate = np.full(len(bits), np.inf) if way is None else way.bandwidth_bps / way.stretch
    with np.errstate(invalid="ignore"):
        gone = np.where(
            np.isinf(rate), np.where(elapsed_s > 0, bits, 0), np.floor(np.maximum(elapsed_s, 0) * rate * WHOLE)
        )
    return np.minimum(bits, gone).astype(np.int64)
