"""Who has given away how much: kept up to date from the uploads that really began, visit by visit.

A visit counts once a bit of its reply is on the uplink, whether the reply arrives, breaks off, comes too late
or is thrown away: it was said, and somebody may have heard it. The visits of a client compose. Clients do
not, for a row lives on one client only and the others' replies depend on it through the broadcasts alone;
hence the worst client.
"""

from __future__ import annotations

import math

import numpy as np

from fedsim.arrays import Array, Arrays, Numbers
from fedsim.errors import InvalidInput
from fedsim.privacy.rdp import ORDERS, Mechanism, to_epsilon

LIMIT_BYTES = 8_000_000_000


class Ledger:
    """The accounts of all clients in all replicas. What an entry costs follows the uploads, not the population.

    With the same noise in all rounds visits are counted, and the largest count of each kind of client decides.
    Otherwise every client's Renyi divergences are summed, which is right whoever took part when.
    """

    def __init__(self, mechanism: Mechanism, replicas: int, delta: float) -> None:
        self.mechanism, self.delta = mechanism, delta
        shape = (replicas, mechanism.clients)
        size = 0 if mechanism.constant else math.prod(shape) * ORDERS.nbytes
        if size > LIMIT_BYTES:
            raise InvalidInput(
                f"privacy.spent: noise that varies by round takes {size / 1e9:.0f} GB of accounts for "
                f"{mechanism.clients:,} clients in {replicas} replicas; use a constant step size, or run fewer "
                "replicas at a time, such as replicas=range(0, 1)"
            )
        self.visits = np.zeros(shape, np.int64)  # pages come on use
        self._most = np.zeros((replicas, mechanism.kinds), np.int64)
        self._rdp: Array | None = None if mechanism.constant else np.zeros((*shape, len(ORDERS)))
        self._worst = np.zeros(replicas)

    def add(self, replica: Array, client: Array, round: Numbers) -> None:
        """Enter uploads that began: replicas (m,) by position, clients (m,), the round they started from."""
        if not len(client):
            return
        kinds, many = self.mechanism.kind, self.mechanism.clients
        replicas, clients, times = _pairs(replica, client, many)
        self.visits[replicas, clients] += times
        if self._rdp is None:
            kind = kinds[clients]
            np.maximum.at(self._most, (replicas, kind), self.visits[replicas, clients])
            replicas, kind, _ = _pairs(replicas, kind, self.mechanism.kinds)
            rdp = self._most[replicas, kind, None] * self.mechanism.rdp(kind, 0)
        else:
            started = np.broadcast_to(np.asarray(round), client.shape)
            for number in np.unique(started):
                own = started == number
                r, c, n = _pairs(replica[own], client[own], many)
                self._rdp[r, c] += n[:, None] * self.mechanism.rdp(kinds[c], int(number))
            rdp = self._rdp[replicas, clients]
        np.maximum.at(self._worst, replicas, to_epsilon(rdp, self.delta))

    def epsilon(self) -> Array:
        """The worst client's epsilon so far, (replicas,)."""
        return self._worst.copy()

    def discard(self, replicas: Array, before: Array) -> None:
        """Go back to the epsilon (all replicas,) before a round that ended these replicas and does not count."""
        self._worst[replicas] = before[replicas]

    def state(self) -> Arrays:
        """What a checkpoint has to keep."""
        out = {"visits": self.visits, "most": self._most, "worst": self._worst}
        return out if self._rdp is None else out | {"rdp": self._rdp}

    def restore(self, state: Arrays) -> None:
        """Take up where a checkpoint left off."""
        self.visits, self._most, self._worst = state["visits"], state["most"], state["worst"]
        self._rdp = state.get("rdp")


def _pairs(first: Array, second: Array, many: int) -> tuple[Array, Array, Array]:
    """The different pairs, sorted, and how often each occurs; `second` is below `many`."""
    pairs, times = np.unique(first * many + second, return_counts=True)
    return pairs // many, pairs % many, times
