"""The virtual clock of one replica, and the links on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappush
from typing import Any

import numpy.typing as npt
import simpy

from fedsim.engine.timeline import WHOLE, Way
from fedsim.flows import Flows

Array = npt.NDArray[Any]
LAST = 1 << 60  # comes after everything else that happens at the same instant


class Moment:
    """An event that knows its visit; SimPy asks no more of one that cannot fail, and it is cheap to make."""

    __slots__ = ("callbacks", "visit")
    _ok = True

    def __init__(self, callback: Callable[[Any], None], visit: Any) -> None:
        self.callbacks, self.visit = (callback,), visit


class Clock(simpy.Environment):  # type: ignore[misc]
    """A SimPy environment whose events are named by the instant itself.

    `timeout(t - now)` would land on now + (t - now), which need not be t. Two ways of computing one timeline can agree
    to the last bit only if an event happens at the very number that was computed.
    """

    def at(self, time_s: float, callback: Callable[[Any], None], priority: int = 0, visit: Any = None) -> None:
        """Call back with a `Moment` at `time_s`; what happens at the same instant is ordered by priority."""
        heappush(self._queue, (time_s, priority, next(self._eid), Moment(callback, visit)))


class NoLinks:
    """An ideal network: everything arrives at once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def ways(self, client: Array) -> list[Any]:
        """What `send` will need to know of each client's way down and up."""
        return [None] * len(client)

    def send(self, visit: Any, upward: bool, bits: int, done: Callable[[Moment], None], priority: int) -> None:
        """Call `done` when the message has arrived, whether or not anybody still waits for it."""
        visit.sending_s = self.clock.now
        self.clock.at(visit.sending_s, done, priority, visit)

    def sent_bits(self, visit: Any, bits: int) -> int:
        """What had left by now of a message that is being called off."""
        return bits if self.clock.now > visit.sending_s else 0


class PrivateLinks:
    """Everybody's own link: a transfer takes latency + bits / bandwidth, whatever the others do."""

    def __init__(self, clock: Clock, ways: tuple[Way, Way]) -> None:
        self.clock, self._ways = clock, ways

    def ways(self, client: Array) -> list[Any]:
        return list(zip(*(zip(*(c.tolist() for c in way.of(client)), strict=True) for way in self._ways), strict=True))

    def send(self, visit: Any, upward: bool, bits: int, done: Callable[[Moment], None], priority: int) -> None:
        latency, stretch, bandwidth = visit.ways[upward]
        visit.sending_s = sending = self.clock.now + latency
        self.clock.at(sending + bits * stretch / bandwidth, done, priority, visit)

    def sent_bits(self, visit: Any, bits: int) -> int:
        _, stretch, bandwidth = visit.ways[True]
        elapsed = max(self.clock.now - visit.sending_s, 0.0)
        if math.isinf(bandwidth):
            return bits if elapsed > 0 else 0
        return min(bits, int(elapsed * (bandwidth / stretch) * WHOLE))


class SharedLinks:
    """Links that flows share max-min fairly; the next finish is one event, replaced whenever rates change."""

    def __init__(self, clock: Clock, network: Any, ways: tuple[Way, Way]) -> None:
        self.clock, self.network, self._ways = clock, network, ways
        self._flows = Flows(network.capacities_bps)
        self._waiting: dict[int, tuple[int, Any, Callable[[Moment], None]]] = {}
        self._planned = 0  # only the latest plan counts
        self._settling = False

    def ways(self, client: Array) -> list[Any]:
        return [None] * len(client)

    def send(self, visit: Any, upward: bool, bits: int, done: Callable[[Moment], None], priority: int) -> None:
        way = self._ways[upward]
        visit.flow, visit.stretch, visit.sending_s = None, float(way.stretch[visit.client]), math.inf
        start = self.clock.now + float(way.latency_s[visit.client])

        def begin(_: Any) -> None:
            if visit.over:
                return
            visit.sending_s = self.clock.now
            route = self.network.route(visit.client, upward)
            visit.flow = self._flows.start(self.clock.now, route, bits * visit.stretch)
            self._waiting[visit.flow] = (priority, visit, done)
            self._settle()

        self.clock.at(start, begin)

    def copy(self, client: int, bits: int) -> None:
        """A broadcast copy that nobody waits for: it only takes its share of the links."""
        route, stretched = self.network.route(client, False), bits * float(self._ways[False].stretch[client])

        def begin(_: Any) -> None:
            self._flows.start(self.clock.now, route, stretched)
            self._settle()

        self.clock.at(self.clock.now + float(self._ways[False].latency_s[client]), begin)

    def sent_bits(self, visit: Any, bits: int) -> int:
        if visit.flow is None:
            return 0 if visit.sending_s == math.inf else bits
        self._waiting.pop(visit.flow)
        sent = self._flows.cancel(self.clock.now, visit.flow)
        visit.flow = None
        self._settle()
        return min(bits, int(sent / visit.stretch * WHOLE))

    def _settle(self) -> None:
        """Plan the next finish once per instant, after everything that starts or stops in it."""
        if not self._settling:
            self._settling = True
            self.clock.at(self.clock.now, self._plan, LAST - 1)

    def _plan(self, _: Any) -> None:
        self._settling = False
        self._planned += 1
        token, at = self._planned, self._flows.next_finish_s()
        if at < math.inf:
            self.clock.at(max(at, self.clock.now), lambda _: self._finish(token))

    def _finish(self, token: int) -> None:
        if token != self._planned:
            return
        ended = [self._waiting.pop(f) for f in self._flows.finish(self.clock.now) if f in self._waiting]
        for priority, visit, done in ended:
            visit.flow = None
            self.clock.at(self.clock.now, done, priority, visit)
        self._settle()


def links(clock: Clock, network: Any, ways: tuple[Way, Way] | None) -> Any:
    """The links of one replica."""
    if ways is None:
        return NoLinks(clock)
    return SharedLinks(clock, network, ways) if network.contended else PrivateLinks(clock, ways)
