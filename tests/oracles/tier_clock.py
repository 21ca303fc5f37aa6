"""Rounds of a star or of tiers, simulated from the rules of the design alone. It shares no code with fedsim.

A message shares its route's links from its first instant until its last bit has left and arrives one latency later.
The oracle is told who was selected (that is drawn) and works out the rest: when each visit ends and how, when rounds
close, when edges meet at the cloud, and how many bits had left their senders. Slow and plain: every step looks at
everything. Coincidences are not its subject: its cases have times that do not meet by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EPS = 1e-9


@dataclass
class Way:
    """A route: its links, its latency, and by how much loss lengthens transfers."""

    links: list[int]
    latency: float
    loss: float = 1.0


@dataclass
class Case:
    """The system. `selected(site, round, now)` tells who was selected, `fate(client, number)` the phase and fraction."""

    capacities: list[float]
    down: list[Way]
    up: list[Way]
    seconds: list[float]
    fate: Callable[[int, int], tuple[int, float]]
    selected: Callable[[int, int, float], list[int]]
    groups: list[int]
    on: list[list[tuple[float, float]]] | None = None
    replies: float = math.inf  # that close a round
    deadline: float = math.inf
    down_bits: int = 64
    up_bits: int = 64
    every: int = 0
    to_cloud: list[Way] = field(default_factory=list)
    from_cloud: list[Way] = field(default_factory=list)
    cloud_bits: int = 64
    broadcast_to_all: bool = False


@dataclass
class Visit:
    client: int
    site: int
    started: float
    phase: int
    fraction: float
    outcome: str = ""
    downloaded: float = math.nan
    computed: float = math.nan
    ended: float = math.nan
    down: int = 0
    up: int = 0
    flow: Any = None
    version: int = 0  # of asynchronous clients
    number: int = 0


@dataclass
class Flow:
    bits: int
    way: Way
    left: float
    then: Callable[[], None] | None
    started: float
    over: bool = False


def fair_rates(flows: list[Flow], capacities: list[float]) -> list[float]:
    """Fill all flows alike until a link is full; those on it keep their rate, the others go on."""
    rates, left, open_flows = [math.inf] * len(flows), dict(enumerate(capacities)), set(range(len(flows)))
    while open_flows:
        loads = {link: sum(link in flows[f].way.links for f in open_flows) for link in left}
        shares = {link: left[link] / n for link, n in loads.items() if n}
        if not shares or min(shares.values()) == math.inf:
            return rates
        tightest = min(shares, key=lambda link: shares[link])
        for f in [f for f in open_flows if tightest in flows[f].way.links]:
            rates[f] = shares[tightest]
            open_flows.discard(f)
            for link in flows[f].way.links:
                left[link] -= shares[tightest]
    return rates


def next_on(intervals: list[tuple[float, float]], t: float) -> float:
    return min((max(a, t) for a, b in intervals if t < b), default=math.inf)


def on_until(intervals: list[tuple[float, float]], t: float) -> float:
    return next((b for a, b in intervals if a <= t < b), t)


class TierClock:
    """One replica. `rows[r]` has `opened`, `closed`, `unselected` (bits) and `visits` by client, after `run`."""

    def __init__(self, case: Case) -> None:
        self.case, self.now = case, 0.0
        self.sites = sorted(set(case.groups))
        self.flows: list[Flow] = []
        self.timers: list[tuple[float, int, Callable[[], None]]] = []  # time, order within an instant, what happens
        self.rows: dict[int, dict[str, Any]] = {}
        self.open: dict[int, dict[int, Visit]] = {site: {} for site in self.sites}
        self.round = dict.fromkeys(self.sites, 0)
        self.opened = dict.fromkeys(self.sites, 0.0)
        self.arrived = dict.fromkeys(self.sites, 0)
        self.number: dict[int, int] = {}
        self.at_cloud: list[int] = []
        self.last = 0  # no site opens a later round
        self.stopped_at = math.inf  # the first round that some site can never open

    # --- Time -------------------------------------------------------------------------------------------------------

    def at(self, time: float, order: int, action: Callable[[], None]) -> None:
        self.timers.append((time, order, action))

    def send(self, bits: int, way: Way, order: int, then: Callable[[], None] | None) -> Flow:
        """The last bit leaves, one latency passes, then something happens."""
        last_bit = None if then is None else (lambda: self.at(self.now + way.latency, order, then))
        flow = Flow(bits, way, bits * way.loss, last_bit, self.now)
        self.flows.append(flow)
        return flow

    def left_sender(self, flow: Flow) -> int:
        """Bits that have left: all but what is left, at the first instant none."""
        if self.now <= flow.started:
            return 0
        flow.then = None
        if flow in self.flows:
            self.flows.remove(flow)
        return min(flow.bits, math.floor(flow.bits - flow.left / flow.way.loss + 1e-6))

    def run(self, rounds: int, last: int) -> None:
        """Simulate until `rounds` rounds are closed; sites that are ahead open rounds up to `last`."""
        self.last = last
        for site in self.sites:
            self.at(0.0, 6, lambda site=site: self.open_round(site))
        while any(r not in self.rows or self.rows[r]["missing"] for r in range(1, rounds + 1)):
            if self.stopped_at <= rounds and all(not self.rows[r]["missing"] for r in range(1, self.stopped_at)):
                return
            assert self.step(), "nothing more will happen"

    def step(self) -> bool:
        """Advance to the next instant at which something happens, and let it happen; False: nothing ever will."""
        rates = fair_rates(self.flows, self.case.capacities)
        ends = [self.now + (f.left / rate if rate else math.inf) for f, rate in zip(self.flows, rates, strict=True)]
        to = max(self.now, min([*ends, *(time for time, _, _ in self.timers)], default=math.inf))
        if to == math.inf:
            return False
        for flow, rate, end in zip(self.flows, rates, ends, strict=True):
            flow.left = 0.0 if end <= to + 1e-12 else flow.left - rate * (to - self.now)
        self.now = to
        over = [flow for flow in self.flows if flow.left == 0.0]
        self.flows = [flow for flow in self.flows if flow.left != 0.0]
        for flow in over:
            if flow.then is not None:
                flow.then()
        while due := [timer for timer in self.timers if timer[0] <= self.now + 1e-12]:
            first = min(due, key=lambda timer: timer[1])
            self.timers.remove(first)
            first[2]()
            if self.done():
                break
        return True

    def done(self) -> bool:
        """Return True if what remains of this instant is not wanted."""
        return False

    # --- A visit ----------------------------------------------------------------------------------------------------

    def start(self, client: int, site: int) -> None:
        case, number = self.case, self.number.get(client, 0)
        self.number[client] = number + 1
        visit = Visit(client, site, self.now, *case.fate(client, number))
        self.open[site][client] = visit
        self.rows[self.round[site]]["visits"][client] = visit
        if visit.phase == 1:
            self.at(self.now, 3, lambda: self.end(visit, "dropped"))
        else:
            visit.flow = self.send(case.down_bits, case.down[client], 1, lambda: self.downloaded(visit))
        if case.on is not None and (off := on_until(case.on[client], self.now)) < math.inf:
            self.at(off, 3, lambda: self.end(visit, "dropped"))

    def downloaded(self, visit: Visit) -> None:
        if visit.outcome:
            return
        visit.downloaded, visit.down, visit.flow = self.now, self.case.down_bits, None
        seconds = self.case.seconds[visit.client]
        if visit.phase == 2:
            self.at(self.now + visit.fraction * seconds, 3, lambda: self.end(visit, "dropped"))
        else:
            self.at(self.now + seconds, 1, lambda: self.computed(visit))

    def computed(self, visit: Visit) -> None:
        if visit.outcome:
            return
        visit.computed, way = self.now, self.case.up[visit.client]
        bits = math.floor(visit.fraction * self.case.up_bits) if visit.phase == 3 else self.case.up_bits
        if visit.phase == 3:
            visit.flow = self.send(bits, way, 3, lambda: self.end(visit, "dropped"))
        else:
            visit.flow = self.send(bits, way, 2, lambda: self.end(visit, "arrived"))

    def end(self, visit: Visit, outcome: str) -> None:
        if visit.outcome:
            return
        visit.ended, uploading = self.now, visit.computed == visit.computed
        if visit.flow is not None:
            sent = self.left_sender(visit.flow)
            visit.down, visit.up = (visit.down, sent) if uploading else (sent, 0)
        visit.outcome = outcome if outcome != "cut" else "late" if uploading else "called off"
        del self.open[visit.site][visit.client]
        self.arrived[visit.site] += outcome == "arrived"
        if outcome != "cut" and (not self.open[visit.site] or self.arrived[visit.site] >= self.case.replies):
            self.close(visit.site, self.round[visit.site])

    # --- A round ----------------------------------------------------------------------------------------------------

    def open_round(self, site: int) -> None:
        if self.round[site] == self.last:
            return
        case, members = self.case, [c for c, g in enumerate(self.case.groups) if g == site]
        online = [c for c in members if case.on is None or next_on(case.on[c], self.now) <= self.now + 1e-12]
        if not online:
            at = min(next_on(case.on[c], self.now) for c in members)
            if at == math.inf:
                self.stopped_at = min(self.stopped_at, self.round[site] + 1)
            else:
                self.at(at, 6, lambda: self.open_round(site))
            return
        self.round[site] += 1
        blank = {"opened": math.inf, "closed": -math.inf, "missing": len(self.sites), "visits": {}, "unselected": 0}
        row = self.rows.setdefault(self.round[site], blank)
        row["opened"] = min(row["opened"], self.now)
        selected = case.selected(site, self.round[site], self.now)
        assert set(selected) <= set(online)
        self.opened[site], self.arrived[site] = self.now, 0
        for client in selected:
            self.start(client, site)
        if case.broadcast_to_all:
            for client in sorted(set(online) - set(selected)):
                row["unselected"] += case.down_bits
                self.send(case.down_bits, case.down[client], 1, None)
        if not selected:
            self.close(site, self.round[site])
        elif case.deadline < math.inf:
            round = self.round[site]
            self.at(self.now + case.deadline, 4, lambda: self.close(site, round) if self.open[site] else None)

    def close(self, site: int, round: int) -> None:
        if round != self.round[site]:
            return
        for visit in list(self.open[site].values()):
            self.end(visit, "cut")
        if self.case.every and round % self.case.every == 0:
            number = self.sites.index(site)
            self.send(self.case.cloud_bits, self.case.to_cloud[number], 5, lambda: self.merge(site, round))
        else:
            self.aggregated(round)
            self.at(self.now, 6, lambda: self.open_round(site))

    def merge(self, site: int, round: int) -> None:
        self.at_cloud.append(site)
        if len(self.at_cloud) < len(self.sites):
            return
        self.at_cloud = []
        for number, each in enumerate(self.sites):
            self.aggregated(round)
            self.send(self.case.cloud_bits, self.case.from_cloud[number], 5, lambda each=each: self.open_round(each))

    def aggregated(self, round: int) -> None:
        self.rows[round]["missing"] -= 1
        self.rows[round]["closed"] = max(self.rows[round]["closed"], self.now)
