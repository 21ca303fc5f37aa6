"""Devices whose every answer a test writes down."""

from __future__ import annotations

import numpy as np
from oracles.tier_clock import next_on, on_until


class Script:
    """Scripted devices: seconds and online periods by client, outcomes by client and visit number."""

    def __init__(self, seconds, fate, on):
        self.seconds, self.fate, self.on, self.always_available = seconds, fate, on, on is None
        self.visits: dict[int, int] = {}

    def compute_s(self, clients, work, now_s, rng):
        return np.array([self.seconds[c] for c in clients])

    def drop(self, clients, now_s, rng):
        fates = [self.fate(c, self._number(c)) for c in clients.tolist()]
        return np.array([f[0] for f in fates], "int8"), np.array([f[1] for f in fates], float)

    def _number(self, client):
        self.visits[client] = self.visits.get(client, -1) + 1
        return self.visits[client]

    def next_available(self, clients, now_s, rng):
        return np.array([next_on(self.on[c], float(t)) for c, t in zip(clients, now_s, strict=True)], float)

    def available_until(self, clients, now_s, rng):
        return np.array([on_until(self.on[c], float(t)) for c, t in zip(clients, now_s, strict=True)], float)
