"""Flows that share links max-min fairly, from event to event; no clock of its own.

Flows with the same route have the same rate at all times, so they travel as one *bundle*. A bundle has a clock that
counts bits: how many each of its flows has received since the bundle became busy. A flow is over when that clock
reaches its mark, which is written once, when the flow starts. An event therefore costs a few operations for each
bundle that it touches, however many flows the bundle has, and the clock is read only when the rate changes: a flow
that is left alone ends at exactly `start + bits / rate`.

Rates are a function of who is under way, and of nothing else. An event changes them only for the bundles connected
to it through links that two bundles use. A bundle alone on its links, such as everybody on one shared channel, is
served here; the rest in `fedsim.kernels.sharing`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput

Array = npt.NDArray[Any]


class Links(NamedTuple):
    """One row per link."""

    capacity: Array  # bits per second
    scale: Array  # units per bit per second in which it is divided up
    users: Array  # busy bundles on it
    known: Array  # bundles, busy or not
    list: Array  # where the list of the busy ones begins
    room: Array  # how many it can hold
    listed: Array  # how many it holds
    stamp: Array  # the latest refresh that came across it, and in that refresh:
    left: Array  # units not yet given away
    flows: Array  # not yet fixed


class Hops(NamedTuple):
    """One row per link of every bundle's route."""

    link: Array
    bundle: Array
    place: Array  # where it is in that link's list


class Bundles(NamedTuple):
    """One row per route."""

    hop: Array  # its first hop
    hops: Array  # how many it has
    flows: Array  # under way
    rate: Array  # bits per second for each of them
    since: Array  # when the clock was last read
    served: Array  # what it said then
    mark: Array  # what it will say when the next flow is over
    stamp: Array  # the latest refresh of its rate, and in that refresh:
    fixed: Array  # the same if the rate is known
    cap: Array  # what its own links allow
    next: Array  # the new rate


def finish_times(
    capacities_bps: npt.ArrayLike, routes: Sequence[Iterable[int]], bits: npt.ArrayLike, starts_s: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """When each flow ends, if flow i sends bits[i] from starts_s[i] on over the links routes[i]."""
    flows = Flows(capacities_bps)
    sizes, starts = _column("bits", bits, len(routes)), _column("starts_s", starts_s, len(routes))
    queue = sorted(range(len(routes)), key=starts.__getitem__, reverse=True)
    owner: dict[int, int] = {}
    finish = np.full(len(routes), math.inf)
    while queue or owner:
        begin, end = starts[queue[-1]] if queue else math.inf, flows.next_finish_s()
        if end < math.inf and end <= begin:
            for flow in flows.finish(end):
                finish[owner.pop(flow)] = end
            continue
        if not queue:  # too slow for the range of floating point: they end at infinity
            break
        while queue and starts[queue[-1]] == begin:
            i = queue.pop()
            owner[flows.start(begin, routes[i], sizes[i])] = i
    return finish


class Flows:
    """The flows under way over links of these capacities. Times never go back, and no end may be passed over."""

    def __init__(self, capacities_bps: npt.ArrayLike) -> None:
        capacities = np.array(capacities_bps, np.float64, ndmin=1)
        for link in np.flatnonzero(~(capacities > 0)).tolist():
            raise InvalidInput(
                f"link {link} has capacity {capacities[link]} bit/s: give a positive number or inf"
            )
        n = len(capacities)
        self._links = Links(capacities, np.array([_scale(c) for c in capacities.tolist()]), *_integers(8, n))
        self._hops, self._lists = Hops(*_integers(3, 16)), np.zeros(0, np.int64)
        self._bundles = Bundles(*_integers(3, 8), *np.zeros((4, 8)), *_integers(2, 8), *np.zeros((2, 8)))
        self._bundle_of: dict[tuple[int, ...], int] = {}
        self._routes: list[tuple[int, ...]] = []
        self._marks: list[list[tuple[float, int]]] = []  # per bundle a heap of (mark, flow)
        self._flows: dict[int, tuple[int, float, float]] = {}  # flow: bundle, mark, bits
        self._instant: dict[int, float] = {}  # flows that need no time: bits
        self._events: list[tuple[float, int, int, list[int]]] = []  # heap of (end, number, stamp, bundles)
        self._dirty: set[int] = set()  # bundles whose neighbours need new rates
        self._toggled: set[int] = set()  # bundles that the links' lists are wrong about
        self._now, self._started, self._hop, self._pushed, self._serial = -math.inf, 0, 0, 0, 0
        self._view()

    def start(self, now_s: float, route: Iterable[int], bits: float) -> int:
        """A new flow over these links; its number."""
        self._advance(now_s)
        if not 0.0 <= bits < math.inf:
            raise InvalidInput(f"a flow of {bits} bits: give a finite number that is not negative")
        links = tuple(sorted(route.tolist() if isinstance(route, np.ndarray) else route))
        b = self._bundle_of.get(links, -1)
        if b < 0:
            b = self._add(links)
        flow = self._started
        self._started += 1
        if bits == 0.0 or min(map(self._capacity.__getitem__, links), default=math.inf) == math.inf:
            self._instant[flow] = bits
            return flow
        if self._count[b] == 0:
            self._toggle(b, 1)
            self._rate[b] = self._served[b] = 0.0
            self._since[b] = now_s
        mark = self._clock(b) + bits
        self._count[b] += 1
        heappush(self._marks[b], (mark, flow))
        self._flows[flow] = (b, mark, bits)
        self._dirty.add(b)
        return flow

    def cancel(self, now_s: float, flow: int) -> float:
        """End a flow early; how many of its bits were sent."""
        self._advance(now_s)
        if flow in self._instant:
            return self._instant.pop(flow)
        if flow not in self._flows:
            raise InvalidInput(f"flow {flow} is not under way: cancel a flow that was started and is not over")
        b, mark, bits = self._flows.pop(flow)
        missing = mark - self._clock(b)
        self._leave(b, 1)
        return bits - min(max(missing, 0.0), bits)

    def next_finish_s(self) -> float:
        """When the next flow ends if nothing else happens; inf if none does."""
        if self._dirty:
            self._settle()
        if self._instant:
            return self._now
        events, stamps = self._events, self._stamp
        while events and stamps[events[0][3][0]] != events[0][2]:  # overtaken by a later event
            heappop(events)
        return events[0][0] if events else math.inf

    def finish(self, now_s: float) -> list[int]:
        """The flows that end at this time, which `next_finish_s` gave, in the order of their numbers."""
        self._advance(now_s)
        done = list(self._instant)
        self._instant.clear()
        if self._dirty:
            self._settle()
        events = self._events
        while events and events[0][0] <= now_s:
            _, _, stamp, bundles = heappop(events)
            if self._stamp[bundles[0]] == stamp:
                for b in bundles:
                    done += self._complete(b)
        return sorted(done)

    def set_capacity(self, now_s: float, link: int, bps: float) -> None:
        """Change a link's capacity; at 0 its flows wait."""
        self._advance(now_s)
        if not 0 <= link < len(self._capacity):
            raise InvalidInput(f"link {link} does not exist: give one of 0 to {len(self._capacity) - 1}")
        if not bps >= 0.0:
            raise InvalidInput(f"link {link} has capacity {bps} bit/s: give 0, a positive number or inf")
        self._capacity[link] = bps
        self._links.scale[link] = _scale(bps)
        self._dirty.update(b for b, route in enumerate(self._routes) if self._count[b] and link in route)

    def rate_bps(self, flow: int) -> float:
        """At what rate a flow is being served now."""
        if self._dirty:
            self._settle()
        return self._rate[self._flows[flow][0]] if flow in self._flows else math.inf

    def _advance(self, now_s: float) -> None:
        if now_s != self._now:
            if not now_s > self._now:
                raise InvalidInput(f"time {now_s} after {self._now}: give times that do not go back")
            if now_s > self.next_finish_s():
                raise InvalidInput(f"time {now_s}: first finish the flows that end at {self.next_finish_s()}")
            self._now = now_s

    def _clock(self, b: int) -> float:
        """What a bundle's clock says now."""
        elapsed = self._now - self._since[b]
        return self._served[b] + self._rate[b] * elapsed if elapsed > 0.0 else self._served[b]

    def _end(self, b: int, mark: float) -> float:
        """When a bundle's clock reaches a mark."""
        missing, rate = mark - self._served[b], self._rate[b]
        if missing <= 0.0:
            return self._since[b]
        return self._since[b] + missing / rate if rate else math.inf

    def _complete(self, b: int) -> list[int]:
        """Take out the flows of a bundle that are over."""
        marks, last, done = self._marks[b], self._mark[b], []
        while marks:
            mark, flow = marks[0]
            if flow in self._flows:
                if mark > last and self._end(b, mark) > self._now:
                    break
                last = mark
                done.append(flow)
                del self._flows[flow]
            heappop(marks)
        self._served[b], self._since[b] = last, self._now  # exactly, where rate times time would round
        self._leave(b, len(done))
        return done

    def _leave(self, b: int, flows: int) -> None:
        self._count[b] -= flows
        self._dirty.add(b)
        if self._count[b] == 0:
            self._marks[b].clear()
            self._toggle(b, -1)

    def _toggle(self, b: int, users: int) -> None:
        for link in self._routes[b]:
            self._users[link] += users
        self._toggled ^= {b}

    def _settle(self) -> None:
        """Give new rates to whoever the latest starts and ends concern."""
        self._serial += 1
        crowded = []
        for b in self._dirty:
            marks = self._marks[b]
            while marks and marks[0][1] not in self._flows:  # cancelled
                heappop(marks)
            links = self._routes[b]
            if marks:
                self._mark[b] = marks[0][0]
            if max(map(self._users.__getitem__, links)) > (1 if marks else 0):
                crowded.append(b)
                continue
            self._stamp[b] = self._serial
            if marks:
                self._serve_alone(b, min(map(self._capacity.__getitem__, links)) / self._count[b])
        self._dirty.clear()
        if crowded:
            from fedsim.kernels.sharing import refresh

            if (self._links.known > self._links.room).any():
                self._lay_out()
            toggled, seeds = np.array(list(self._toggled), np.int64), np.array(crowded)
            self._toggled.clear()
            ends, stops, due = refresh(
                self._now, self._serial, toggled, seeds, self._links, self._hops, self._bundles, self._lists
            )
            begin, names = 0, due.tolist()
            for end, stop in zip(ends.tolist(), stops.tolist(), strict=True):
                self._expect(end, names[begin:stop])
                begin = stop

    def _serve_alone(self, b: int, rate: float) -> None:
        if rate != self._rate[b]:
            self._served[b], self._since[b], self._rate[b] = self._clock(b), self._now, rate
        self._expect(self._end(b, self._mark[b]), [b])

    def _expect(self, end: float, bundles: list[int]) -> None:
        if end == math.inf:
            return
        if len(self._events) > 4 * len(self._flows) + 64:  # mostly overtaken by now
            self._events = [event for event in self._events if self._stamp[event[3][0]] == event[2]]
            heapify(self._events)
        self._pushed += 1
        heappush(self._events, (end, self._pushed, self._serial, bundles))

    def _add(self, links: tuple[int, ...]) -> int:
        """A bundle for a new route."""
        known = len(self._capacity)
        for link in links:
            if not isinstance(link, (int, np.integer)) or not 0 <= link < known:
                raise InvalidInput(f"route over link {link!r}: name links by their numbers, 0 to {known - 1}")
        if len(set(links)) < len(links):
            raise InvalidInput(f"route over links {list(links)}: name every link once")
        b, hop = len(self._routes), self._hop
        self._hop += len(links)
        while self._hop > len(self._hops.link):
            self._hops = Hops(*(np.concatenate([column, column]) for column in self._hops))
        if b == len(self._bundles.flows):
            self._bundles = Bundles(
                *(np.concatenate([column, np.zeros_like(column)]) for column in self._bundles)
            )
            self._view()
        self._bundles.hop[b], self._bundles.hops[b] = hop, len(links)
        self._hops.link[hop : self._hop], self._hops.bundle[hop : self._hop] = links, b
        self._links.known[list(links)] += 1
        self._bundle_of[links] = b
        self._routes.append(links)
        self._marks.append([])
        return b

    def _lay_out(self) -> None:
        """Give every link's list twice the room it needs for the bundles known so far."""
        links = self._links
        links.room[:] = 2 * links.known + 2
        links.list[:] = np.cumsum(links.room) - links.room
        links.listed[:] = 0
        self._lists = np.zeros(links.room.sum(), np.int64)
        self._toggled = {b for b, count in enumerate(self._count) if count}

    def _view(self) -> None:
        """Plain Python numbers out of the columns: faster to read and write one at a time than array elements."""
        links, bundles = self._links, self._bundles
        self._capacity, self._users = memoryview(links.capacity), memoryview(links.users)
        self._count, self._stamp = memoryview(bundles.flows), memoryview(bundles.stamp)
        self._rate, self._since = memoryview(bundles.rate), memoryview(bundles.since)
        self._served, self._mark = memoryview(bundles.served), memoryview(bundles.mark)


def _integers(columns: int, rows: int) -> Array:
    return np.zeros((columns, rows), np.int64)


def _scale(bps: float) -> float:
    """The power of two that makes a capacity a whole number of 60 or 61 bits."""
    return math.ldexp(1.0, min(61 - math.frexp(bps)[1], 1000)) if 0.0 < bps < math.inf else 1.0


def _column(name: str, value: npt.ArrayLike, flows: int) -> list[float]:
    column = np.asarray(value, np.float64)
    if column.shape not in ((), (flows,)):
        raise InvalidInput(
            f"{name} has shape {column.shape} for {flows} routes: give one number, or one per route"
        )
    for i in np.flatnonzero(~np.isfinite(column) | ((name == "bits") & (column < 0.0))).tolist():
        raise InvalidInput(f"{name} of flow {i} is {column.flat[i]}: give a finite number of at least 0")
    return np.broadcast_to(column, flows).tolist()
