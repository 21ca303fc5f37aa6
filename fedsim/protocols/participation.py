"""The contract of a participation policy, what it sees of a round, and the policy as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.protocols.algorithms import Rng
from fedsim.rules.closing import Closing

WEIGHTINGS = {  # the weights of `replies.mean` that a policy may declare
    "p": "p_c where all clients were received, else as normalised",
    "normalised": "p_c renormalised over the received",
    "uniform": "1 / received",
    "multiplicity": "how often each was drawn, renormalised: clients are drawn with probability p_c",
    "scaled": "p_c N / received, which do not sum to one: for optimisers alone",
}


class PolicyColumns(NamedTuple):
    """Which clients a policy selects, and when it closes a round."""

    selection: int  # a code of rules.selection
    size: int = 0  # clients, or draws; 0: all clients
    probability: float | tuple[float, ...] = 1.0  # of a client, for BERNOULLI
    closing: Closing = Closing()


class View(Protocol):
    """What a policy sees of one replica."""

    clients: int
    weights: Array  # p_c
    sizes: Array  # n_c
    round: int  # from 1
    now_s: float
    opened_s: float
    selected: Any  # client numbers of this round
    arrived: Any
    in_flight: Any

    def online_clients(self) -> Array:
        """Return the clients that are online now."""

    def available(self) -> Any:
        """Return a mask of the clients that are online; True: all are."""

    def sample_available(self, size: int) -> Array:
        """Return `size` different clients, uniformly among those online; fewer if fewer are."""

    def sample_weighted(self, draws: int) -> Array:
        """Return clients drawn with probability p_c among those online; repeats count."""

    def received(self, ids: npt.ArrayLike) -> Array:
        """Return how many replies of each client have arrived in time so far."""

    def last(self, ids: npt.ArrayLike, column: str = "duration_s") -> Array:
        """Return a column of each client's latest reply: "duration_s", "received_s", "round" or "loss"; NaN: none."""


class PolicyLike(Protocol):
    """The required members of a policy. A round also closes when no visit is outstanding."""

    def select(self, view: View, rng: Rng) -> Any:
        """Return the cohort: client numbers, repeats allowed, or a mask (clients,)."""

    def close(self, view: View) -> float:
        """Return the time at which the round closes; called at the opening and after every arrival; inf: wait."""


class Policy(PolicyLike, Protocol):
    """All members of a policy, with the defaults of the optional ones."""

    wrapped: Any  # the object itself, once it has defaults

    batched: bool = False  # `select` also serves all replicas at once: the ids are then (replicas, n)
    always: bool = False  # it selects all clients in every round
    waits: bool = False  # `close` ends a round when no visit is outstanding, and never before
    asynchronous: bool = False  # clients work continuously, and `replies` arrivals make a round
    replies: int = 1
    size: int | None = None  # clients selected, or at work; None: all, or unknown
    discount: Callable[[int], float] | None = None  # of a reply's staleness
    weighting: str | None = "normalised"  # a word of WEIGHTINGS; None: "uniform", unless the algorithm has its own
    weigh: Callable[[Received], npt.ArrayLike] | None = None  # own weights of `replies.mean`, instead of a word
    at_least: int | None = None  # clients that must be online before a round opens
    history: bool = False  # it reads `view.received` or `view.last`, so visits are simulated one by one

    def check(self, clients: int) -> None:
        """Refuse a population that it cannot serve."""

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool] | None:
        """Return each client's probability to be selected and waited for, and True if exact (else a bound).

        A client is one of `clients` at its server or edge, (clients,), and weighs `weights` among them. None: unknown.
        """
        return None

    def to_columns(self) -> PolicyColumns | None:
        """Return columns for the compiled clock; None: SimPy clock only."""
        return None


@dataclass(frozen=True)
class Received:
    """The replies that a round aggregates: one row each, sorted by replica, then client."""

    p: Array  # (m,) the clients' weights p_c
    multiplicity: Array  # (m,) how often each was drawn
    starts: Array  # (replicas + 1,) replica r owns rows starts[r]:starts[r + 1]
    clients: int | Array  # of the population; over tiers of each row's edge, (m,)
    policy: Policy | None = None  # the policy that selected them
    weights: Array | None = None  # (m,) those that the policy declares

    def normalised(self, a: Array) -> Array:
        """Return `a` divided by its sum over the replica's rows, summed in client order."""
        row = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return np.asarray(a / np.bincount(row, a)[row])

    @property
    def counts(self) -> Array:
        """The number of replies of the same replica, per row."""
        count = np.diff(self.starts)
        return np.repeat(count, count)
