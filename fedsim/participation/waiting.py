"""Policies that wait for everybody they asked: a round closes when nothing is outstanding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import floats_of
from fedsim.errors import InvalidInput, one_of, shown
from fedsim.participation.counts import check_counts, check_size, check_wait
from fedsim.protocols import Rng, View
from fedsim.protocols.columns import PolicyColumns
from fedsim.rules import selection


def _wait(self: object, view: View) -> float:
    """Close when nothing is outstanding."""
    return float(view.now_s) if len(view.in_flight) == 0 else math.inf


@dataclass(frozen=True)
class Full:
    batched = waits = True
    always = True  # the same clients in every round
    weighting = "p"

    def select(self, view: View, rng: Rng) -> Array:
        return np.asarray(view.everybody())

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
        one_of(where, self.weighting, (None, "normalised", "scaled"), remedy)

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
        p = floats_of(self.probability)
        if p is None or p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            given = shown(self.probability)
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
