"""Sites that gossip against a second simulation, written from the rules alone and sharing no code with fedsim.

Every message has a link of its own, which messages of one sender to one receiver share equally; devices come and go.
What is compared: when rounds open and close, what arrived, broke or came too late, and every bit, on both clocks.
"""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from tools.clocks import always_compiled, reference_clock

import fedsim as fs

BITS = 640  # ten numbers
SEEDS = [seed for seed in range(30) if seed not in (4, 13, 16, 19, 25)]  # there rounding would decide a deadline


class Copy:
    def __init__(self, round, sender, receiver):
        self.round, self.sender, self.receiver = round, sender, receiver
        self.left, self.state, self.sent, self.end_s = float(BITS), "under way", BITS, math.inf


class Sites:
    """One replica. Slow and plain: every step looks at everything."""

    def __init__(self, case, rounds):
        self.case, self.rounds, self.now = case, rounds, 0.0
        self.n = len(case["seconds"])
        self.round = [0] * self.n  # the round that a site is in
        self.work = [None] * self.n  # when its own work will be done; "done" once it is
        self.opens = [0.0] * self.n  # when it next tries to open a round; None while it is in one
        self.opened, self.closed, self.dropped, self.lost_work = {}, {}, {}, set()
        self.copies = []
        self.final = 0  # rounds that every site has closed

    def on(self, i, t):
        return self.case["on"] is None or any(a <= t < b for a, b in self.case["on"][i])

    def ends(self, i):
        """When a device that is on goes off."""
        if self.case["on"] is None:
            return math.inf
        return next((b for a, b in self.case["on"][i] if a <= self.now < b), math.inf)

    def run(self):
        while self.final < self.rounds:
            t = self.next_s()
            assert t < math.inf
            self.advance(t)
        return self

    def sharing(self, copy):
        return [
            c for c in self.copies
            if c.state == "under way" and (c.sender, c.receiver) == (copy.sender, copy.receiver)
        ]  # fmt: skip

    def rate(self, copy):
        return self.case["bps"][copy.sender, copy.receiver] / len(self.sharing(copy))

    def next_s(self):
        times = [t for t in self.opens if t is not None]
        times += [w for w in self.work if isinstance(w, float)]
        under_way = [c for c in self.copies if c.state == "under way"]
        times += [self.now + c.left / self.rate(c) for c in under_way]
        if self.case["on"] is not None:
            times += [b for own in self.case["on"] for _, b in own if b > self.now]
        times += [
            t for (r, i), o in self.opened.items()
            if r == self.round[i] and self.opens[i] is None and (t := o + self.case["patience"]) > self.now
        ]  # fmt: skip
        return min(times, default=math.inf)

    def advance(self, to):
        under_way = [c for c in self.copies if c.state == "under way"]
        rates = [self.rate(c) for c in under_way]
        for copy, rate in zip(under_way, rates, strict=True):
            copy.left -= rate * (to - self.now)
        self.now = to
        for i in range(self.n):  # devices that go off at this instant
            if self.case["on"] is not None and any(b == to for _, b in self.case["on"][i]):
                self.goes_off(i)
        for i in range(self.n):
            if isinstance(self.work[i], float) and self.work[i] <= to:
                self.computed(i)
        for copy in under_way:
            if copy.state == "under way" and copy.left < 1e-6:
                copy.end_s = to
                copy.state = "in time" if self.round[copy.receiver] <= copy.round else "late"
        self.settle()

    def goes_off(self, i):
        for copy in self.copies:
            if copy.sender == i and copy.state == "under way":
                copy.state = "broken"
                if copy.round >= self.final:
                    copy.sent = min(BITS, math.floor(BITS - copy.left + 1e-6))
                    self.dropped[copy.round, i] = True
                else:  # its row is final: it counts with all its bits, as too late
                    copy.state = "late"
        if isinstance(self.work[i], float):
            r = self.round[i]
            self.dropped[r, i] = True
            self.lost_work.add((r, i))
            self.work[i] = None
            self.close(i)

    def computed(self, i):
        self.work[i] = "done"
        for j in sorted(self.case["graph"][i]):
            self.copies.append(Copy(self.round[i], i, j))

    def settle(self):
        """Close and open whatever can be, at this instant."""
        moved = True
        while moved:
            moved = False
            for i in range(self.n):
                if self.work[i] == "done" and self.may_close(i):
                    self.work[i] = None
                    self.close(i)
                    moved = True
            for i in range(self.n):
                if self.opens[i] is not None and self.opens[i] <= self.now:
                    self.open(i)
                    moved = True
            while all((self.final, i) in self.closed for i in range(self.n)):
                self.final += 1

    def may_close(self, i):
        r, senders = self.round[i], list(self.case["graph"][i])
        mine = {c.sender: c.state for c in self.copies if c.receiver == i and c.round == r}
        heard = sum(mine.get(j) == "in time" for j in senders)
        gone = sum(mine.get(j) == "broken" or (r, j) in self.lost_work for j in senders)
        overdue = self.now >= self.opened[r, i] + self.case["patience"]
        return heard + gone == len(senders) or heard >= self.case["enough"] or overdue

    def close(self, i):
        self.closed[self.round[i], i] = self.now
        self.round[i] += 1
        self.opens[i] = self.now

    def open(self, i):
        if not self.on(i, self.now):
            self.opens[i] = min(a for a, _ in self.case["on"][i] if a > self.now)
            return
        self.opens[i] = None
        self.opened[self.round[i], i] = self.now
        self.work[i] = self.now + self.case["seconds"][i]

    # --- What a result should say ---------------------------------------------------------------------------

    def rows(self):
        out = []
        for r in range(self.rounds):
            mine = [c for c in self.copies if c.round == r]
            out.append({
                "opened_s": min(self.opened[r, i] for i in range(self.n)),
                "closed_s": max(self.closed[r, i] for i in range(self.n)),
                "dropped": sum(self.dropped.get((r, i), False) for i in range(self.n)),
                "late": sum(map(self.is_late, mine)),
                "backhaul_bits": sum(c.sent for c in mine),
                "wasted_bits": sum(c.sent for c in mine if not self.used(c)),
            })  # fmt: skip
        return out

    def of_clients(self):
        out = []
        for i in range(self.n):
            mine = [c for c in self.copies if c.sender == i and c.round < self.rounds]
            out.append({
                "dropped": sum(self.dropped.get((r, i), False) for r in range(self.rounds)),
                "late": sum(map(self.is_late, mine)),
                "backhaul_bits": sum(c.sent for c in mine),
                "wasted_bits": sum(c.sent for c in mine if not self.used(c)),
            })  # fmt: skip
        return out

    def close_call(self):
        """Whether rounding decides if a message was there by its receiver's deadline."""
        due = {place: opened + self.case["patience"] for place, opened in self.opened.items()}
        return any(abs(due.get((c.round, c.receiver), math.inf) - c.end_s) < 1e-9 for c in self.copies if c.end_s < 1e9)

    @staticmethod
    def is_late(copy):
        return copy.state in ("late", "under way")  # what is under way when the row is final will be

    def used(self, copy):
        return copy.state == "in time" and (copy.round, copy.receiver) not in self.lost_work


def random_case(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(3, 6))
    graph = nx.cycle_graph(n)
    case = {
        "graph": {i: sorted(graph[i]) for i in graph},
        "seconds": draw.uniform(0.2, 1.5, n).tolist(),
        "bps": {(i, j): float(draw.uniform(200, 2500)) for a, b in graph.edges for i, j in ((a, b), (b, a))},
        "patience": math.inf, "enough": math.inf, "on": None,
    }  # fmt: skip
    if seed % 4:
        first, long = draw.uniform(0, 2, n), draw.uniform(2.0, 5.0, n)
        pause = draw.uniform(0.3, 1.5, n)
        case["on"] = [
            [(a + k * (b + p), a + k * (b + p) + b) for k in range(60)]
            for a, b, p in zip(first.tolist(), long.tolist(), pause.tolist(), strict=True)
        ]
    if seed % 3 == 1:
        case["patience"] = float(draw.uniform(0.5, 2.0))
    if seed % 3 == 2:
        case["enough"] = 1
    return case, n, graph


def scenario_of(case, n, graph, rounds):
    links = nx.DiGraph()
    links.add_nodes_from((c, {"client": c}) for c in range(n))
    for (i, j), bps in case["bps"].items():
        links.add_edge(i, j, bandwidth_bps=bps, latency_s=0.0)
    availability = None
    if case["on"] is not None:
        ends = np.concatenate([[0], np.cumsum([len(own) for own in case["on"]])])
        flat = [pair for own in case["on"] for pair in own]
        availability = fs.devices.intervals([a for a, _ in flat], ends=[b for _, b in flat], offsets=ends)
    policy = fs.participation.full()
    if case["patience"] < math.inf:
        policy = fs.participation.deadline(case["patience"])
    elif case["enough"] < math.inf:
        policy = fs.participation.first(1)
    return fs.Scenario(
        problem=fs.problems.Payload(n, parameters=BITS // 64), algorithm=fs.algorithms.FALD(1e-3, local_steps=1),
        network=fs.Network(links), devices=fs.devices.constant(case["seconds"], availability=availability),
        exchange=fs.exchanges.gossip(graph), participation=policy, budget=fs.Budget(rounds=rounds),
    )  # fmt: skip


def compare(result, told):
    rows = told.rows()
    for name in rows[0]:
        want = np.array([row[name] for row in rows])
        assert np.allclose(result.rounds[name], want, rtol=1e-9, atol=1e-9), name
    clients = told.of_clients()
    for name in clients[0]:
        assert result.clients[name].tolist() == [client[name] for client in clients], name


@pytest.mark.parametrize("clock", [reference_clock, always_compiled])
@pytest.mark.parametrize("seed", SEEDS)
def test_both_clocks_agree_with_a_simulation_that_shares_no_code(seed, clock):
    case, n, graph = random_case(seed)
    told = Sites(case, 12).run()
    assert not told.close_call()
    with clock():
        compare(fs.run(scenario_of(case, n, graph, 12), timing_only=True), told)


@pytest.mark.parametrize("clock", [reference_clock, always_compiled])
def test_a_device_that_goes_off_stops_sending_messages_of_rounds_it_has_aggregated(clock):
    """Site 0 closes with the first reply and goes on, while its messages to site 2 need 10 s each; it goes off at 2.5."""
    graph = nx.Graph([(0, 1), (0, 2), (1, 2)])
    always = [(0.0, 1e6)]
    case = {
        "graph": {i: sorted(graph[i]) for i in graph}, "seconds": [0.5, 0.5, 3.0],
        "bps": dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1), (2, 0)], 6400.0) | {(0, 2): 64.0},
        "patience": math.inf, "enough": 1, "on": [[(0.0, 2.5), (4.0, 1e6)], always, always],
    }  # fmt: skip
    told = Sites(case, 8).run()
    broken = [c for c in told.copies if (c.sender, c.receiver) == (0, 2) and c.state == "broken"]
    assert len({c.round for c in broken}) > 1  # of rounds that it has aggregated, too
    with clock():
        compare(fs.run(scenario_of(case, 3, graph, 8), timing_only=True), told)
