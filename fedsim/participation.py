"""Who takes part, and when a round closes: two small pure functions.

`select(view, rng)` names the clients, `close(view)` the instant at which the round ends (inf: keep waiting). A
policy with `batched = True` promises that its `select` also serves all replicas at once: `rng` and `view` then have
a leading replicas axis and the ids come out as (replicas, size). `weigh` turns the replies that arrived into the
weights of `replies.mean`; `closing` is `close` in closed form, for rounds in which nobody waits for anybody's link.

A policy of your own needs `select` and `close`; its replies are weighted by p_c renormalised over the arrived.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput, is_whole

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
    """When the server hears of each visit of a round, for all replicas at once (`closing` of the batched policies)."""

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


def last_arrival(view: Any) -> float:
    """Close when nothing is outstanding."""
    return float(view.now_s) if len(view.in_flight) == 0 else math.inf


@dataclass(frozen=True)
class Full:
    batched = True
    always = True  # the same clients in every round

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.everybody())

    def close(self, view: Any) -> float:
        return last_arrival(view)

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        return heard.last_s(), np.ones(len(heard.row), bool)

    def weigh(self, arrived: Arrived) -> Array:
        everybody = arrived.counts == arrived.clients
        return arrived.p if everybody.all() else np.where(everybody, arrived.p, arrived.normalised(arrived.p))


@dataclass(frozen=True)
class WithReplacement:
    draws: int
    batched = True

    def select(self, view: Any, rng: Any) -> Array:
        return np.minimum(np.searchsorted(view.cumulative, rng.uniform(self.draws)), view.clients - 1)

    def close(self, view: Any) -> float:
        return last_arrival(view)

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        return heard.last_s(), np.ones(len(heard.row), bool)

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.multiplicity.astype(float))


@dataclass(frozen=True)
class Uniform:
    size: int
    weighting: str | None = None
    batched = True

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.sample_available(self.size))

    def close(self, view: Any) -> float:
        return last_arrival(view)

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        return heard.last_s(), np.ones(len(heard.row), bool)

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

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(rng.uniform(view.clients) < np.asarray(self.probability)) & view.available()

    def close(self, view: Any) -> float:
        return last_arrival(view)

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        return heard.last_s(), np.ones(len(heard.row), bool)

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.p)


@dataclass(frozen=True)
class First:
    replies: int
    size: int | None = None
    batched = True

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.everybody() if self.size is None else view.sample_available(self.size))

    def close(self, view: Any) -> float:
        return float(view.now_s) if len(view.arrived) >= self.replies else math.inf

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        rank = heard.rank()
        closed = heard.last_s()
        decisive = (rank == self.replies - 1) & ~heard.dropped
        closed[heard.row[decisive]] = heard.ends_s[decisive]
        return closed, rank < self.replies

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.p)


@dataclass(frozen=True)
class Deadline:
    seconds: float
    size: int | None = None
    batched = True

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.everybody() if self.size is None else view.sample_available(self.size))

    def close(self, view: Any) -> float:
        return float(view.opened_s + self.seconds)

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        closed = np.minimum(heard.last_s(), heard.opened_s + self.seconds)
        return closed, heard.ends_s <= closed[heard.row]

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.p)


@dataclass(frozen=True)
class Buffered:
    replies: int
    size: int | None = None
    discount: Callable[[int], float] | None = None
    asynchronous = True

    def select(self, view: Any, rng: Any) -> Array:
        return np.asarray(view.everybody() if self.size is None else view.sample_available(self.size))

    def close(self, view: Any) -> float:
        return float(view.now_s) if len(view.arrived) >= self.replies else math.inf

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.p)


def full() -> Full:
    """Everybody, weighted by p_c."""
    return Full()


def with_replacement(draws: int) -> WithReplacement:
    """Scheme I: so many draws with probability p_c; a client drawn twice runs once and counts twice."""
    return WithReplacement(_count("with_replacement", draws))


def uniform(size: int, weighting: str | None = None) -> Uniform:
    """Scheme II: so many different clients, uniformly, averaged with 1/size.

    With unequal p_c say how to weigh: "normalised" (p_c over the arrived) or "scaled" (p_c N / size: unbiased,
    but the weights do not sum to one).
    """
    if weighting not in (None, "normalised", "scaled"):
        raise InvalidInput(f"participation.uniform(weighting={weighting!r}): choose 'normalised' or 'scaled'")
    return Uniform(_count("uniform", size), weighting)


def bernoulli(probability: Any) -> Bernoulli:
    """Every client on its own with this probability (one number, or one per client)."""
    try:
        p = np.asarray(probability, float)
    except (TypeError, ValueError):
        p = np.full(1, np.nan)
    if p.ndim > 1 or not np.all((p > 0) & (p <= 1)):
        raise InvalidInput(f"participation.bernoulli({probability}): a probability lies in (0, 1]")
    return Bernoulli(float(p) if p.ndim == 0 else tuple(p.tolist()))


def first(replies: int, of: int | None = None) -> First:
    """Ask `of` clients (None: everybody), close at the first so many replies: over-selection."""
    _count("first", replies)
    if of is not None and _count("first", of) < replies:
        raise InvalidInput(f"participation.first({replies}, of={of}): cannot wait for {replies} of {of}; ask at least {replies}")
    return First(replies, of)


def deadline(seconds: float, of: int | None = None) -> Deadline:
    """Ask `of` clients (None: everybody), close after so many virtual seconds, or when all have answered."""
    if not (isinstance(seconds, (int, float)) and seconds > 0 and math.isfinite(seconds)):
        raise InvalidInput(f"participation.deadline({seconds}): seconds must be a positive number")
    return Deadline(float(seconds), None if of is None else _count("deadline", of))


def buffered(replies: int, of: int | None = None, discount: Callable[[int], float] | None = None) -> Buffered:
    """Asynchronous: `of` clients (None: all) work continuously, the server folds every so many arrivals.

    theta += sum_c w_c s(staleness) (beta_c - theta_{version c started from}), s = `discount`, 1 unless set. No stationary law
    is claimed for the samplers.
    """
    return Buffered(_count("buffered", replies), None if of is None else _count("buffered", of), discount)


def check_size(policy: Any, clients: int) -> None:
    """Refuse a policy that asks for more clients than exist."""
    size = getattr(policy, "size", None)
    if isinstance(policy, First) and size is None and policy.replies > clients:
        raise InvalidInput(f"participation.first({policy.replies}): only {clients} clients exist; wait for at most {clients}")
    if size is not None and size > clients:
        raise InvalidInput(
            f"participation.{type(policy).__name__.lower()}({size}): only {clients} clients exist; ask for at most {clients}"
        )
    p = getattr(policy, "probability", None)
    if isinstance(p, tuple) and len(p) != clients:
        raise InvalidInput(
            f"participation.bernoulli: {len(p)} probabilities for {clients} clients; give one number or one per client"
        )


def _count(name: str, value: int) -> int:
    if not is_whole(value, least=1):
        raise InvalidInput(f"participation.{name}({value}): ask for a whole number of at least 1")
    return int(value)
