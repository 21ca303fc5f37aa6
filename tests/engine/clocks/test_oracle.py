"""Synchronous rounds against a second simulation, written here from the rules alone and sharing no code with fedsim.

The oracle is told who was selected (that is drawn) and works out the rest: whether they were on, when each visit ends
and how, when the round closes, and every count, bit and second in its row.
"""

from __future__ import annotations

import math

import pytest

import fedsim as fs

CLIENTS, DIM, ROUNDS = 6, 5, 12
BITS = 64 * DIM
LATENCY = [0.01, 0.3, 0.05, 0.0, 0.2, 0.11]
UP = [400.0, 900.0, 333.0, 1500.0, 250.0, 700.0]
DOWN = [1000.0, 800.0, 2100.0, 640.0, 999.0, 4000.0]
SECONDS = [0.5, 0.13, 1.7, 0.9, 0.31, 2.3]

AVAILABILITY = {
    "always": None,
    "in turns": [[(k * 4.0 + c * 0.71, k * 4.0 + c * 0.71 + 2.9) for k in range(100)] for c in range(CLIENTS)],
    "some for good": [
        [(0.0, 2.0)], [(0.0, math.inf)], [(1.1, 9.3), (11.0, 30.0)], [], [(0.0, 3.3), (5.0, 6.0), (7.7, math.inf)], [(4.0, 60.0)],
    ],
    "nobody at first": [[(3.0 + c, 20.0 + 3 * c)] for c in range(CLIENTS)],
}  # fmt: skip

POLICIES = {
    "full": fs.participation.full(),
    "uniform": fs.participation.uniform(3),
    "with_replacement": fs.participation.with_replacement(4),
    "bernoulli": fs.participation.bernoulli(0.6),
    "first": fs.participation.first(2, of=4),
    "deadline": fs.participation.deadline(1.9),
    "short deadline": fs.participation.deadline(0.35, of=4),
}


def nowhere(client, now_s):
    return 0, 0.0


def anywhere(client, now_s):
    """A fate that looks drawn and is not: phase and fraction from the client and the time."""
    x = math.sin(12.9898 * (client + 1) + 78.233 * now_s) * 43758.5453
    x -= math.floor(x)
    return (int(4 * x) if x < 0.6 else 0), (7 * x) % 1.0


def always_before(client, now_s):
    return (1, 0.5) if client % 2 else (0, 0.0)


DROPOUT = {"reliable": nowhere, "anywhere": anywhere, "before": always_before}


class Script:
    """Devices of our own that do as they are told."""

    def __init__(self, on, drop):
        import numpy as np

        self.on, self._drop, self._np = on, drop, np
        self.always_available = on is None

    def compute_s(self, clients, work, now_s, rng):
        return self._np.array([SECONDS[c] for c in clients])

    def drop(self, clients, now_s, rng):
        fates = [self._drop(int(c), float(t)) for c, t in zip(clients, now_s, strict=True)]
        return self._np.array([f[0] for f in fates], "int8"), self._np.array([f[1] for f in fates], float)

    def next_available(self, clients, now_s, rng):
        return self._np.array([next_on(self.on[c], float(t)) for c, t in zip(clients, now_s, strict=True)], float)

    def available_until(self, clients, now_s, rng):
        return self._np.array([on_until(self.on[c], float(t)) for c, t in zip(clients, now_s, strict=True)], float)


def next_on(intervals, t):
    return min((max(a, t) for a, b in intervals if t < b), default=math.inf)


def on_until(intervals, t):
    return next((b for a, b in intervals if a <= t < b), t)


# --- The oracle -----------------------------------------------------------------------------------------


def left(rate, elapsed):
    return min(BITS, math.floor(max(elapsed, 0.0) * rate + 1e-6))


def visit(client, opened, on, drop):
    """(end, arrived, when the download was over, when the reply was ready, bits of the reply that will be sent)."""
    phase, fraction = drop(client, opened)
    off = math.inf if on is None else on_until(on[client], opened)
    got = opened + LATENCY[client] + BITS / DOWN[client]
    ready = got + SECONDS[client]
    bits = math.floor(fraction * BITS) if phase == 3 else BITS
    there = ready + LATENCY[client] + bits / UP[client]
    end = {0: there, 1: opened, 2: got + fraction * (ready - got), 3: there}[phase]
    return min(end, off), phase == 0 and there < off, got, ready, bits, phase == 1


def closing(name, opened, visits):
    ends = [v[0] for v in visits.values()]
    last = max(ends, default=opened)
    if name == "first":
        arrivals = sorted(v[0] for v in visits.values() if v[1])
        return arrivals[1] if len(arrivals) >= 2 else last
    if "deadline" in name:
        return min(last, opened + (0.35 if name == "short deadline" else 1.9))
    return last


def row_of(name, opened, who, on, drop):
    visits = {c: visit(c, opened, on, drop) for c in who}
    closed = closing(name, opened, visits)
    row = dict.fromkeys(("selected", "arrived", "dropped", "late", "uplink_bits", "downlink_bits", "wasted_bits"), 0)
    row |= dict.fromkeys(("wasted_down_bits",), 0)
    row |= dict.fromkeys(("wasted_s", "late_s", "dropped_s", "called_off_s"), 0.0)
    for c, (end, arrived, got, ready, bits, before) in visits.items():
        late = end > closed
        until = min(end, closed)
        whole = arrived and not late
        up = bits if whole else min(bits, left(UP[c], until - ready))
        down = 0 if before else BITS if got <= until else left(DOWN[c], until - opened)
        row["selected"] += 1
        row["arrived" if whole else "late" if late else "dropped"] += 1
        row["uplink_bits"] += up
        row["downlink_bits"] += down
        if not whole:
            cause = "dropped_s" if not late else "late_s" if ready <= closed else "called_off_s"
            row["wasted_bits"] += up
            row["wasted_down_bits"] += down
            for column in ("wasted_s", cause):
                row[column] += until - opened
    return closed, row


@pytest.mark.parametrize("dropout", DROPOUT)
@pytest.mark.parametrize("availability", AVAILABILITY)
@pytest.mark.parametrize("policy", POLICIES)
def test_rounds_are_those_of_an_independent_simulation(policy, availability, dropout):
    on, drop = AVAILABILITY[availability], DROPOUT[dropout]
    result = fs.run(
        fs.Scenario(
            problem=fs.problems.GaussianMean.synthetic(CLIENTS, dim=DIM, samples=2, seed=1),
            algorithm=fs.algorithms.FALD(step_size=1e-6, local_steps=1),
            network=fs.topologies.star(CLIENTS, uplink_bps=UP, downlink_bps=DOWN, latency_s=LATENCY),
            devices=Script(on, drop),
            participation=POLICIES[policy],
            budget=fs.Budget(rounds=ROUNDS),
            record=fs.Record(events=True),
            seed=5,
        ),
        timing_only=True,
    )
    events = result.events[result.events["event"] == "select"]
    now = 0.0
    for _, found in result.rounds.iterrows():
        if on is not None:
            now = min(next_on(own, now) for own in on)  # the clock waits for somebody
        assert found["opened_s"] == pytest.approx(now, abs=1e-9)
        now = float(found["opened_s"])  # the same to the last bit, so that both ask for the same fates
        who = sorted(events.loc[events["round"] == found["round"], "client"].tolist())
        there = [c for c in range(CLIENTS) if on is None or next_on(on[c], now) == now]
        assert set(who) <= set(there)
        wanted = {"full": len(there), "uniform": min(3, len(there)), "deadline": len(there)}
        assert len(who) == wanted.get(policy, len(who))
        closed, row = row_of(policy, now, who, on, drop)
        assert found["closed_s"] == pytest.approx(closed, abs=1e-9)
        for column, value in row.items():
            assert found[column] == pytest.approx(value, abs=1e-9), (int(found["round"]), column)
        now = float(found["closed_s"])
    if result.stopped_by == ("no clients",):
        assert min(next_on(own, now) for own in on) == math.inf
    else:
        assert len(result.rounds) == ROUNDS
