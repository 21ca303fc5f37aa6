"""What a policy has to offer and may say besides, and what it sees of a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.protocols.algorithms import Rng

if TYPE_CHECKING:
    from fedsim.protocols.columns import PolicyColumns

WEIGHTINGS = {  # the weights of `replies.mean` that a policy may declare
    "p": "p_c where all clients arrived, else as normalised",
    "normalised": "p_c renormalised over the arrived",
    "uniform": "1 / arrived",
    "multiplicity": "how often each was drawn, renormalised: p_c decides who is asked",
    "scaled": "p_c N / arrived, which do not sum to one: for optimisers alone",
}


class View(Protocol):
    """What a policy sees of one replica."""

    clients: int
    weights: Array  # p_c
    sizes: Array  # n_c
    round: int
    now_s: float
    opened_s: float
    selected: Any  # client numbers of this round
    arrived: Any
    in_flight: Any

    def all_clients(self) -> Array:
        """Who is on now."""

    def available(self) -> Any:
        """A mask of who is on; True: all are."""

    def sample_available(self, size: int) -> Array:
        """So many different clients, uniformly among those that are on; fewer if fewer are."""

    def sample_weighted(self, draws: int) -> Array:
        """So many draws with probability p_c among those that are on; repeats count."""

    def received(self, ids: npt.ArrayLike) -> Array:
        """How many replies of each client arrived in time so far."""

    def last(self, ids: npt.ArrayLike, column: str = "duration_s") -> Array:
        """Of each client's latest reply: "duration_s", "received_s", "round" or "loss"; NaN where there was none."""


class PolicyLike(Protocol):
    """Who takes part, and when a round closes; it also closes when nothing is outstanding."""

    def select(self, view: View, rng: Rng) -> Any:
        """Client numbers, repeats allowed, or a mask (clients,)."""

    def close(self, view: View) -> float:
        """When the round ends, asked at the opening and after every arrival; inf: keep waiting."""


class Policy(PolicyLike, Protocol):
    """What a policy may say besides."""

    wrapped: Any  # the object itself, once it has defaults

    batched: bool = (
        False  # `select` also serves all replicas at once: `view.all_clients()` and the ids are (replicas, n)
    )
    always: bool = False  # everybody, in every round
    waits: bool = False  # `close` ends a round when nothing is outstanding, and never before
    asynchronous: bool = False  # clients work continuously, and `replies` arrivals make a round
    replies: int = 1
    size: int | None = None  # how many are asked, or at work; None: all, or not known
    discount: Callable[[int], float] | None = None  # of a reply's staleness
    weighting: str | None = "normalised"  # a word of WEIGHTINGS; None: "uniform", unless an algorithm knows better
    weigh: Callable[[Received], npt.ArrayLike] | None = None  # own weights of `replies.mean`, instead of a word
    at_least: int | None = None  # so many must be on before a round opens
    history: bool = False  # it looks at `view.received` or `view.last`, so visits are followed one by one

    def check(self, clients: int) -> None:
        """Refuse a population that it cannot serve."""

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool] | None:
        """Everybody's chance to be asked and waited for, and whether that is exact or a bound; None: unknown.

        A client is one of `clients` at its server or edge, (clients,), and weighs `weights` among them.
        """
        return None

    def to_columns(self) -> PolicyColumns | None:
        """Return the policy as columns for the compiled clock; None: it runs on the SimPy clock."""
        return None


@dataclass(frozen=True)
class Received:
    """The replies that a round folds: one row each, sorted by replica, then client."""

    p: Array  # (m,) the clients' weights p_c
    multiplicity: Array  # (m,) how often each was drawn
    starts: Array  # (replicas + 1,) replica r owns rows starts[r]:starts[r + 1]
    clients: int | Array  # of the whole population; over tiers of each row's edge, (m,)
    policy: Policy | None = None  # the one that selected them, for algorithms that weigh by scheme
    weights: Array | None = None  # (m,) those that the policy declares

    def normalised(self, a: Array) -> Array:
        """`a` divided by its sum over the replica's rows, summed in client order."""
        row = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return np.asarray(a / np.bincount(row, a)[row])

    @property
    def counts(self) -> Array:
        """How many of its own replica arrived, per row."""
        count = np.diff(self.starts)
        return np.repeat(count, count)
