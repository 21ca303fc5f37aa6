"""The virtual clock of one replica, and the links on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heappush
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from fedsim.engine.timeline import WHOLE
from fedsim.flows import Flows

Array = npt.NDArray[Any]
LAST = 1 << 60  # comes after everything else that happens at the same instant


class Clock(simpy.Environment):
    """A SimPy environment whose events are named by the instant itself.

    `timeout(t - now)` would land on now + (t - now), which need not be t. Two ways of computing one timeline can agree to
    the last bit only if an event happens at the very number that was computed.
    """

    def at(self, time_s: float, callback: Callable[[Any], None], priority: int = 0) -> None:
        """Call back at `time_s`; what happens at the same instant is ordered by priority."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(callback)
        heappush(self._queue, (time_s, priority, next(self._eid), event))


class NoLinks:
    """An ideal network: everything arrives at once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def send(self, visit: Any, upward: bool, bits: int, done: Callable[[Any], None], priority: int) -> None:
        visit.sending_s, visit.rate_bps = self.clock.now, math.inf
        self.clock.at(self.clock.now, lambda _: None if visit.over else done(visit), priority)

    def sent_bits(self, visit: Any, bits: int) -> int:
        """What had left by now of a message that is being called off."""
        return _by_then(self.clock.now - visit.sending_s, visit.rate_bps, bits)


class PrivateLinks:
    """Everybody's own link: a transfer takes latency + bits / bandwidth, whatever the others do."""

    def __init__(self, clock: Clock, network: Any) -> None:
        self.clock = clock
        self._columns = {
            up: tuple(
                np.broadcast_to(column(up), (network.clients,))
                for column in (network.delay_s, network.stretch, network.bottleneck_bps)
            )
            for up in (False, True)
        }

    def send(self, visit: Any, upward: bool, bits: int, done: Callable[[Any], None], priority: int) -> None:
        latency, stretch, bandwidth = (float(column[visit.client]) for column in self._columns[upward])
        visit.sending_s, visit.rate_bps = self.clock.now + latency, bandwidth / stretch
        self.clock.at(
            visit.sending_s + bits * stretch / bandwidth, lambda _: None if visit.over else done(visit), priority
        )

    def sent_bits(self, visit: Any, bits: int) -> int:
        return _by_then(self.clock.now - visit.sending_s, visit.rate_bps, bits)


class SharedLinks:
    """Links that flows share max-min fairly; the next finish is one event, replaced whenever rates change."""

    def __init__(self, clock: Clock, network: Any) -> None:
        self.clock, self.network = clock, network
        self._flows = Flows(network.capacities_bps)
        self._waiting: dict[int, tuple[int, Any, Callable[[Any], None]]] = {}
        self._latency = {up: np.broadcast_to(network.delay_s(up), (network.clients,)) for up in (False, True)}
        self._stretch = {up: np.broadcast_to(network.stretch(up), (network.clients,)) for up in (False, True)}
        self._planned = 0  # only the latest plan counts
        self._settling = False

    def send(self, visit: Any, upward: bool, bits: int, done: Callable[[Any], None], priority: int) -> None:
        visit.flow, visit.stretch, visit.sending_s = None, float(self._stretch[upward][visit.client]), math.inf
        start = self.clock.now + float(self._latency[upward][visit.client])

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
        route, stretched = self.network.route(client, False), bits * float(self._stretch[False][client])

        def begin(_: Any) -> None:
            self._flows.start(self.clock.now, route, stretched)
            self._settle()

        self.clock.at(self.clock.now + float(self._latency[False][client]), begin)

    def sent_bits(self, visit: Any, bits: int) -> int:
        if visit.flow is None:
            return 0 if visit.sending_s == math.inf else bits
        self._waiting.pop(visit.flow)
        sent = self._flows.cancel(self.clock.now, visit.flow)
        visit.flow = None
        self._settle()
        return min(bits, math.floor(sent / visit.stretch * WHOLE))

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
            self.clock.at(self.clock.now, lambda _, v=visit, d=done: None if v.over else d(v), priority)
        self._settle()


def links(clock: Clock, network: Any) -> Any:
    """The links of one replica."""
    if network is None:
        return NoLinks(clock)
    return SharedLinks(clock, network) if network.contended else PrivateLinks(clock, network)


def _by_then(elapsed_s: float, rate_bps: float, bits: int) -> int:
    if math.isinf(rate_bps):
        return bits if elapsed_s > 0 else 0
    return min(bits, math.floor(max(elapsed_s, 0.0) * rate_bps * WHOLE))
