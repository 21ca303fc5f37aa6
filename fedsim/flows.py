"""Flows that share links max-min fairly, from event to event; it has no clock of its own.

Every bundle of flows with the same route (see `fedsim.bundles`) has a clock that counts bits: how many each of its
flows has had since the bundle became busy. A flow is over when that clock reaches its mark, which is written once,
when the flow starts. So an event costs a few operations for each bundle whose rate it changes, however many flows
that has, and a clock is read only when its rate changes: a flow left alone ends at exactly `start + bits / rate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.bundles import Group, Tables
from fedsim.errors import InvalidInput


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
    """The flows under way over links of these capacities.

    Times may not go back, nor pass over the end of a flow: `next_finish_s` says when to call `finish`, and with
    which number. Everything that happens at one time takes effect together.
    """

    def __init__(self, capacities_bps: npt.ArrayLike) -> None:
        self._tables = Tables(capacities_bps)
        self._capacity, self._load = _view(self._tables.links.capacity), _view(self._tables.links.load)
        self._flows: dict[int, tuple[int, float, float]] = {}  # flow: bundle, mark, bits
        self._marks: list[list[tuple[float, int]]] = []  # per bundle a heap of (mark, flow)
        self._instant: dict[int, float] = {}  # flows that need no time: bits
        self._dirty: set[int] = set()  # bundles whose group needs new rates
        self._events: list[tuple[float, int, int, list[int]]] = []  # heap of (end, number, stamp, bundles)
        self._now, self._started, self._pushed, self._serial = -math.inf, 0, 0, 0
        self._look()

    def start(self, now_s: float, route: Iterable[int], bits: float) -> int:
        """A new flow over these links; its number."""
        self._advance(now_s)
        if not 0.0 <= bits < math.inf:
            raise InvalidInput(f"a flow of {bits} bits: give a finite number that is not negative")
        links = tuple(sorted(route.tolist() if isinstance(route, np.ndarray) else route))
        b = self._tables.bundle(links)
        if b == len(self._marks):
            self._marks.append([])
            self._look()
        flow = self._started
        self._started += 1
        if bits == 0.0 or min(map(self._capacity.__getitem__, links), default=math.inf) == math.inf:
            self._instant[flow] = bits
            return flow
        if self._count[b] == 0:
            self._tables.enter(b)
            self._rate[b], self._served[b], self._since[b] = 0.0, 0.0, now_s
        self._count[b] += 1
        for link in self._tables.trunks[b]:
            self._load[link] += 1
        mark = self._clock(b) + bits
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
        events = self._events
        while events and self._stamp[events[0][3][0]] != events[0][2]:  # overtaken by a later event
            heappop(events)
        return events[0][0] if events else math.inf

    def finish(self, now_s: float) -> list[int]:
        """The flows that end at this time, in the order of their numbers."""
        self._advance(now_s)
        if self._dirty:
            self._settle()
        done = list(self._instant)
        self._instant.clear()
        while self._events and self._events[0][0] <= now_s:
            _, _, stamp, bundles = heappop(self._events)
            if self._stamp[bundles[0]] == stamp:
                for b in bundles:
                    done += self._complete(b)
        return sorted(done)

    def set_capacity(self, now_s: float, link: int, bps: float) -> None:
        """Change a link's capacity; at 0 its flows wait."""
        self._advance(now_s)
        if not 0 <= link < len(self._capacity):
            raise InvalidInput(f"link {link} does not exist: name one of 0 to {len(self._capacity) - 1}")
        if not bps >= 0.0:
            raise InvalidInput(f"link {link} has capacity {bps} bit/s: give 0, a positive number or inf")
        self._tables.set_capacity(link, bps)
        self._dirty.update(b for b in self._tables.busy() if link in self._tables.routes[b])

    def rate_bps(self, flow: int) -> float:
        """At what rate a flow under way is served now."""
        if self._dirty:
            self._settle()
        return float(self._rate[self._flows[flow][0]]) if flow in self._flows else math.inf

    def _advance(self, now_s: float) -> None:
        if now_s != self._now:
            if not now_s > self._now:
                raise InvalidInput(f"time {now_s} after {self._now}: give times that do not go back")
            if now_s > self.next_finish_s():
                raise InvalidInput(f"time {now_s}: first finish the flows that end at {self.next_finish_s()}")
            self._now = now_s

    def _clock(self, b: int) -> float:
        """What a bundle's clock says now."""
        elapsed, served = self._now - self._since[b], float(self._served[b])
        return served + self._rate[b] * elapsed if elapsed > 0.0 else served

    def _end(self, b: int, mark: float) -> float:
        """When a bundle's clock reaches a mark."""
        missing, rate, since = mark - self._served[b], self._rate[b], float(self._since[b])
        if missing <= 0.0:
            return since
        return since + missing / rate if rate else math.inf

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
        self._dirty.add(b)
        self._count[b] -= flows
        for link in self._tables.trunks[b]:
            self._load[link] -= flows
        if self._count[b] == 0:
            self._marks[b].clear()
            if self._tables.leave(b):
                self._dirty.update(self._tables.busy())

    def _settle(self) -> None:
        """Give new rates to all whom the latest starts and ends concern."""
        self._serial += 1
        tables, groups = self._tables, dict[int, Group]()
        for b in self._dirty:
            trunks, marks = tables.trunks[b], self._marks[b]
            while marks and marks[0][1] not in self._flows:  # cancelled
                heappop(marks)
            if marks:
                self._mark[b] = marks[0][0]
            if trunks:
                tables.changed.add(b)
            group = tables.groups.get(trunks[0]) if trunks else None
            if group and group.busy > (1 if marks else 0):  # others are concerned, too
                groups[id(group)] = group
                if marks:
                    continue
            self._stamp[b] = self._serial
            if marks:
                self._serve_alone(b, trunks)
        self._dirty.clear()
        for group in groups.values():
            end, bundles = tables.serve(self._now, self._serial, group)
            self._expect(end, bundles)

    def _serve_alone(self, b: int, trunks: tuple[int, ...]) -> None:
        rate = min(self._cap[b], *map(self._capacity.__getitem__, trunks), math.inf) / self._count[b]
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

    def _look(self) -> None:
        """Plain Python numbers out of the columns: faster to read and write one by one than array elements."""
        rows = self._tables.bundles
        self._count, self._stamp, self._cap = _view(rows.flows), _view(rows.stamp), _view(rows.cap)
        self._rate, self._since = _view(rows.rate), _view(rows.since)
        self._served, self._mark = _view(rows.served), _view(rows.mark)


def _view(column: Any) -> Any:
    return memoryview(column)


def _column(name: str, value: npt.ArrayLike, flows: int) -> list[float]:
    column = np.asarray(value, np.float64)
    if column.shape not in ((), (flows,)):
        raise InvalidInput(
            f"{name} has shape {column.shape} for {flows} routes: give one number, or one per route"
        )
    for i in np.flatnonzero(~np.isfinite(column) | ((name == "bits") & (column < 0.0))).tolist():
        raise InvalidInput(f"{name} of flow {i} is {column.flat[i]}: give a finite number of at least 0")
    return np.broadcast_to(column, flows).tolist()
