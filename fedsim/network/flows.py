"""Flows that share links max-min fairly, from event to event; the caller supplies the time.

Every bundle of flows (see `fedsim.network.route_bundles`) has a counter of the bits that each of its flows has had
since the bundle became busy. A flow ends when the counter reaches its mark, which is set when the flow starts. An event
costs a few operations for each bundle whose rate it changes, independent of the number of flows, and a counter is
updated only when its rate changes: an uncontended flow ends at exactly `start + bits / rate`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput
from fedsim.network.route_bundles import FlowTables, Group
from fedsim.network.varying import RateSteps, Varying, means_of

VIEW: Any = memoryview  # of a column: reading single numbers is faster than from an array


class Flows:
    """Flows over links with these capacities, numbers or `Varying`.

    Times must not decrease, nor pass the end of a flow: `next_finish_s` returns when to call `finish`. All events of
    one time take effect together.
    """

    def __init__(
        self, capacities_bps: npt.ArrayLike | Sequence[float | Varying], varying: Mapping[int, Varying] | None = None
    ) -> None:
        capacities, among = means_of(capacities_bps)
        varying = among if varying is None else varying
        self._steps, self._varies = RateSteps(varying), bool(varying)
        self._tables = FlowTables(capacities)
        self._capacity, self._load = (VIEW(self._tables.links[name]) for name in ("capacity", "load"))
        self._flows: dict[int, tuple[int, float, float, int]] = {}  # flow: bundle, mark, start, route
        self._marks: list[list[tuple[float, int]]] = []  # per bundle a heap of (mark, flow)
        self._instant: dict[int, float] = {}  # flows that need no time: bits
        self._arrivals: dict[int, tuple[int, float]] = {}  # flows that start now: route, bits
        self._moved: set[int] = set()  # routes that are in another bundle now
        self._dirty: set[int] = set()  # bundles whose group needs new rates
        self._events: list[tuple[float, int, int, list[int]]] = []  # heap of (end, number, stamp, bundles)
        self._now, self._started, self._pushed, self._serial = -math.inf, 0, 0, 0
        self._bundles: Any = None
        self._look()

    def start(self, now_s: float, route: Iterable[int], bits: float) -> int:
        """Start a flow over these links and return its number."""
        self._advance(now_s)
        if not 0.0 <= bits < math.inf:
            raise InvalidInput(f"a flow of {bits} bits: give a finite number that is not negative")
        try:
            links = tuple(sorted(route.tolist() if isinstance(route, np.ndarray) else route))
            known = self._tables.find(links)
        except (TypeError, ValueError):  # not sortable or not hashable: not link numbers
            self._tables.check(tuple(route))
            raise
        if known < 0:
            self._tables.check(links)
        flow = self._started
        self._started += 1
        if bits == 0.0 or min(map(self._capacity.__getitem__, links), default=math.inf) == math.inf:
            self._instant[flow] = bits
        else:
            self._arrivals[flow] = (known if known >= 0 else self._learn(links), bits)
            if self._varies:
                for link, bps in self._steps.take(now_s, links):
                    self._set(link, bps)
        return flow

    def cancel(self, now_s: float, flow: int) -> float:
        """End a flow early and return how many of its bits were sent."""
        self._advance(now_s)
        if flow in self._instant:
            return self._instant.pop(flow)
        if unsent := self._arrivals.pop(flow, None):
            self._release(unsent[0])
            return 0.0
        if flow not in self._flows:
            raise InvalidInput(f"flow {flow} is not active: cancel a flow that has started and not ended")
        b, mark, start, route = self._flows.pop(flow)
        self._release(route)
        served = min(self._clock(b), mark) - start
        self._leave(b, 1)
        return served

    def next_finish_s(self) -> float:
        """Return when the next flow ends without other events; inf if none does.

        An earlier change of a bandwidth on the route of a flow is returned as well; no flow ends then.
        """
        self._update_rates()
        if self._instant:
            return self._now
        events = self._events
        while events and self._stamp[events[0][3][0]] != events[0][2]:  # superseded by a later event
            heappop(events)
        end = events[0][0] if events else math.inf
        return min(end, self._steps.next_s()) if self._varies else end

    def finish(self, now_s: float) -> list[int]:
        """Return the flows that end at this time, in the order of their numbers."""
        self._advance(now_s)
        done = []
        if self._varies and self._steps.next_s() <= now_s:  # flows that end now ignore the change of bandwidth
            done = self._over()
            for link, bps in self._steps.due(now_s):
                self._set(link, bps)
        self._update_rates()
        done += self._over()
        if self._instant:
            done += self._instant
            self._instant.clear()
        return sorted(done)

    def _over(self) -> list[int]:
        """Remove and return the flows that end now."""
        done = []
        while self._events and self._events[0][0] <= self._now:
            _, _, stamp, bundles = heappop(self._events)
            if self._stamp[bundles[0]] == stamp:
                for b in bundles:
                    done += self._complete(b)
        return done

    def set_capacity(self, now_s: float, link: int, bps: float) -> None:
        """Change a link's capacity; at 0 its flows wait."""
        self._advance(now_s)
        if not 0 <= link < len(self._capacity):
            raise InvalidInput(f"link {link} does not exist: name one of 0 to {len(self._capacity) - 1}")
        if not bps >= 0.0:
            raise InvalidInput(f"link {link} has capacity {bps} bit/s: give 0, a positive number or inf")
        self._set(link, bps)

    def _set(self, link: int, bps: float) -> None:
        concerned, moved = self._tables.set_capacity(link, bps)
        self._dirty |= concerned
        self._moved |= moved
        self._look()

    def rate_bps(self, flow: int) -> float:
        """Return the current rate of an active flow."""
        self._update_rates()
        if flow in self._instant:
            return math.inf
        if flow not in self._flows:
            raise InvalidInput(f"flow {flow} is not active: give a flow that has started and not ended")
        return float(self._rate[self._flows[flow][0]])

    def served_at(self, flow: int) -> float:
        """Return the rate of a flow up to now; 0 for one that starts now."""
        return float(self._rate[self._flows[flow][0]]) if flow in self._flows else 0.0

    def _advance(self, now_s: float) -> None:
        if now_s != self._now:
            if not now_s > self._now:
                raise InvalidInput(f"time {now_s} after {self._now}: give times that do not decrease")
            if now_s > self.next_finish_s():
                raise InvalidInput(f"time {now_s}: first finish what ends or changes at {self.next_finish_s()}")
            self._now = now_s

    def _clock(self, b: int) -> float:
        """Return a bundle's counter of bits now."""
        elapsed, served = self._now - self._since[b], float(self._served[b])
        return served + self._rate[b] * elapsed if elapsed > 0.0 else served

    def _end(self, b: int, mark: float) -> float:
        """Return when a bundle's counter reaches a mark."""
        missing, rate, since = mark - self._served[b], self._rate[b], float(self._since[b])
        if missing <= 0.0:
            return since
        return since + missing / rate if rate else math.inf

    def _complete(self, b: int) -> list[int]:
        """Remove the flows of a bundle that have ended."""
        marks, last, done = self._marks[b], self._mark[b], []
        while marks:
            mark, flow = marks[0]
            if flow in self._flows:
                if mark > last and self._end(b, mark) > self._now:
                    break
                last = mark
                done.append(flow)
                self._release(self._flows.pop(flow)[3])
            heappop(marks)
        self._served[b], self._since[b] = last, self._now  # exactly, where rate times time would round
        self._leave(b, len(done))
        return done

    def _enter(self, flow: int, route: int, missing: float, served: float = 0.0) -> None:
        b = self._tables.bundle_of[route]
        if self._count[b] == 0:
            self._tables.enter(b)
            self._rate[b], self._served[b], self._since[b] = 0.0, 0.0, self._now
        self._count[b] += 1
        for link in self._tables.trunks[b]:
            self._load[link] += 1
        clock = self._clock(b)
        mark = clock + missing
        heappush(self._marks[b], (mark, flow))
        self._flows[flow] = (b, mark, clock - served, route)
        self._dirty.add(b)

    def _leave(self, b: int, flows: int) -> None:
        self._dirty.add(b)
        self._count[b] -= flows
        for link in self._tables.trunks[b]:
            self._load[link] -= flows
        if self._count[b] == 0:
            self._marks[b].clear()
            if self._tables.leave(b):
                self._dirty.update(self._tables.busy())

    def _release(self, route: int) -> None:
        """Release the varying links of a route after its flow has ended."""
        if self._varies:
            self._steps.release(self._tables.links_of[route])

    def _learn(self, links: tuple[int, ...]) -> int:
        self._moved |= self._tables.add(links)
        self._look()
        return self._tables.find(links)

    def _move(self, flow: int) -> None:
        """Put a flow into its bundle."""
        b, mark, start, route = self._flows[flow]
        if b != self._tables.bundle_of[route]:
            clock = min(self._clock(b), mark)
            self._marks[b].remove((mark, flow))
            heapify(self._marks[b])
            self._leave(b, 1)
            self._enter(flow, route, mark - clock, clock - start)

    def _update_rates(self) -> None:
        """Update the rates after the latest starts and ends."""
        if self._moved:
            for flow in [flow for flow, it in self._flows.items() if it[3] in self._moved]:
                self._move(flow)
            self._moved.clear()
        if self._arrivals:
            for flow, (route, bits) in self._arrivals.items():
                self._enter(flow, route, bits)
            self._arrivals.clear()
        if self._dirty:
            self._serve()

    def _serve(self) -> None:
        self._serial += 1
        tables, groups, alone = self._tables, dict[int, Group](), set[int]()
        for b in self._dirty:
            trunks, marks = tables.trunks[b], self._marks[b]
            while marks and marks[0][1] not in self._flows:  # cancelled
                heappop(marks)
            group = tables.groups.get(trunks[0]) if trunks else None
            if trunks:
                tables.changed.add(b)
            if marks:
                self._mark[b] = marks[0][0]
            else:
                self._stamp[b] = self._serial
            if marks and (group is None or group.busy == 1):
                self._serve_alone(b, trunks)
                alone.add(id(group))
            elif group is not None:
                groups[id(group)] = group
        self._dirty.clear()
        for key, group in groups.items():
            if key not in alone:
                self._expect(*tables.serve(self._now, self._serial, group))

    def _serve_alone(self, b: int, trunks: tuple[int, ...]) -> None:
        narrowest = min(map(self._capacity.__getitem__, trunks), default=math.inf)
        rate = min(self._cap[b], narrowest) / self._count[b]
        if rate != self._rate[b]:
            self._served[b], self._since[b], self._rate[b] = self._clock(b), self._now, rate
        self._stamp[b] = self._serial
        self._expect(self._end(b, self._mark[b]), [b])

    def _expect(self, end: float, bundles: list[int]) -> None:
        if end == math.inf:
            return
        if len(self._events) > 4 * len(self._flows) + 64:  # most are superseded
            self._events = [event for event in self._events if self._stamp[event[3][0]] == event[2]]
            heapify(self._events)
        self._pushed += 1
        heappush(self._events, (end, self._pushed, self._serial, bundles))

    def _look(self) -> None:
        """Renew the views of tables that have grown."""
        while len(self._marks) < len(self._tables.trunks):
            self._marks.append([])
        if self._tables.bundles is not self._bundles:
            self._bundles = self._tables.bundles
            self._count, self._stamp, self._cap, self._rate, self._since, self._served, self._mark = (
                VIEW(self._bundles[name]) for name in ("flows", "stamp", "cap", "rate", "since", "served", "mark")
            )
