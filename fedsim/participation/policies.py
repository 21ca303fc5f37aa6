"""The policies themselves. What several have in common are functions, which their classes name as methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import floats_of
from fedsim.errors import InvalidInput, one_of, positive, quoted, shown, whole
from fedsim.kernels.clock import parts
from fedsim.kernels.clock.parts import PolicyArrays
from fedsim.protocols import Rng, View
from fedsim.protocols.policy import Arrived, VisitEnds


class Sized(Protocol):
    """A policy that asks so many clients, or all, and may wait for so many to be on."""

    @property
    def size(self) -> int | None: ...
    @property
    def at_least(self) -> int | None: ...


def _ask(self: Sized, view: View, rng: Rng) -> Array:
    """So many clients, or everybody."""
    return np.asarray(view.everybody() if self.size is None else view.sample_available(self.size))


def _wait(self: object, view: View) -> float:
    """Close when nothing is outstanding."""
    return float(view.now_s) if len(view.in_flight) == 0 else math.inf


def _all_in_time(self: object, heard: VisitEnds) -> tuple[Array, Array]:
    return heard.last_s(), np.ones(len(heard.row), bool)


def _normalised(self: object, arrived: Arrived) -> Array:
    return arrived.normalised(arrived.p)


def _asks(self: Sized, closes: int, replies: int = 0, seconds: float = math.inf) -> PolicyArrays:
    selects = parts.ALL if self.size is None else parts.SOME
    return PolicyArrays(selects, closes, self.size or 0, replies=replies, seconds=seconds)


def _check(self: Sized, clients: int) -> None:
    """Refuse to ask, or to wait for, more clients than exist."""
    name = type(self).__name__.lower()
    if self.size is not None and self.size > clients:
        raise InvalidInput(
            f"participation.{name}({self.size}): only {clients} clients exist; ask for at most {clients}"
        )
    _check_wait(self, clients, name)


def _check_wait(policy: Sized, clients: int, name: str) -> None:
    if policy.at_least is not None and policy.at_least > clients:
        given = f"participation.{name}(at_least={policy.at_least})"
        raise InvalidInput(f"{given}: only {clients} clients exist; wait for at most {clients}")


def _at_most(self: Sized, weights: Array) -> tuple[Array, bool]:
    """Who is asked may be late: no more than the chance to be asked."""
    return np.full(len(weights), (self.size or len(weights)) / len(weights)), False


# --- The policies -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Full:
    batched = True
    always = True  # the same clients in every round

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.everybody())

    close, closing = _wait, _all_in_time

    def as_arrays(self) -> PolicyArrays:
        return PolicyArrays(parts.ALL)

    def chance(self, weights: Array) -> tuple[Array, bool]:
        return np.ones(len(weights)), True

    def weigh(self, arrived: Arrived) -> Array:
        everybody = arrived.counts == arrived.clients
        return arrived.p if everybody.all() else np.where(everybody, arrived.p, arrived.normalised(arrived.p))

    def patience(self) -> tuple[float, float]:
        return math.inf, math.inf


@dataclass(frozen=True)
class WithReplacement:
    draws: int
    at_least: int | None = None
    batched = draws_by_weight = True

    def __post_init__(self) -> None:
        _check_counts("with_replacement", self, "draws", optional=("at_least",))

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.sample_weighted(self.draws))

    close, closing = _wait, _all_in_time

    @property
    def size(self) -> int:
        """How many different clients are asked, at the most."""
        return self.draws

    def as_arrays(self) -> PolicyArrays:
        return PolicyArrays(parts.WEIGHTED, draws=self.draws)

    def check(self, clients: int) -> None:
        _check_wait(self, clients, "with_replacement")

    def chance(self, weights: Array) -> tuple[Array, bool]:
        return 1 - (1 - weights) ** self.draws, True

    def weigh(self, arrived: Arrived) -> Array:
        return arrived.normalised(arrived.multiplicity.astype(float))


@dataclass(frozen=True)
class Uniform:
    size: int
    weighting: str | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        _check_counts("uniform", self, "size", optional=("at_least",))
        remedy = "choose 'normalised' or 'scaled'"
        where = "participation.uniform(weighting={!r})"
        one_of(where, self.weighting, (None, "normalised", "scaled"), remedy)

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.sample_available(self.size))

    close, closing, check = _wait, _all_in_time, _check

    def as_arrays(self) -> PolicyArrays:
        return PolicyArrays(parts.SOME, draws=self.size)

    @property
    def undecided(self) -> bool:
        return self.weighting is None

    def bias(self) -> str:
        if self.weighting is not None:
            return ""
        return (
            f"participation.uniform({self.size}) averages with 1/{self.size}, which is biased here because the "
            "clients' weights differ; choose weighting='normalised' or 'scaled', or with_replacement()"
        )

    def chance(self, weights: Array) -> tuple[Array, bool]:
        return np.full(len(weights), self.size / len(weights)), True

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
        p = floats_of(self.probability)
        if p is None or p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            given = shown(self.probability)
            raise InvalidInput(f"participation.bernoulli({given}): a probability lies in (0, 1]")
        object.__setattr__(self, "probability", float(p) if p.ndim == 0 else tuple(p.tolist()))

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray((rng.uniform(view.clients) < np.asarray(self.probability)) & view.available())

    close, closing, weigh = _wait, _all_in_time, _normalised

    def as_arrays(self) -> PolicyArrays:
        return PolicyArrays(parts.COINS, coin=self.probability)

    def check(self, clients: int) -> None:
        if isinstance(self.probability, tuple) and len(self.probability) != clients:
            raise InvalidInput(
                f"participation.bernoulli: {len(self.probability)} probabilities for {clients} clients; give one "
                "number or one per client"
            )

    def chance(self, weights: Array) -> tuple[Array, bool]:
        return np.ones(len(weights)) * np.asarray(self.probability), True


@dataclass(frozen=True)
class First:
    replies: int
    size: int | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        _check_counts("first", self, "replies", optional=("size", "at_least"))
        if self.size is not None and self.size < self.replies:
            given = f"participation.first({self.replies}, of={self.size})"
            raise InvalidInput(f"{given}: cannot wait for {self.replies} of {self.size}; ask at least {self.replies}")

    def close(self, view: View) -> float:
        return float(view.now_s) if len(view.arrived) >= self.replies else math.inf

    def closing(self, heard: VisitEnds) -> tuple[Array, Array]:
        rank = heard.rank()
        closed = heard.last_s()
        decisive = (rank == self.replies - 1) & ~heard.dropped
        closed[heard.row[decisive]] = heard.ends_s[decisive]
        return closed, rank < self.replies

    def check(self, clients: int) -> None:
        _check(self, clients)
        if self.size is None and self.replies > clients:
            given = f"participation.first({self.replies})"
            raise InvalidInput(f"{given}: only {clients} clients exist; wait for at most {clients}")

    def as_arrays(self) -> PolicyArrays:
        return _asks(self, parts.AT_REPLIES, replies=self.replies)

    select, weigh, chance = _ask, _normalised, _at_most

    def patience(self) -> tuple[float, float]:
        return self.replies, math.inf


@dataclass(frozen=True)
class Deadline:
    seconds: float
    size: int | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        remedy = "seconds must be a positive number"
        object.__setattr__(self, "seconds", positive("participation.deadline({})", self.seconds, remedy=remedy))
        _check_counts("deadline", self, optional=("size", "at_least"))

    def close(self, view: View) -> float:
        return float(view.opened_s + self.seconds)

    def closing(self, heard: VisitEnds) -> tuple[Array, Array]:
        closed = np.minimum(heard.last_s(), heard.opened_s + self.seconds)
        return closed, heard.ends_s <= closed[heard.row]

    def as_arrays(self) -> PolicyArrays:
        return _asks(self, parts.AT_DEADLINE, seconds=self.seconds)

    select, weigh, check, chance = _ask, _normalised, _check, _at_most

    def patience(self) -> tuple[float, float]:
        return math.inf, self.seconds


@dataclass(frozen=True)
class Buffered:
    replies: int
    size: int | None = None
    discount: Callable[[int], float] | None = None
    asynchronous, at_least = True, None

    def __post_init__(self) -> None:
        _check_counts("buffered", self, "replies", optional=("size",))
        if not (self.discount is None or callable(self.discount)) or isinstance(self.discount, type):
            given = f"participation.buffered(discount={quoted(self.discount)})"
            raise InvalidInput(f"{given}: give a function of the staleness, or None")

    def close(self, view: View) -> float:
        return float(view.now_s) if len(view.arrived) >= self.replies else math.inf

    def as_arrays(self) -> PolicyArrays:
        return _asks(self, parts.FOLDS, replies=self.replies)

    select, weigh, check = _ask, _normalised, _check


def _check_counts(name: str, policy: object, *counts: str, optional: tuple[str, ...] = ()) -> None:
    """Called when a policy is made, not by its factory, so that a field replaced later is checked as well."""
    for field in (*counts, *(o for o in optional if getattr(policy, o) is not None)):
        given = f"participation.{name}({'at_least=' * (field == 'at_least')}{{}})"
        count = whole(given, getattr(policy, field), remedy="ask for a whole number of at least 1")
        object.__setattr__(policy, field, count)
