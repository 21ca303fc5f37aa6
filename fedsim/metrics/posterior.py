"""How far the law of the samples is from the exact one: over the replicas' states now, or over their history.

Replicas now show the law after so many rounds, whatever the sampler's memory; the history of one or few chains is
what an analyst would really have. Neither can show less than finitely many perfect samples would: where that
*floor* makes up most of a figure, a warning says so. A history counts as many samples as its effective sample size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.metrics import diagnostics, distances
from fedsim.metrics.theta import MetricView

Over = Literal["replicas", "history"]
NAN = float("nan")


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of the law a run should reach; their factor is computed once."""

    mean: Array
    covariance: Array

    @cached_property
    def factor(self) -> Array:
        return distances.factor(self.covariance)


def _target(name: str, reference: Moments | None, view: MetricView) -> Moments:
    law = reference if reference is not None else view.target
    if law is None:
        problem = type(view.problem).__name__
        raise InvalidInput(
            f"metrics.{name}(): {problem} has no exact() to compare with; pass reference=(mean, covariance)"
        )
    target = law if isinstance(law, Moments) else Moments(np.asarray(law.mean), np.asarray(law.covariance))
    if target.mean.shape != view.theta.shape[1:]:
        raise InvalidInput(
            f"metrics.{name}(): the exact mean has shape {target.mean.shape}, theta has {view.theta.shape[1:]}"
        )
    return target


def _samples(view: MetricView, over: Over) -> Array:
    """The samples (n, d) that form the law: replicas still running, or all that was recorded."""
    chosen = view.theta if over == "replicas" else view.history.reshape(-1, view.theta.shape[1])
    samples = np.ascontiguousarray(chosen, np.float64)  # sums follow the layout, bits must not
    stopped = np.isnan(samples)
    return samples[~stopped.all(axis=1)] if stopped.any() else samples


@dataclass(frozen=True)
class Measure:
    """A distance between samples (n, d) and a law, and what n perfect samples would show of it."""

    name: str
    least: int  # samples that it takes
    distance: Callable[[Array, Moments], float]
    floor: Callable[[Array, float], float]  # of the exact covariance and n
    of_rounds: Callable[[Array, Moments], Array] | None = None  # many distances (k,) in one call, of samples (k, n, d)


@dataclass(frozen=True, eq=False)
class Distance:
    """One of the measures below as a metric."""

    measure: Measure
    reference: Moments | None = None
    over: Over = "replicas"
    name: str = ""
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: MetricView) -> dict[str, float]:
        kind, least = self.measure.name, self.measure.least
        target, samples = _target(kind, self.reference, view), _samples(view, self.over)
        if self.over == "replicas" and len(view.theta) < least:
            raise InvalidInput(
                f"{kind} compares the law over replicas: ask for replicas >= 2, not {len(view.theta)}, or write "
                f"fs.metrics.{kind}(over='history')"
            )
        return {self.name: self.measure.distance(samples, target) if len(samples) >= least else NAN}

    def evaluate_rounds(self, view: MetricView, theta: Array) -> Arrays | None:
        many = self.measure.of_rounds
        if (
            many is None
            or self.over != "replicas"
            or theta.shape[1] < self.measure.least
            or not np.isfinite(theta).all()
        ):
            return None
        target = _target(self.measure.name, self.reference, view)
        return {self.name: many(np.ascontiguousarray(theta, np.float64), target)}

    def about(self, view: MetricView) -> str:
        return {"replicas": "the replicas now", "history": "all kept samples"}[self.over]

    def doubts(self, view: MetricView, value: float, replicas: int) -> list[str]:
        """Why the figure is NaN or infinite, or that perfect samples would show more than half of its square."""
        if not math.isfinite(value):
            return self._undefined(view)
        count, worth, remedy = float(replicas), "", "more replicas"
        if self.over == "history":
            draws = diagnostics.running(view.history)
            count = float(len(_samples(view, self.over)) if draws is None else diagnostics.ess(draws).min())
            worth, remedy = " that the history is worth", "longer"
            if math.isnan(count):
                return [f"{self.name} {value:.3g}: some coordinate of the history never moved; look at `ess`"]
        count = max(count, 2.0)
        floor = self.measure.floor(_target(self.measure.name, self.reference, view).covariance, count)
        if value * value > 2 * floor**2:  # value**2 would raise where it leaves float64
            return []
        return [
            f"{self.name} {value:.3g} is mostly noise: the {count:.0f} samples{worth}, were they perfect, would show "
            f"{floor:.3g}; run {remedy}"
        ]

    def _undefined(self, view: MetricView) -> list[str]:
        found, least = len(_samples(view, self.over)), self.measure.least
        if found < least:
            remedy = "run more rounds or set record=fs.Record(every=1)" if self.over == "history" else "ask for more"
            kind = "kept samples" if self.over == "history" else "running replicas"
            return [f"{self.name} is not defined: it needs {least} {kind}, and there are {found}; {remedy}"]
        if not _target(self.measure.name, self.reference, view).covariance.any():
            return [f"{self.name} is not defined: the exact covariance is zero; use mean_error, or temperature > 0"]
        return []


def _w2(samples: Array, target: Moments) -> float:
    if not np.isfinite(samples).all():
        return NAN
    return float(_w2_of_rounds(samples[None], target)[0])


def _w2_of_rounds(samples: Array, target: Moments) -> Array:
    mean, left = distances.sample_factors(samples)
    return _within_float64(distances.w2_of_factors(mean - target.mean, left, target.factor), samples)


def _mean_error(samples: Array, target: Moments) -> float:
    return float(_within_float64(np.linalg.norm(samples.mean(axis=0) - target.mean), samples))


def _covariance_error(samples: Array, target: Moments) -> float:
    centred = samples - samples.mean(axis=0)
    gap, size = centred.T @ centred / (len(samples) - 1) - target.covariance, float(np.linalg.norm(target.covariance))
    return float(_within_float64(np.linalg.norm(gap), samples)) / size if size > 0 else NAN


def _within_float64(figure: Array | np.floating[Any], samples: Array) -> Array:
    """The figure, unless squares of finite samples have made it infinite."""
    if not np.isfinite(figure).all() and np.isfinite(samples).all():
        raise FloatingPointError("the square of a sample is not finite")
    return np.asarray(figure)


W2 = Measure("w2", 2, _w2, distances.w2_floor, _w2_of_rounds)
MEAN_ERROR = Measure("mean_error", 1, _mean_error, distances.mean_floor)
COVARIANCE_ERROR = Measure("covariance_error", 2, _covariance_error, distances.covariance_floor)


@dataclass(frozen=True, eq=False)
class MarginalError:
    reference: Array  # (m, d), each column sorted
    over: Literal["history", "replicas"] = "history"
    columns: ClassVar[tuple[str, ...]] = ("marginal_error",)
    per_replica: ClassVar[bool] = False

    @np.errstate(over="raise")
    def evaluate(self, view: MetricView) -> dict[str, float]:
        samples = view.history if self.over == "history" else view.theta
        samples = np.asarray(samples, np.float64)
        if samples.shape[-1] != self.reference.shape[1]:
            given = f"marginal_error: reference samples of {self.reference.shape[1]} dimensions"
            raise InvalidInput(f"{given} for a problem of {samples.shape[-1]}; give samples of its posterior")
        samples = samples.reshape(-1, samples.shape[-1])
        samples = samples[~np.isnan(samples).all(axis=1)]
        return {"marginal_error": distances.w1_to_sorted(samples, self.reference) if len(samples) else float("nan")}
