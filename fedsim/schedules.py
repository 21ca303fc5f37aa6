"""Schedules of step sizes: functions of the global index t = round * local_steps + step of a local step, from 0.

The `step_size` of an algorithm is a number, one of these, or any function of t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from fedsim.checks import call_function, check_positive
from fedsim.errors import InvalidInput

__all__ = [
    "Constant",
    "InverseTime",
    "PerRound",
    "StepSize",
    "constant",
    "inverse_time",
    "per_round",
    "strongly_convex",
]

StepSize = float | Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """The same step size at every t."""

    value: float

    def __post_init__(self) -> None:
        _check_positive("constant", self)

    def __call__(self, t: int) -> float:
        return self.value


@dataclass(frozen=True)
class InverseTime:
    """a / (t + b)."""

    a: float
    b: float

    def __post_init__(self) -> None:
        _check_positive("inverse_time", self)

    def __call__(self, t: int) -> float:
        return self.a / (t + self.b)


@dataclass(frozen=True)
class PerRound:
    """eta0 / (1 + t / every) at the first step t of a round."""

    eta0: float
    every: float
    per_round = True  # evaluated at the first step of a round and constant in it

    def __post_init__(self) -> None:
        _check_positive("per_round", self)

    def __call__(self, t: int) -> float:
        return self.eta0 / (1 + t / self.every)


def constant(value: float) -> Constant:
    """Return the same step size at every t."""
    return Constant(value)


def inverse_time(a: float, b: float) -> InverseTime:
    """Return a / (t + b)."""
    return InverseTime(a, b)


def per_round(eta0: float, every: float) -> PerRound:
    """Return eta0 / (1 + t / every) with t the first step of the round, constant in a round (private FedPAQ)."""
    return PerRound(eta0, every)


def strongly_convex(smoothness: float, convexity: float) -> InverseTime:
    """Return 1 / (2 L + m t / 12), the step size of FA-LD's theorem 5.8 for L-smooth, m-convex potentials."""
    smoothness = check_positive("schedules.strongly_convex(smoothness={})", smoothness)
    convexity = check_positive("schedules.strongly_convex(convexity={})", convexity)
    if convexity > smoothness:
        raise InvalidInput(f"schedules.strongly_convex({smoothness}, {convexity}): give 0 < convexity <= smoothness")
    return InverseTime(12 / convexity, 24 * smoothness / convexity)


def step_at(step_size: StepSize, round: int, local_steps: int, step: int) -> float:
    """Return the step size of one local step of one round."""
    if not callable(step_size):
        return float(step_size)
    start = (round - 1) * local_steps
    at = start if getattr(step_size, "per_round", False) else start + step
    eta = call_function(f"step_size({at})", step_size, at)
    eta = eta.item() if hasattr(eta, "item") and getattr(eta, "size", 0) == 1 else eta
    return check_positive(f"step_size({at}) = {{}}", eta, remedy="a schedule must return positive numbers")


def steps_of(step_size: StepSize, round: int, local_steps: int) -> list[float]:
    """Return all step sizes of one round."""
    return [step_at(step_size, round, local_steps, k) for k in range(local_steps)]


def _check_positive(name: str, schedule: Constant | InverseTime | PerRound) -> None:
    for f in fields(schedule):
        number = check_positive(f"schedules.{name}({f.name}={{}})", getattr(schedule, f.name))
        object.__setattr__(schedule, f.name, number)
