"""Policies that wait for everybody they asked: a round closes when nothing is outstanding.

Policies that close before everybody has answered.

What they have in common are functions, which their classes name as methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_float_array, check_choice, check_positive
from fedsim.errors import InvalidInput
from fedsim.participation.counts import Sized, check_counts, check_size, check_wait
from fedsim.protocols import PolicyColumns, Rng, View
from fedsim.rules import selection
from fedsim.rules.closing import AT_DEADLINE, AT_REPLIES, Closing, closing_s
from fedsim.text import short_repr, short_str


def _wait(self: object, view: View) -> float:
    """Close when nothing is outstanding."""
    return float(view.now_s) if len(view.in_flight) == 0 else math.inf


@dataclass(frozen=True)
class Full:
    batched = waits = True
    always = True  # the same clients in every round
    weighting = "p"

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.all_clients())

    close = _wait

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.ALL)

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return np.ones(len(weights)), True


@dataclass(frozen=True)
class WithReplacement:
    draws: int
    at_least: int | None = None
    batched = waits = True
    weighting = "multiplicity"

    def __post_init__(self) -> None:
        check_counts("with_replacement", self, "draws", optional=("at_least",))

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.sample_weighted(self.draws))

    close = _wait

    @property
    def size(self) -> int:
        """How many different clients are asked, at the most."""
        return self.draws

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.BY_WEIGHT, self.draws)

    def check(self, clients: int) -> None:
        check_wait(self, clients, "with_replacement")

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return 1 - (1 - weights) ** self.draws, True


@dataclass(frozen=True)
class Uniform:
    size: int
    weighting: str | None = None
    at_least: int | None = None
    batched = waits = True

    def __post_init__(self) -> None:
        check_counts("uniform", self, "size", optional=("at_least",))
        remedy = "choose 'normalised' or 'scaled'"
        where = "participation.uniform(weighting={!r})"
        check_choice(where, self.weighting, (None, "normalised", "scaled"), remedy)

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.sample_available(self.size))

    close, check = _wait, check_size

    def to_columns(self) -> PolicyColumns:
        return PolicyColumns(selection.UNIFORM, self.size)

    def chance(self, weights: Array, clients: Array) -> tuple[Array, bool]:
        return self.size / clients, True


@dataclass(frozen=True)
class Bernoulli:
    probability: Any
    batched = waits = True

    def __post_init__(self) -> None:
        p = as_float_array(self.probability)
        if p is None or p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            given = short_str(self.probability)
            raise InvalidInput(f"participation.bernoulli({given}): a probability lies in (0, 1]")
        object.__setattr__(self, "probability", float(p) if p.ndim == 0 else tuple(p.tolist()))

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray((rng.uniform(view.clients) < np.asarray(self.probability)) & view.available())

    close = _wait

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


def _ask(self: Sized, view: View, rng: Rng) -> Array:
    """So many clients, or everybody."""
    return np.asarray(view.all_clients() if self.size is None else view.sample_available(self.size))


def _columns(self: Sized, rule: Closing) -> PolicyColumns:
    return PolicyColumns(selection.ALL if self.size is None else selection.UNIFORM, self.size or 0, closing=rule)


def _closing_s(rule: Closing, view: View) -> float:
    return closing_s(rule, view.opened_s, float(view.now_s), len(view.selected), len(view.arrived))


def _at_most(self: Sized, weights: Array, clients: Array) -> tuple[Array, bool]:
    """Who is asked may be late: no more than the chance to be asked."""
    return np.ones(len(weights)) if self.size is None else self.size / clients, False


@dataclass(frozen=True)
class First:
    replies: int
    size: int | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        check_counts("first", self, "replies", optional=("size", "at_least"))
        if self.size is not None and self.size < self.replies:
            given = f"participation.first({self.replies}, of={self.size})"
            raise InvalidInput(f"{given}: cannot wait for {self.replies} of {self.size}; ask at least {self.replies}")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_REPLIES, float(self.replies))

    def close(self, view: View) -> float:
        return _closing_s(self._closing, view)

    def check(self, clients: int) -> None:
        check_size(self, clients)
        if self.size is None and self.replies > clients:
            given = f"participation.first({self.replies})"
            raise InvalidInput(f"{given}: only {clients} clients exist; wait for at most {clients}")

    def to_columns(self) -> PolicyColumns:
        return _columns(self, self._closing)

    select, chance = _ask, _at_most


@dataclass(frozen=True)
class Deadline:
    seconds: float
    size: int | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        remedy = "seconds must be a positive number"
        object.__setattr__(self, "seconds", check_positive("participation.deadline({})", self.seconds, remedy=remedy))
        check_counts("deadline", self, optional=("size", "at_least"))

    @property
    def _closing(self) -> Closing:
        return Closing(AT_DEADLINE, self.seconds)

    def close(self, view: View) -> float:
        return _closing_s(self._closing, view)

    def to_columns(self) -> PolicyColumns:
        return _columns(self, self._closing)

    select, check, chance = _ask, check_size, _at_most


@dataclass(frozen=True)
class Buffered:
    replies: int
    size: int | None = None
    discount: Callable[[int], float] | None = None
    asynchronous, at_least = True, None

    def __post_init__(self) -> None:
        check_counts("buffered", self, "replies", optional=("size",))
        if not (self.discount is None or callable(self.discount)) or isinstance(self.discount, type):
            given = f"participation.buffered(discount={short_repr(self.discount)})"
            raise InvalidInput(f"{given}: give a function of the staleness, or None")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_REPLIES, float(self.replies))

    def close(self, view: View) -> float:
        return _closing_s(self._closing, view)

    def to_columns(self) -> PolicyColumns:
        return _columns(self, self._closing)

    select, check = _ask, check_size
