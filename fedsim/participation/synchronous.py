"""Synchronous policies: the server selects a cohort, and the round closes before the next one opens."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_float_array, check_allocation, check_choice, check_cohort, check_counts, check_positive
from fedsim.errors import InvalidInput
from fedsim.protocols import PolicyColumns, Rng, View
from fedsim.renamed import refuse_old_keywords
from fedsim.rules import selection
from fedsim.rules.closing import AT_DEADLINE, AT_REPLIES, Closing, closing_s
from fedsim.text import short_str

# --- The round closes when no visit is outstanding -------------------------------------------------------------


def close_when_idle(self: object, view: View) -> float:
    """Close when no visit is outstanding."""
    return float(view.now_s) if len(view.in_flight) == 0 else math.inf


def full() -> Full:
    """Select all online clients, weighted by p_c."""
    return Full()


@dataclass(frozen=True)
class Full:
    """All online clients."""

    batched = waits = True
    always = True  # the same clients in every round
    weighting = "p"

    close = close_when_idle

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.online_clients())

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.ALL)

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return np.ones(len(weights)), True


def with_replacement(draws: int, *, at_least: int | None = None) -> WithReplacement:
    """Scheme I: draw clients with replacement among those online, client c with probability p_c.

    A client that is drawn twice computes once and counts twice. A round opens when `at_least` clients are online.
    """
    return WithReplacement(draws, at_least=at_least)


@dataclass(frozen=True)
class WithReplacement:
    """A number of draws with replacement, by the clients' weights."""

    draws: int
    _: KW_ONLY
    at_least: int | None = None
    batched = waits = True
    weighting = "multiplicity"

    close = close_when_idle

    def __post_init__(self) -> None:
        check_counts("participation.with_replacement", self, "draws", "at_least")

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.sample_weighted(self.draws))

    @property
    def size(self) -> int:
        """The largest number of distinct clients in a cohort."""
        return self.draws

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.BY_WEIGHT, self.draws)

    def check(self, clients: int) -> None:
        check_cohort("participation.with_replacement", None, self.at_least, clients)
        check_allocation(f"participation.with_replacement({self.draws})", 16 * self.draws, "use fewer draws")

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return 1 - (1 - weights) ** self.draws, True


def uniform(size: int, *, weighting: str | None = None, at_least: int | None = None) -> Uniform:
    """Scheme II: select distinct clients uniformly among those online, and average with 1/size.

    If p_c differ, choose a weighting: "normalised" (p_c over the received replies) or, for optimisers only, "scaled"
    (p_c N / size: unbiased, but the weights do not sum to one). A round opens when `at_least` clients are online
    (None: one).
    """
    return Uniform(size, weighting=weighting, at_least=at_least)


@dataclass(frozen=True)
class Uniform:
    """A number of distinct clients, uniformly at random."""

    size: int
    _: KW_ONLY
    weighting: str | None = None
    at_least: int | None = None
    batched = waits = True

    close = close_when_idle

    def __post_init__(self) -> None:
        check_counts("participation.uniform", self, "size", "at_least")
        remedy = "choose 'normalised' or 'scaled'"
        where = "participation.uniform(weighting={!r})"
        check_choice(where, self.weighting, (None, "normalised", "scaled"), remedy)

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.sample_available(self.size))

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.UNIFORM, self.size)

    def check(self, clients: int) -> None:
        check_cohort("participation.uniform", self.size, self.at_least, clients)

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return self.size / clients, True


def bernoulli(probability: npt.ArrayLike) -> Bernoulli:
    """Select every online client independently with this probability (one number, or one per client)."""
    return Bernoulli(probability)


@dataclass(frozen=True)
class Bernoulli:
    """Every client independently, with one probability or one per client."""

    probability: Any
    batched = waits = True

    close = close_when_idle

    def __post_init__(self) -> None:
        p = as_float_array(self.probability)
        if p is None or p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            given = f"participation.bernoulli({short_str(self.probability)})"
            raise InvalidInput(f"{given}: give a probability in (0, 1], or one per client")
        object.__setattr__(self, "probability", float(p) if p.ndim == 0 else tuple(p.tolist()))

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray((rng.uniform(view.clients) < np.asarray(self.probability)) & view.available())

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.BERNOULLI, probability=self.probability)

    def check(self, clients: int) -> None:
        if isinstance(self.probability, tuple) and len(self.probability) != clients:
            raise InvalidInput(
                f"participation.bernoulli: {len(self.probability)} probabilities for {clients} clients; give one "
                "number or one per client"
            )

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return np.ones(len(weights)) * np.asarray(self.probability), True


# --- The round may close while visits are outstanding ----------------------------------------------------------


class SelectsSome(Protocol):
    """A policy that selects `of` clients, or all online clients where `of` is None."""

    @property
    def of(self) -> int | None: ...


def select_some(self: SelectsSome, view: View, rng: Rng) -> Array:
    """Return `of` clients uniformly among those online, or all of them."""
    return np.asarray(view.online_clients() if self.of is None else view.sample_available(self.of))


def columns_of(policy: SelectsSome, rule: Closing) -> PolicyColumns:
    """Return the columns of a policy that selects `of` clients and closes by a rule."""
    return PolicyColumns(selection.ALL if policy.of is None else selection.UNIFORM, policy.of or 0, closing=rule)


def close_by(rule: Closing, view: View) -> float:
    """Return the closing time that a rule gives."""
    return closing_s(rule, view.opened_s, float(view.now_s), len(view.selected), len(view.arrived))


def largest_chance(self: SelectsSome, weights: Array, clients: Array) -> tuple[Array, bool]:
    """Return the probability of being selected, an upper bound since a selected client may be late."""
    return np.ones(len(weights)) if self.of is None else self.of / clients, False


@refuse_old_keywords("fs.participation.first")
def first(k: int, *, of: int | None = None, at_least: int | None = None) -> First:
    """Over-selection: select `of` clients (None: all online) and close when k replies have arrived.

    A round opens when `at_least` clients are online.
    """
    return First(k, of=of, at_least=at_least)


@dataclass(frozen=True)
class First:
    """The first k replies of a cohort."""

    k: int
    _: KW_ONLY
    of: int | None = None
    at_least: int | None = None
    batched = True

    select, chance = select_some, largest_chance
    size = property(lambda self: self.of)
    replies = property(lambda self: self.k)

    def __post_init__(self) -> None:
        check_counts("participation.first", self, "k", "of", "at_least")
        if self.of is not None and self.of < self.k:
            given = f"participation.first({self.k}, of={self.of})"
            raise InvalidInput(f"{given}: cannot wait for {self.k} of {self.of} replies; select at least {self.k}")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_REPLIES, float(self.k))

    def close(self, view: View) -> float:
        return close_by(self._closing, view)

    def check(self, clients: int) -> None:
        check_cohort("participation.first", self.of, self.at_least, clients)
        if self.of is None and self.k > clients:
            given = f"participation.first({self.k})"
            raise InvalidInput(f"{given}: only {clients} clients exist; use at most {clients}")

    def to_columns(self) -> PolicyColumns:
        return columns_of(self, self._closing)


def deadline(seconds: float, *, of: int | None = None, at_least: int | None = None) -> Deadline:
    """Select `of` clients (None: all online) and close after `seconds`, or when no visit is outstanding.

    A round opens when `at_least` clients are online.
    """
    return Deadline(seconds, of=of, at_least=at_least)


@dataclass(frozen=True)
class Deadline:
    """The replies that arrive within a number of seconds."""

    seconds: float
    _: KW_ONLY
    of: int | None = None
    at_least: int | None = None
    batched = True

    select, chance = select_some, largest_chance
    size = property(lambda self: self.of)

    def __post_init__(self) -> None:
        remedy = "seconds must be a positive number"
        object.__setattr__(self, "seconds", check_positive("participation.deadline({})", self.seconds, remedy=remedy))
        check_counts("participation.deadline", self, "of", "at_least")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_DEADLINE, self.seconds)

    def close(self, view: View) -> float:
        return close_by(self._closing, view)

    def check(self, clients: int) -> None:
        check_cohort("participation.deadline", self.of, self.at_least, clients)

    def to_columns(self) -> PolicyColumns:
        return columns_of(self, self._closing)
