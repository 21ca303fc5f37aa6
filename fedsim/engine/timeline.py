"""A synchronous round in closed form: when everybody's reply arrives, and what that costs, for all replicas at once.

Times are summed from left to right exactly as the event path sums them: opening + latency + transfer, + compute,
+ latency + transfer. At the close the server calls late clients off: what had been sent by then was sent for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedsim.engine.account import Ended
from fedsim.engine.select import Cohort
from fedsim.errors import InvalidInput
from fedsim.participation import Heard
from fedsim.rng import Draws, Stream

Array = npt.NDArray[Any]
NOT, BEFORE, COMPUTE, UPLOAD = 0, 1, 2, 3  # where a visit drops out
WHOLE = 1 + 2.0**-30  # 4799.999999 bits sent are 4800: a rounding error must not cost a bit


@dataclass(frozen=True)
class Visits:
    """What is fixed at a visit's outset: its delays, and whether and where it will drop out."""

    downloaded_s: Array  # (m,) when the broadcast has arrived
    computed_s: Array  # (m,) when the reply is ready
    phase: Array  # (m,) NOT, BEFORE, COMPUTE or UPLOAD
    fraction: Array  # (m,) how far into that phase


@dataclass(frozen=True)
class Fates:
    """What is drawn at a visit's outset: how long it will compute, whether it will drop out, its place in ties."""

    compute_s: Array  # (m,)
    phase: Array  # (m,) NOT, BEFORE, COMPUTE or UPLOAD
    fraction: Array  # (m,) how far into that phase
    tie: Callable[[], Array]  # (m,)


@dataclass(frozen=True)
class Visitors:
    """What `work` may look at, before anything is computed: who visits. It answers one number, or one for each."""

    client: Array


def fates(devices: Any, opened: Array, client: Array, work: Any, draws: Callable[[Stream], Draws]) -> Fates:
    """Draw for visits that begin at `opened` (m,); `draws(stream)` is an rng with one row per visit."""
    m = len(client)
    compute, phase, fraction = np.zeros(m), np.zeros(m, np.int8), np.zeros(m)
    if devices is not None:
        work = np.broadcast_to(np.asarray(work, float), (m,))
        compute = np.asarray(devices.compute_s(client, work, opened, draws(Stream.COMPUTE)), np.float64)
        _check(devices, "compute_s", compute, client, compute >= 0)
        if not getattr(devices, "reliable", not hasattr(devices, "drop")):
            phase, fraction = map(np.asarray, devices.drop(client, opened, draws(Stream.DROPOUT)))
            _check(devices, "drop", phase, client, (phase >= NOT) & (phase <= UPLOAD))
            _check(devices, "drop", fraction, client, (fraction >= 0) & (fraction <= 1))
    return Fates(compute, phase, fraction, lambda: draws(Stream.TIE).uniform())


def always_on(devices: Any) -> bool:
    """Whether nobody ever is offline."""
    return devices is None or bool(getattr(devices, "always_available", not hasattr(devices, "next_available")))


def _check(devices: Any, method: str, value: Array, client: Array, right: Array) -> None:
    """Somebody's own devices may answer anything; the clock must not."""
    if np.shape(value) != client.shape or not right.all():
        raise InvalidInput(
            f"{type(devices).__name__}.{method} gave {value!r:.60} for {len(client)} visits; give one number per "
            "visit, seconds of at least 0, phases from 0 to 3, fractions from 0 to 1"
        )


class Way(NamedTuple):
    """All clients' ways in one direction, a column each."""

    latency_s: Array
    stretch: Array
    bandwidth_bps: Array

    def of(self, client: Array) -> Way:
        """These clients' ways."""
        return Way(*(column[client] for column in self))

    def transfer_s(self, bits: Any) -> Array:
        """How long so many bits take each of them, apart from the latency."""
        return np.asarray(bits * self.stretch / self.bandwidth_bps)


def ways(network: Any) -> tuple[Way, Way] | None:
    """The ways down and up; asked of the network once, for it may have to work them out."""
    if network is None:
        return None
    asked = ((network.delay_s(up), network.stretch(up), network.bottleneck_bps(up)) for up in (False, True))
    down, up = (Way(*(np.broadcast_to(column, (network.clients,)) for column in columns)) for columns in asked)
    return down, up


def visits(down: Way | None, opened_s: Array, who: Cohort, down_bits: int, drawn: Fates) -> Visits:
    """The download and compute of every visit; no way is an ideal one."""
    t = opened_s[who.row]
    if down is not None:
        own = down.of(who.client)
        t = t + own.latency_s
        t = t + own.transfer_s(down_bits)
    return Visits(t, t + drawn.compute_s, drawn.phase, drawn.fraction)


def steady(both: tuple[Way, Way] | None, opened_s: Array, down_bits: int, up_bits: int, rounds: int) -> Array:
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
    both: tuple[Way, Way] | None,
    policy: Any,
    opened_s: Array,
    who: Cohort,
    v: Visits,
    down_bits: int,
    up_bits: Array,
    tie: Callable[[], Array],
) -> tuple[Array, Ended]:
    """The uploads, when each replica's round closes, and what became of everybody's visit."""
    opened = opened_s[who.row]
    way_down, way_up = (None, None) if both is None else (way.of(who.client) for way in both)
    ends = v.computed_s if way_up is None else v.computed_s + way_up.latency_s + way_up.transfer_s(up_bits)
    dropped = v.phase != NOT
    sent = np.broadcast_to(np.asarray(up_bits, np.int64), opened.shape)
    came_down = np.broadcast_to(np.int64(down_bits), opened.shape)
    if dropped.any():
        part = np.floor(v.fraction * up_bits).astype(np.int64)
        sent = np.where(v.phase == UPLOAD, part, np.where(dropped, 0, sent))
        came_down = np.where(v.phase == BEFORE, 0, came_down)
        in_compute = v.downloaded_s + v.fraction * (v.computed_s - v.downloaded_s)
        broken = v.computed_s if way_up is None else v.computed_s + way_up.latency_s + way_up.transfer_s(part)
        ends = np.select([v.phase == BEFORE, v.phase == COMPUTE, v.phase == UPLOAD], [opened, in_compute, broken], ends)
    closed, in_time = policy.closing(Heard(opened_s, who.row, ends, dropped, tie))
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
        came_down = np.where(on_the_way, left(way_down, close - opened, came_down), came_down)
        called_off, ends = late & (v.computed_s > close), np.where(late, close, ends)
    return closed, Ended(who.client, arrived, dropped, late, called_off, sent, came_down, ends - opened)


def left(way: Way | None, elapsed_s: Array, bits: Array) -> Array:
    """What has left its sender of messages begun so long ago. Latency is propagation: bits leave at once."""
    rate = np.full(len(bits), np.inf) if way is None else way.bandwidth_bps / way.stretch
    with np.errstate(invalid="ignore"):
        gone = np.where(
            np.isinf(rate), np.where(elapsed_s > 0, bits, 0), np.floor(np.maximum(elapsed_s, 0) * rate * WHOLE)
        )
    return np.minimum(bits, gone).astype(np.int64)
