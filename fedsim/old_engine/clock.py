"""The virtual clock of one replica, and the links on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from heapq import heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import simpy

from fedsim.arrays import Array
from fedsim.network.flows import Flows
from fedsim.old_engine.arrivals import WHOLE, ClientPaths
from fedsim.old_engine.world import World
from fedsim.protocols import NetworkModel

if TYPE_CHECKING:
    from fedsim.old_engine.visits import Visit

    Sender: TypeAlias = "Visit | Message"


LAST = 1 << 60  # comes after everything else that happens at the same instant


class Moment:
    """An event that knows its visit; SimPy asks no more of one that cannot fail, and it is cheap to make."""

    __slots__ = ("callbacks", "visit")
    _ok = True

    def __init__(self, callback: Callable[[Any], None], visit: Sender | None) -> None:
        self.callbacks = (callback,)
        self.visit: Any = visit  # None where the callback does not look at it


class Clock(simpy.Environment):  # type: ignore[misc]
    """A SimPy environment whose events are named by the instant itself.

    `timeout(t - now)` would land on now + (t - now), which need not be t. Two ways of computing one timeline can agree
    to the last bit only if an event happens at the very number that was computed. SimPy has no public way to schedule
    at an instant, so `at` writes to its queue as its own `schedule` does, and `tests/test_private_doors.py` watches.
    """

    now = property(attrgetter("_now"))  # SimPy's own, without a call of Python's

    def at(
        self, time_s: float, callback: Callable[[Any], None], priority: int = 0, visit: Sender | None = None
    ) -> None:
        """Call back with a `Moment` at `time_s`; what happens at the same instant is ordered by priority."""
        heappush(self._queue, (time_s, priority, next(self._eid), Moment(callback, visit)))

    def run_to(self, time_s: float) -> None:
        """Everything that happens up to and at that time."""
        there: list[Any] = []
        self.at(time_s, there.append, LAST)
        while not there:
            self.step()


class NoLinks:
    """An ideal network: everything arrives at once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def paths(self, client: Array) -> list[Any]:
        """What `send` will need to know of each client's way down and up."""
        return [None] * len(client)

    def send(self, visit: Sender, upward: bool, bits: int, done: Callable[[Moment], None], priority: int) -> None:
        """Call `done` when the message has arrived, whether or not anybody still waits for it."""
        visit.sending_s, visit.sending = self.clock.now, bits
        self.clock.at(visit.sending_s, done, priority, visit)

    def call_off(self, visits: list[Any]) -> list[int]:
        """What had left its sender by now, of messages that are called off together."""
        return [visit.sending if self.clock.now > visit.sending_s else 0 for visit in visits]


class PrivateLinks:
    """Everybody's own link: a transfer takes latency + bits / bandwidth, whatever the others do."""

    def __init__(self, clock: Clock, paths: tuple[ClientPaths, ClientPaths]) -> None:
        self.clock, self._paths = clock, paths

    def paths(self, client: Array) -> list[Any]:
        return list(zip(*(zip(*(c.tolist() for c in way.of(client)), strict=True) for way in self._paths), strict=True))

    def send(self, visit: Sender, upward: bool, bits: int, done: Callable[[Moment], None], priority: int) -> None:
        latency, stretch, bandwidth = visit.paths[upward]
        clock = self.clock
        visit.sending_s = now = clock.now
        visit.sending = bits
        clock.at(now + latency + bits * stretch / bandwidth, done, priority, visit)

    def call_off(self, visits: list[Any]) -> list[int]:
        return [self._left(visit) for visit in visits]

    def _left(self, visit: Sender) -> int:
        _, stretch, bandwidth = visit.paths[visit.uploading]
        elapsed = self.clock.now - visit.sending_s
        if math.isinf(bandwidth):
            return int(visit.sending) if elapsed > 0 else 0
        return min(int(visit.sending), int(elapsed * (bandwidth / stretch) * WHOLE))


class SharedLinks:
    """Links that flows share max-min fairly; the next finish is one event, replaced whenever rates change.

    A flow meets others on the links from one latency after its first bit left, so that a message alone takes latency +
    bits / bandwidth; what it is served at one instant left its sender that latency before.
    """

    def __init__(
        self,
        clock: Clock,
        network: NetworkModel | OwnLinks,
        paths: tuple[ClientPaths, ClientPaths],
        varying: Mapping[int, Any],
    ) -> None:
        self.clock, self.network, self._paths = clock, network, paths
        self._flows = Flows(network.capacities_bps, varying)
        self._waiting: dict[int, tuple[int, Any, Callable[[Moment], None]]] = {}
        self._planned = 0  # only the latest plan counts
        self._settling = False

    def paths(self, client: Array) -> list[Any]:
        return [None] * len(client)

    def send(self, visit: Sender, upward: bool, bits: int, done: Callable[[Moment], None], priority: int) -> None:
        way = self._paths[upward]
        visit.flow, visit.through, visit.sending_s, visit.sending = None, False, self.clock.now, bits
        start = self.clock.now + float(way.latency_s[visit.client])
        if bits == 0 or way.bandwidth_bps[visit.client] == math.inf:  # nobody can be in its way
            self.clock.at(start, done, priority, visit)
            return

        def begin(_: Moment) -> None:
            if visit.over:
                return
            route = self.network.route(visit.client, upward)
            visit.flow = self._flows.start(self.clock.now, route, bits * float(way.stretch[visit.client]))
            self._waiting[visit.flow] = (priority, visit, done)
            self._settle()

        self.clock.at(start, begin)

    def copy(self, client: int, bits: int) -> None:
        """A broadcast copy that nobody waits for: it only takes its share of the links."""
        route, stretched = self.network.route(client, False), bits * float(self._paths[False].stretch[client])

        def begin(_: Moment) -> None:
            self._flows.start(self.clock.now, route, stretched)
            self._settle()

        self.clock.at(self.clock.now + float(self._paths[False].latency_s[client]), begin)

    def call_off(self, visits: list[Any]) -> list[int]:
        """As above; what is still in its first latency leaves at the rate at which it would be served there."""
        rates = {visit.flow: self._flows.served_at(visit.flow) for visit in visits if visit.flow is not None}
        new = [visit for visit in visits if visit.flow is None and self._meets_others(visit)]
        for visit in new:
            stretch = float(self._paths[visit.uploading].stretch[visit.client])
            route = self.network.route(visit.client, visit.uploading)
            visit.flow = self._flows.start(self.clock.now, route, visit.sending * stretch)
        rates |= {visit.flow: self._flows.rate_bps(visit.flow) for visit in visits if not rates.get(visit.flow, 1.0)}
        rates |= {visit.flow: self._flows.rate_bps(visit.flow) for visit in new}
        return [self._take_off(visit, rates.get(visit.flow, math.inf)) for visit in visits]

    def _meets_others(self, visit: Sender) -> bool:
        """Whether the message is under way to links that it has to share."""
        ideal = self._paths[visit.uploading].bandwidth_bps[visit.client] == math.inf
        return not (visit.through or visit.sending == 0 or ideal)

    def _take_off(self, visit: Sender, rate: float) -> int:
        """What had left of a message that is, or would be, served at this rate; its flow ends here."""
        elapsed = self.clock.now - visit.sending_s
        if visit.flow is None:
            return int(visit.sending) if visit.through or elapsed > 0 else 0
        way = self._paths[visit.uploading]
        self._waiting.pop(visit.flow, None)
        served = self._flows.cancel(self.clock.now, visit.flow)
        self._settle()
        visit.flow = None
        under_way = rate * min(elapsed, float(way.latency_s[visit.client]))
        return min(int(visit.sending), int((served + under_way) / float(way.stretch[visit.client]) * WHOLE))

    def _settle(self) -> None:
        """Plan the next finish once per instant, after everything that starts or stops in it."""
        if not self._settling:
            self._settling = True
            self.clock.at(self.clock.now, self._plan, LAST - 1)

    def _plan(self, _: Moment) -> None:
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
            visit.flow, visit.through = None, True
            self.clock.at(self.clock.now, done, priority, visit)
        self._settle()


class OwnLinks:
    """Everybody's own links as a network whose flows can meet: copies of two rounds may share a client's way down."""

    def __init__(self, paths: tuple[ClientPaths, ClientPaths]) -> None:
        self.capacities_bps = np.concatenate([way.bandwidth_bps for way in paths])
        self._clients = len(paths[0].bandwidth_bps)

    def route(self, client: int, upward: bool) -> tuple[int]:
        return (client + self._clients * upward,)


Links = NoLinks | PrivateLinks | SharedLinks


def links(clock: Clock, world: World, meeting: bool = False) -> Links:
    """The links of one replica; `meeting`: two messages of one sender may be on its way at a time."""
    if world.network is None or world.paths is None:
        return NoLinks(clock)
    network = world.network
    if network.contended or network.varying:
        return SharedLinks(clock, network, world.paths, network.varying)
    if world.copies or meeting:
        return SharedLinks(clock, OwnLinks(world.paths), world.paths, {})
    return PrivateLinks(clock, world.paths)


class Message:
    """A message between sites, as links look at it: `client` is its row among the network's paths."""

    over = through = False
    flow: int | None = None
    sending_s, sending = 0.0, 0

    def __init__(self, row: int, links: Links, uploading: bool = True) -> None:
        self.client, self.uploading = row, uploading
        self.paths = links.paths(np.array([row], np.int64))[0]
