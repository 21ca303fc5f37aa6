"""Who takes part, and when a round closes: two small pure functions.

`select(view, rng)` names the clients, `close(view)` the instant at which the round ends (inf: keep waiting). A
policy with `batched = True` promises that its `select` also serves all replicas at once: `rng` and `view` then
have a leading replicas axis and the ids come out as (replicas, size). `weigh` turns the replies that arrived
into the weights of `replies.mean`; `closing` is `close` in closed form, for rounds in which nobody waits for a
link.

A policy of your own needs `select` and `close`; its replies are weighted by p_c renormalised over the arrived.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput, positive, shown, whole

Array = npt.NDArray[Any]


class View(Protocol):
    """What a policy may look at."""

    clients: int
    weights: Array  # p_c
    round: int
    now_s: float
    opened_s: float
    selected: Array
    arrived: Array
    in_flight: Array

    def sample_available(self, size: int) -> Array:
        """So many different clients, uniformly among those that are available now (fewer if fewer are)."""

    def last(self, ids: Array, column: str) -> Array:
        """What the clients' latest finished visit recorded, such as "duration_s"; NaN where there was none."""


@dataclass(frozen=True)
class Arrived:
    """The replies that a round folds: one row each, sorted by replica, then client."""

    p: Array  # (m,) the clients' weights p_c
    multiplicity: Array  # (m,) how often each was drawn
    starts: Array  # (replicas + 1,) replica r owns rows starts[r]:starts[r + 1]
    clients: int  # of the whole population
    policy: Any = None  # the one that selected them, for algorithms that weigh by scheme

    def normalised(self, a: Array) -> Array:
        """`a` divided by its sum over the replica's rows, summed in client order."""
        totals = np.zeros(len(self.starts) - 1)
        row = np.repeat(np.arange(len(totals)), np.diff(self.starts))
        np.add.at(totals, row, a)  # unbuffered, hence sequential
        return np.asarray(a / totals[row])

    @property
    def counts(self) -> Array:
        """How many of its own replica arrived, per row."""
        count = np.diff(self.starts)
        return np.repeat(count, count)


@dataclass(frozen=True)
class Heard:
    """When the server hears of each visit of a round, for all replicas at once: what `closing` looks at."""

    opened_s: Array  # (replicas,)
    row: Array  # (m,) the visit's replica
    ends_s: Array  # (m,) its arrival, or its loss
    dropped: Array  # bool (m,)
    tie: Callable[[], Array]  # (m,) orders visits that end at the same instant; drawn only if asked for

    def last_s(self) -> Array:
        """When nothing is outstanding any more, (replicas,)."""
        closed = self.opened_s.copy()
        np.maximum.at(closed, self.row, self.ends_s)
        return closed

    def rank(self) -> Array:
        """0 for a replica's first arrival, 1 for the next, ...; dropped visits come last. (m,)"""
        order = np.lexsort((self.tie(), self.ends_s, self.dropped, self.row))
        begin = np.searchsorted(self.row[order], np.arange(len(self.opened_s)))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - begin[self.row[order]]
        return rank


# --- Methods that several policies share ------------------------------------------------------------


def _ask(self: Any, view: Any, rng: Any) -> Array:
    """So many clients, or everybody."""
    return np.asarray(view.everybody() if self.size is None else view.sample_available(self.size))


def _wait(self: Any, view: Any) -> float:
    """Close when nothing is outstanding."""
    return float(view.now_s) if len(view.in_flight) == 0 else math.inf


def _all_in_time(self: Any, heard: Heard) -> tuple[Array, Array]:
    return heard.last_s(), np.ones(len(heard.row), bool)


def _normalised(self: Any, arrived: Arrived) -> Array:
    return arrived.normalised(arrived.p)


# --- The policies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Full:
    batched = True
    always = True  # the same clients in every round

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.everybody())

    close, closing = _wait, _all_in_time

    def weigh(self, arrived: Arrived) -> Array:
        everybody = arrived.counts == arrived.clients
        return arrived.p if everybody.all() else np.where(everybody, arrived.p, arrived.normalised(arrived.p))


@dataclass(frozen=True)
class WithReplacement:
    draws: int
    batched = True

    def __post_init__(self) -> None:
        _check_counts("with_replacement", self, "draws")

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(
            np.minimum(np.searchsorted(view.cumulative, rng.uniform(self.draws)), view.clients - 1)
        )

    close, closing = _wait, _all_in_time

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.multiplicity.astype(float))


@dataclass(frozen=True)
class Uniform:
    size: int
    weighting: str | None = None
    batched = True

    def __post_init__(self) -> None:
        _check_counts("uniform", self, "size")
        if self.weighting not in (None, "normalised", "scaled"):
            given = f"participation.uniform(weighting={self.weighting!r})"
            raise InvalidInput(f"{given}: choose 'normalised' or 'scaled'")

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.sample_available(self.size))

    close, closing = _wait, _all_in_time

    def weigh(self, arrived: Arrived) -> Array:
        if self.weighting == "scaled":
            return np.asarray(arrived.p * arrived.clients / arrived.counts)
        if self.weighting == "normalised":
            return arrived.normalised(arrived.p)
        return np.asarray(1.0 / arrived.counts)


@dataclass(frozen=True)
class Bernoulli:
    probability: Any
    batched = True

    def __post_init__(self) -> None:
        try:
            p = np.asarray(self.probability, float)
        except (TypeError, ValueError):
            p = np.full(1, np.nan)
        if p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            given = shown(self.probability)
            raise InvalidInput(f"participation.bernoulli({given}): a probability lies in (0, 1]")
        object.__setattr__(self, "probability", float(p) if p.ndim == 0 else tuple(p.tolist()))

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray((rng.uniform(view.clients) < np.asarray(self.probability)) & view.available())

    close, closing, weigh = _wait, _all_in_time, _normalised


@dataclass(frozen=True)
class First:
    replies: int
    size: int | None = None
    batched = True

    def __post_init__(self) -> None:
        _check_counts("first", self, "replies", optional="size")
        if self.size is not None and self.size < self.replies:
            given = f"participation.first({self.replies}, of={self.size})"
            raise InvalidInput(
                f"{given}: cannot wait for {self.replies} of {self.size}; ask at least {self.replies}"
            )

    def close(self, view: Any) -> float:
        return float(view.now_s) if len(view.arrived) >= self.replies else math.inf

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        rank = heard.rank()
        closed = heard.last_s()
        decisive = (rank == self.replies - 1) & ~heard.dropped
        closed[heard.row[decisive]] = heard.ends_s[decisive]
        return closed, rank < self.replies

    select, weigh = _ask, _normalised


@dataclass(frozen=True)
class Deadline:
    seconds: float
    size: int | None = None
    batched = True

    def __post_init__(self) -> None:
        remedy = "seconds must be a positive number"
        object.__setattr__(self, "seconds", positive("participation.deadline({})", self.seconds, remedy=remedy))
        _check_counts("deadline", self, optional="size")

    def close(self, view: Any) -> float:
        return float(view.opened_s + self.seconds)

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        closed = np.minimum(heard.last_s(), heard.opened_s + self.seconds)
        return closed, heard.ends_s <= closed[heard.row]

    select, weigh = _ask, _normalised


@dataclass(frozen=True)
class Buffered:
    replies: int
    size: int | None = None
    discount: Callable[[int], float] | None = None
    asynchronous = True

    def __post_init__(self) -> None:
        _check_counts("buffered", self, "replies", optional="size")
        if not (self.discount is None or callable(self.discount)):
            given = f"participation.buffered(discount={self.discount!r})"
            raise InvalidInput(f"{given}: give a function of the staleness, or None")

    def close(self, view: Any) -> float:
        return float(view.now_s) if len(view.arrived) >= self.replies else math.inf

    select, weigh = _ask, _normalised


def full() -> Full:
    """Everybody, weighted by p_c."""
    return Full()


def with_replacement(draws: int) -> WithReplacement:
    """Scheme I: so many draws with probability p_c; a client drawn twice runs once and counts twice."""
    return WithReplacement(draws)


def uniform(size: int, weighting: str | None = None) -> Uniform:
    """Scheme II: so many different clients, uniformly, averaged with 1/size.

    With unequal p_c say how to weigh: "normalised" (p_c over the arrived) or "scaled" (p_c N / size: unbiased,
    but the weights do not sum to one).
    """
    return Uniform(size, weighting)


def bernoulli(probability: Any) -> Bernoulli:
    """Every client on its own with this probability (one number, or one per client)."""
    return Bernoulli(probability)


def first(replies: int, of: int | None = None) -> First:
    """Ask `of` clients (None: everybody), close at the first so many replies: over-selection."""
    return First(replies, of)


def deadline(seconds: float, of: int | None = None) -> Deadline:
    """Ask `of` clients (None: everybody), close after so many virtual seconds, or when all have answered."""
    return Deadline(seconds, of)


def buffered(replies: int, of: int | None = None, discount: Callable[[int], float] | None = None) -> Buffered:
    """Asynchronous: `of` clients (None: all) work continuously, the server folds every so many arrivals.

    theta += sum_c w_c s(staleness) (beta_c - theta_{version c started from}), s = `discount`, 1 unless set. No
    stationary law is claimed for the samplers.
    """
    return Buffered(replies, of, discount)


def check_size(policy: Any, clients: int) -> None:
    """Refuse a policy that asks for more clients than exist."""
    size = getattr(policy, "size", None)
    if isinstance(policy, First) and size is None and policy.replies > clients:
        given = f"participation.first({policy.replies})"
        raise InvalidInput(f"{given}: only {clients} clients exist; wait for at most {clients}")
    if size is not None and size > clients:
        given = f"participation.{type(policy).__name__.lower()}({size})"
        raise InvalidInput(f"{given}: only {clients} clients exist; ask for at most {clients}")
    p = getattr(policy, "probability", None)
    if isinstance(p, tuple) and len(p) != clients:
        raise InvalidInput(
            f"participation.bernoulli: {len(p)} probabilities for {clients} clients; "
            "give one number or one per client"
        )


def _check_counts(name: str, policy: Any, *counts: str, optional: str = "") -> None:
    """Called when a policy is made, not by its factory, so that a field replaced later is checked as well."""
    given = [*counts, optional] if optional and getattr(policy, optional) is not None else counts
    for field in given:
        remedy = "ask for a whole number of at least 1"
        count = whole(f"participation.{name}({{}})", getattr(policy, field), remedy=remedy)
        object.__setattr__(policy, field, count)
