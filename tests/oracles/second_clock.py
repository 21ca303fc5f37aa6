"""A second clock for tests, written from the rules alone and sharing no code with fedsim.

It knows visits over links of the clients' own: the way down is shared equally by what is on it (a visit's broadcast,
copies that nobody waits for), the way up has one message at a time. A message is on its way from its first instant until
its last bit has left, and arrives one latency later. Slow and plain: every step looks at everything.
"""

from __future__ import annotations

import math

import numpy as np

BITS = 64  # one number, either way
ORDER = ("downloaded", "computed", "arrived", "lost")  # of what happens at one instant


def next_on(intervals, t):
    return min((max(a, t) for a, b in intervals if t < b), default=math.inf)


def on_until(intervals, t):
    return next((b for a, b in intervals if a <= t < b), t)


class Script:
    """Devices that do as they are told: seconds and on-periods by client, fates by client and visit number."""

    def __init__(self, case):
        self.case, self._visits, self.always_available = case, {}, case["on"] is None

    def compute_s(self, clients, work, now_s, rng):
        return np.array([self.case["seconds"][c] for c in clients])

    def drop(self, clients, now_s, rng):
        fates = [self.case["fate"](int(c), self._number(int(c))) for c in clients]
        return np.array([f[0] for f in fates], "int8"), np.array([f[1] for f in fates], float)

    def _number(self, client):
        number = self._visits[client] = self._visits.get(client, -1) + 1
        return number

    def next_available(self, clients, now_s, rng):
        return np.array([next_on(self.case["on"][c], float(t)) for c, t in zip(clients, now_s, strict=True)], float)

    def available_until(self, clients, now_s, rng):
        return np.array([on_until(self.case["on"][c], float(t)) for c, t in zip(clients, now_s, strict=True)], float)


class Visit:
    arrived = over = False
    up = down = 0  # bits
    served = 0.0
    got_s = ready_s = math.inf

    def __init__(self, client, begun_s, version, phase, fraction, folded):
        self.client, self.begun_s, self.version = client, begun_s, version
        self.phase, self.fraction, self.folded = phase, fraction, folded


class SecondClock:
    """Times, visits and copies; `case` has `up`, `down`, `latency`, `seconds`, `on` (or None) and `fate`."""

    def __init__(self, case, clients):
        self.case, self.clients, self.now = case, clients, 0.0
        self.way_down = [[] for _ in range(clients)]  # of each client: [bits to go, visit or None]
        self.planned = []  # (time, what, visit)
        self.at_work = {}  # client: visit
        self._visits = [0] * clients

    def on(self, client, t=None):
        t = self.now if t is None else t
        return self.case["on"] is None or next_on(self.case["on"][client], t) == t

    def begin(self, client, version=0, folded=0):
        phase, fraction = self.case["fate"](client, self._visits[client])
        self._visits[client] += 1
        visit = self.at_work[client] = Visit(client, self.now, version, phase, fraction, folded)
        if phase == 1:
            self.planned.append((self.now, "lost", visit))
        else:
            self.way_down[client].append([float(BITS), visit])
        if self.case["on"] is not None and (off := on_until(self.case["on"][client], self.now)) < math.inf:
            self.planned.append((off, "lost", visit))
        return visit

    def copy(self, client):
        self.way_down[client].append([float(BITS), None])

    def next_s(self):
        ends = [
            self.now + min(left for left, _ in flows) * len(flows) / self.case["down"][c]
            for c, flows in enumerate(self.way_down)
            if flows
        ]
        return min([*ends, *(t for t, _, _ in self.planned)], default=math.inf)

    def advance(self, to):
        """What happens at `to`, which is not after `next_s`, in order."""
        for c, flows in enumerate(self.way_down):
            share = (to - self.now) * self.case["down"][c] / max(len(flows), 1)
            for flow in flows:
                flow[0] -= share
                if flow[1] is not None:
                    flow[1].served = BITS - flow[0]
            last_bits = [v for left, v in flows if left < 1e-6 and v is not None]
            self.planned += [(to + self.case["latency"][c], "downloaded", v) for v in last_bits]
            self.way_down[c] = [flow for flow in flows if flow[0] >= 1e-6]
        self.now = to
        due = [p for p in self.planned if p[0] <= to + 1e-12]
        self.planned = [p for p in self.planned if p[0] > to + 1e-12]
        return sorted(((what, visit) for _, what, visit in due), key=lambda h: ORDER.index(h[0]))

    def follow(self, what, visit):
        """Move a visit along; whether it is over now."""
        if visit.over:
            return False
        case, client = self.case, visit.client
        if what == "downloaded":
            visit.down, visit.got_s = BITS, self.now
            lost, seconds = visit.phase == 2, case["seconds"][client]
            until = self.now + (visit.fraction * seconds if lost else seconds)
            self.planned.append((until, "lost" if lost else "computed", visit))
        elif what == "computed":
            visit.ready_s, lost = self.now, visit.phase == 3
            bits = math.floor(visit.fraction * BITS) if lost else BITS
            there = self.now + bits / case["up"][client] + case["latency"][client]
            self.planned.append((there, "lost" if lost else "arrived", visit))
            visit.fraction = bits
        elif what == "arrived":
            visit.arrived, visit.up = True, BITS
            self._end(visit)
        else:
            self.call_off(visit)
        return visit.over

    def call_off(self, visit):
        """Cut a visit: what has left its sender by now counts, all of it in the last latency."""
        c = visit.client
        if visit.got_s == math.inf and visit.phase != 1:
            visit.down = math.floor(visit.served + 1e-6)
            self.way_down[c] = [flow for flow in self.way_down[c] if flow[1] is not visit]
        if visit.ready_s < math.inf:
            visit.up = min(visit.fraction, math.floor((self.now - visit.ready_s) * self.case["up"][c] + 1e-6))
        self._end(visit)

    def _end(self, visit):
        visit.over, visit.end_s = True, self.now
        self.at_work.pop(visit.client, None)


def random_case(seed):
    """Devices, links and clients' fates."""
    draw = np.random.default_rng(seed)
    clients, copies = int(draw.integers(2, 8)), bool(draw.integers(2))
    chance, presence = draw.choice([0.0, 0.3, 0.6]), draw.integers(3)
    case = {
        "up": draw.uniform(50, 500, clients).tolist(), "down": draw.uniform(50, 500, clients).tolist(),
        "latency": draw.uniform(0.01, 0.5, clients).tolist(), "seconds": draw.uniform(0.05, 2.0, clients).tolist(),
        "on": None, "reliable": chance == 0.0,
    }  # fmt: skip
    if presence == 1:  # again and again, each in its own time
        first, long = draw.uniform(0, 4, clients), draw.uniform(2, 4.5, clients)
        case["on"] = [[(5.0 * k + a, 5.0 * k + a + b) for k in range(300)] for a, b in zip(first, long, strict=True)]
    if presence == 2:  # a few times, then never again
        ends = [np.cumsum(draw.uniform(0.2, 6, 2 * draw.integers(0, 7))).tolist() for _ in range(clients)]
        case["on"] = [list(zip(own[::2], own[1::2], strict=True)) for own in ends]

    def fate(client, number):
        x = math.sin(12.9898 * (client + 1) + 78.233 * number + seed) * 43758.5453
        x = (x - math.floor(x)) / max(chance, 1e-9)
        return (1 + int(3 * x) % 3, (21 * x) % 1.0) if x < 1 else (0, 0.0)

    return case | {"fate": fate}, clients, copies, draw
