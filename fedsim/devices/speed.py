"""How fast a client computes, and how much slower it is today.

A *speed* belongs to the client: it is the same in every round and every replica. A *slow-down* belongs to the
visit: other programs, heat and weak batteries multiply the time of one round. Logarithm and exponential are our
own, so that a client's seconds have the same bits on every machine and however many are asked at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsim import rng as numpy_draws
from fedsim.arrays import Array
from fedsim.checks import check_int
from fedsim.per_client import check_field
from fedsim.protocols import SlowdownColumns
from fedsim.rng import Draws, Stream
from fedsim.rng.elementary import exp, log64
from fedsim.rules import draws

NEVER_PLAYED = 2**32 - 1  # the round of draws that belong to no round, so that no visit shares their key


class Slowdown(Protocol):
    """A factor on the compute time of a visit."""

    def factor(self, rng: Draws) -> Array: ...  # (rows,)

    def describe(self) -> str: ...


@dataclass(frozen=True)
class LognormalSpeed:
    """Seconds per step of client c: `median_step_s * exp(sigma * z_c)`, a standard normal z_c for (seed, c).

    Only the clients asked for are drawn, so the size of the population costs nothing.
    """

    median_step_s: float
    sigma: float
    seed: int = 0

    def __post_init__(self) -> None:
        check_field(self, "median_step_s", "lognormal median_step_s")
        check_field(self, "sigma", "lognormal sigma", high=50.0)
        remedy = "a seed is an integer from 0 to 2**64 - 1"
        object.__setattr__(self, "seed", check_int("lognormal seed={!r}", self.seed, 0, remedy, 2**64 - 1))

    def seconds_per_step(self, clients: Array, source: Any = None) -> Array:
        """(n,) seconds; `source` is `fedsim.rng` or its compiled twin."""
        top = int(clients.max()) + 1
        if top < len(clients):  # many visits of few clients: draw each client once
            return self.seconds_per_step(np.arange(top), source)[clients]
        source = source or numpy_draws
        key = source.keys(int(self.seed), Stream.COMPUTE, client=clients, round=NEVER_PLAYED)
        return self.median_step_s * exp(self.sigma * source.normal(key, 1)[:, 0])


@dataclass(frozen=True)
class LognormalSlowdown:
    """`exp(sigma * z)`, a new standard normal z at every visit: median 1, mean exp(sigma**2 / 2)."""

    sigma: float

    def __post_init__(self) -> None:
        check_field(self, "sigma", "lognormal_slowdown sigma", high=50.0)

    def factor(self, rng: Draws) -> Array:
        return exp(self.sigma * rng.normal())

    def to_columns(self) -> SlowdownColumns:
        return SlowdownColumns(draws.LOGNORMAL, self.sigma)

    def describe(self) -> str:
        return "lognormal slow-down"


@dataclass(frozen=True)
class ParetoSlowdown:
    """At least 1, above x with probability `x**-shape`: the heavy tail of stragglers."""

    shape: float

    def __post_init__(self) -> None:
        check_field(self, "shape", "pareto_slowdown shape", low=0.1)  # below, the largest factors overflow

    def factor(self, rng: Draws) -> Array:
        return exp(exponential(rng.uniform()) / self.shape)

    def to_columns(self) -> SlowdownColumns:
        return SlowdownColumns(draws.PARETO, self.shape)

    def describe(self) -> str:
        return "Pareto slow-down"


@dataclass(frozen=True)
class BimodalSlowdown:
    """`slow_factor` with the given probability, else 1: a device that is sometimes busy."""

    probability: float
    slow_factor: float

    def __post_init__(self) -> None:
        check_field(self, "probability", "bimodal_slowdown probability", high=1.0)
        check_field(self, "slow_factor", "bimodal_slowdown factor")

    def factor(self, rng: Draws) -> Array:
        return np.where(rng.uniform() < self.probability, self.slow_factor, 1.0)

    def to_columns(self) -> SlowdownColumns:
        return SlowdownColumns(draws.BIMODAL, self.probability, self.slow_factor)

    def describe(self) -> str:
        return f"{self.probability:.3g} of the visits {self.slow_factor:.3g} times as long"


def lognormal_slowdown(sigma: float) -> LognormalSlowdown:
    """Every visit takes exp(sigma * z) times as long, z standard normal."""
    return LognormalSlowdown(sigma)


def pareto_slowdown(shape: float) -> ParetoSlowdown:
    """Every visit takes at least its time, and x times as long with tail probability x**-shape."""
    return ParetoSlowdown(shape)


def bimodal_slowdown(probability: float, factor: float) -> BimodalSlowdown:
    """A visit takes `factor` times as long with this probability."""
    return BimodalSlowdown(probability, factor)


def exponential(u: Array) -> Array:
    """Unit exponentials from uniforms in (0, 1)."""
    return -log64(u)
