"""The privacy ledger: each client's epsilon, from all uploads that have begun.

A visit counts once a bit of its reply is on the uplink, whether the reply arrives, is cut, is late or is discarded: it
may have been observed. The visits of a client compose. Clients do not, since a row is on one client only and other
replies depend on it through the broadcasts alone; so the worst client counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from fedsim.arrays import Array, Arrays, Numbers
from fedsim.checks import check_int
from fedsim.errors import InvalidInput
from fedsim.privacy.accountant import ORDERS, Guarantee, Mechanism, check, check_mechanism, to_epsilon
from fedsim.protocols import AlgorithmLike, PrivacyMechanism, ProblemLike
from fedsim.text import short_repr

LIMIT_BYTES = 8_000_000_000


class Ledger:
    """The privacy loss of all clients in all replicas. The cost of an entry depends on the uploads, not the population.

    With the same noise in all rounds, visits are counted, and the largest count of each kind of client decides.
    Otherwise every client's Renyi divergences are summed.
    """

    def __init__(self, mechanism: Mechanism, replicas: int, delta: float) -> None:
        self.mechanism, self.delta = mechanism, delta
        shape = (replicas, mechanism.clients)
        size = 0 if mechanism.constant else math.prod(shape) * ORDERS.nbytes
        if size > LIMIT_BYTES:
            raise InvalidInput(
                f"privacy.spent: noise that varies by round takes {size / 1e9:.0f} GB for "
                f"{mechanism.clients:,} clients in {replicas} replicas; use a constant step size, or run fewer "
                "replicas at a time, such as replicas=range(0, 1)"
            )
        self.visits = np.zeros(shape, np.int64)  # memory is allocated on first use
        self._most = np.zeros((replicas, mechanism.kinds), np.int64)
        self._rdp: Array | None = None if mechanism.constant else np.zeros((*shape, len(ORDERS)))
        self._worst = np.zeros(replicas)

    def add(self, replica: Array, client: Array, round: Numbers) -> None:
        """Add uploads that began: replicas (m,) by position, clients (m,), the round they started from."""
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
        """Return the worst client's epsilon so far, (replicas,)."""
        return self._worst.copy()

    def discard(self, replicas: Array, before: Array) -> None:
        """Restore the epsilon (all replicas,) before a round that stopped these replicas and does not count."""
        self._worst[replicas] = before[replicas]

    def state(self) -> Arrays:
        """Return the state for a checkpoint."""
        out = {"visits": self.visits, "most": self._most, "worst": self._worst}
        return out if self._rdp is None else out | {"rdp": self._rdp}

    def restore(self, state: Arrays) -> None:
        """Restore the state of a checkpoint."""
        self.visits, self._most, self._worst = state["visits"], state["most"], state["worst"]
        self._rdp = state.get("rdp")


def _pairs(first: Array, second: Array, many: int) -> tuple[Array, Array, Array]:
    """Return the distinct pairs, sorted, and how often each occurs; `second` is below `many`."""
    pairs, times = np.unique(first * many + second, return_counts=True)
    return pairs // many, pairs % many, times


class LedgerView(Protocol):
    """What the metric sees: the ledger that `Spent.ledger` made, with all uploads so far."""

    @property
    def ledger(self) -> Ledger: ...


@dataclass(frozen=True)
class Spent:
    """The epsilon of the worst client, from the ledger."""

    delta: float
    sensitivity: float | None = None
    columns: ClassVar[tuple[str, ...]] = ("epsilon",)
    per_replica: ClassVar[bool] = True

    def ledger(self, algorithm: AlgorithmLike, problem: ProblemLike, replicas: int) -> Ledger:
        """Return an empty ledger for a run of this algorithm."""
        if not isinstance(algorithm, PrivacyMechanism):
            raise InvalidInput(
                f"privacy.spent: {type(algorithm).__name__} has no privacy mechanism; use FALD or "
                "PrivateFedPAQ, or give it a method mechanism(problem, sensitivity)"
            )
        return Ledger(algorithm.mechanism(problem, self.sensitivity), replicas, self.delta)

    def evaluate(self, view: LedgerView) -> Arrays:
        return {"epsilon": view.ledger.epsilon()}


def spent(delta: float, sensitivity: float | None = None) -> Spent:
    """Return the metric of the worst client's epsilon so far, at this delta: a column of `rounds`.

    It depends on the actual participation. `sensitivity`, for algorithms that do not clip, is the largest change of
    the gradient of a row's loss when the row is substituted; it is not checked, and a larger true sensitivity means a
    larger true epsilon.
    """
    check("privacy.spent", 1, delta=delta)
    if sensitivity is not None:
        check("privacy.spent", math.inf, sensitivity=sensitivity)
    return Spent(float(delta), sensitivity)


@dataclass(frozen=True)
class Comparison:
    """The guarantee of a paper and the epsilon of the accountant, at the paper's delta."""

    paper: Guarantee
    accountant: float  # epsilon
    visits: int  # in the accountant's epsilon


def compare(paper: Guarantee, mechanism: Mechanism, visits: int) -> Comparison:
    """Return a paper's guarantee and the accountant's epsilon for the worst client, visited in the first rounds.

    The two differ for the reasons listed at `fs.privacy`. Private FedPAQ guarantees an epsilon for one visit: compare
    it with visits=1; more visits give the epsilon of as many rounds.
    """
    check_mechanism("compare", mechanism)
    if not isinstance(paper, Guarantee):
        raise InvalidInput(
            f"privacy.compare(paper={short_repr(paper)}): give a privacy.Guarantee, or fald.guarantee(...)"
        )
    visits = check_int("privacy.compare(visits={})", visits, 0, most=2**53 if mechanism.constant else 10**6)
    kinds = np.arange(mechanism.kinds)
    rdp = np.zeros((mechanism.kinds, len(ORDERS)))
    if mechanism.constant and visits:
        rdp = visits * mechanism.rdp(kinds, 0)
    elif visits:
        for round in range(visits):
            rdp += mechanism.rdp(kinds, round)
    delta = min(max(paper.delta, float(np.finfo(float).tiny)), 1.0)
    return Comparison(paper, float(to_epsilon(rdp, delta).max()), visits)
