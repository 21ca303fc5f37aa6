"""Metrics of the distance between samples and a posterior: W2, moments, marginals, highest-density regions.

The samples are the current states of all replicas, which show the law after this many rounds, or the history of all
replicas, as in an analysis of one or few chains. A finite number of perfect samples has an error, too, the *floor*; the
run ends with a warning if the floor is most of a figure. A history counts with its effective sample size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float, as_float_array, check_array, check_choice, check_name
from fedsim.errors import InvalidInput
from fedsim.metrics import diagnostics, distances
from fedsim.metrics.samples import SampleArrays, negative_log_posterior
from fedsim.protocols import Law, MetricView
from fedsim.text import short_repr

Over = Literal["replicas", "history"]
Reference = tuple[npt.ArrayLike, npt.ArrayLike] | Law  # mean (d,) and covariance (d, d), or an object with these
NAN = float("nan")
COLUMN = "give the name of its column, such as 'w2'"


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of a law; the factor of the covariance is computed once."""

    mean: Array
    covariance: Array

    @cached_property
    def factor(self) -> Array:
        return distances.factor(self.covariance)


def _target(name: str, reference: Moments | None, view: MetricView) -> Moments:
    law = reference if reference is not None else view.target
    if law is None:
        problem = type(view.problem).__name__
        raise InvalidInput(f"metrics.{name}(): {problem} has no exact(); pass reference=(mean, covariance)")
    target = law if isinstance(law, Moments) else Moments(np.asarray(law.mean), np.asarray(law.covariance))
    if target.mean.shape != view.theta.shape[1:]:
        raise InvalidInput(
            f"metrics.{name}(): the exact mean has shape {target.mean.shape}, theta has {view.theta.shape[1:]}"
        )
    return target


def _samples(view: MetricView, over: Over) -> Array:
    """Return the samples (n, d): the replicas that are running, or all recorded samples."""
    chosen = view.theta if over == "replicas" else view.history.reshape(-1, view.theta.shape[1])
    samples = np.ascontiguousarray(chosen, np.float64)  # so that the bits do not depend on the layout
    stopped = np.isnan(samples)
    return samples[~stopped.all(axis=1)] if stopped.any() else samples


@dataclass(frozen=True)
class Measure:
    """A distance between samples (n, d) and a law, and its floor: the value for n perfect samples."""

    name: str
    least: int  # samples that it needs
    distance: Callable[[Array, Moments], float]
    floor: Callable[[Array, float], float]  # of the exact covariance and n
    of_rounds: Callable[[Array, Moments], Array] | None = None  # distances (k,) of samples (k, n, d)


@dataclass(frozen=True, eq=False)
class Distance:
    """A measure as a metric."""

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
        of_rounds = self.measure.of_rounds
        if (
            of_rounds is None
            or self.over != "replicas"
            or theta.shape[1] < self.measure.least
            or not np.isfinite(theta).all()
        ):
            return None
        target = _target(self.measure.name, self.reference, view)
        return {self.name: of_rounds(np.ascontiguousarray(theta, np.float64), target)}

    def about(self, view: MetricView) -> str:
        return {"replicas": "the current replicas", "history": "all recorded samples"}[self.over]

    def warnings(self, view: MetricView, value: float, replicas: int) -> list[str]:
        """Return why the figure is not defined, or that its floor is more than half of its square."""
        if not math.isfinite(value):
            return self._undefined(view)
        count, note, remedy = float(replicas), "", "more replicas"
        if self.over == "history":
            draws = diagnostics.running(view.history)
            count = float(len(_samples(view, self.over)) if draws is None else diagnostics.ess(draws).min())
            note, remedy = ", the effective size of the history,", "longer"
            if math.isnan(count):
                return [f"{self.name} {value:.3g}: a coordinate of the history never moved; see `ess`"]
        count = max(count, 2.0)
        floor = self.measure.floor(_target(self.measure.name, self.reference, view).covariance, count)
        if value * value > 2 * floor**2:  # value**2 would raise where it leaves float64
            return []
        return [
            f"{self.name} {value:.3g} is mostly noise: {count:.0f} perfect samples{note} would give "
            f"{floor:.3g}; run {remedy}"
        ]

    def _undefined(self, view: MetricView) -> list[str]:
        found, least = len(_samples(view, self.over)), self.measure.least
        if found < least:
            remedy = "run more rounds or set record=fs.Record(every=1)" if self.over == "history" else "ask for more"
            kind = "recorded samples" if self.over == "history" else "running replicas"
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
    """Return the figure; raise if squares of finite samples have overflowed."""
    if not np.isfinite(figure).all() and np.isfinite(samples).all():
        raise FloatingPointError("the square of a sample is not finite")
    return np.asarray(figure)


W2 = Measure("w2", 2, _w2, distances.w2_floor, _w2_of_rounds)
MEAN_ERROR = Measure("mean_error", 1, _mean_error, distances.mean_floor)
COVARIANCE_ERROR = Measure("covariance_error", 2, _covariance_error, distances.covariance_floor)


def w2(reference: Reference | None = None, over: Over = "replicas", name: str = "w2") -> Distance:
    """Return the Wasserstein-2 distance between a Gaussian fitted to the samples and the exact law; see `w2_floor`.

    The samples are the replicas' current states, or with over="history" all samples recorded so far, of one replica or
    more: set `record=fs.Record(warmup=...)`. `name` is the column, for runs with both. The run ends with a warning if
    there are too few samples for the figure. This holds for `mean_error` and `covariance_error`, too.
    """
    return _distance(W2, reference, over, name)


def mean_error(reference: Reference | None = None, over: Over = "replicas", name: str = "mean_error") -> Distance:
    """Return |mean over replicas, or over the history, - exact mean|."""
    return _distance(MEAN_ERROR, reference, over, name)


def covariance_error(
    reference: Reference | None = None, over: Over = "replicas", name: str = "covariance_error"
) -> Distance:
    """Return |covariance over replicas, or the history, - exact covariance| / |exact covariance|, Frobenius norms."""
    return _distance(COVARIANCE_ERROR, reference, over, name)


def _distance(measure: Measure, reference: Reference | None, over: Over, name: str) -> Distance:
    check_choice(f"{measure.name}(over={{!r}})", over, ("replicas", "history"))
    return Distance(measure, _moments(reference), over, check_name(f"{measure.name}(name={{!r}})", name, COLUMN))


def _moments(reference: Reference | None) -> Moments | None:
    if reference is None or isinstance(reference, Moments):
        return reference
    if isinstance(reference, tuple | list) and len(reference) == 2:
        mean, covariance = reference
    elif isinstance(reference, Law):
        mean, covariance = reference.mean, reference.covariance
    else:
        raise InvalidInput(f"reference is a {type(reference).__name__}; give a pair (mean, covariance)")
    remedy = "give a pair of arrays (mean, covariance) of shapes (d,) and (d, d)"
    moments = Moments(check_array("mean", mean, remedy=remedy), check_array("covariance", covariance, remedy=remedy))
    if moments.factor.shape[:1] != moments.mean.shape:
        raise InvalidInput(
            f"reference has a mean {moments.mean.shape} and a covariance {moments.covariance.shape}; "
            "give (d,) and (d, d)"
        )
    return moments


def marginal_error(reference: npt.ArrayLike, over: Literal["history", "replicas"] = "history") -> MarginalError:
    """Return ME against reference samples (m, d), of all samples recorded so far or of the current states."""
    check_choice("metrics.marginal_error(over={!r})", over, ("history", "replicas"))
    return MarginalError(np.sort(distances.columns(reference), axis=0), over)


@dataclass(frozen=True, eq=False)
class MarginalError:
    """The mean over coordinates of the Wasserstein-1 distance to reference samples."""

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


def hpd(reference: Any, alpha: float = 0.01) -> HpdError:
    """Return the relative error of the highest-density threshold at 1 - alpha of each replica's recorded samples.

    `reference` is the threshold itself, reference samples (m, d), or a finished run. Thresholds are values of
    -log posterior: zero at the mean if the problem has `exact()`, else the sum of the clients' potentials.
    """
    if not 0 < as_float(alpha) < 1:
        raise InvalidInput(f"metrics.hpd(alpha={short_repr(alpha)}): give a probability; 0.01 means the 99 % region")
    if hasattr(reference, "samples"):
        reference = reference.theta.reshape(-1, reference.samples.shape[-1])
        reference = reference[~np.isnan(reference).any(axis=1)]
    at = as_float_array(reference)
    if at is None or at.ndim not in (0, 2):
        given = f"metrics.hpd({short_repr(reference, 60)})"
        raise InvalidInput(f"{given}: give a threshold, samples (m, d), or a finished run")
    return HpdError(at, float(alpha))


@dataclass(frozen=True, eq=False)
class HpdError:
    """Relative error of the highest-density threshold over the recorded samples of each replica."""

    reference: float | Array  # the threshold, or reference samples (m, d)
    alpha: float = 0.01
    columns: ClassVar[tuple[str, ...]] = ("hpd_error",)
    per_replica: ClassVar[bool] = True
    _levels: SampleArrays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        each = SampleArrays(
            self._threshold, lambda view, sample: negative_log_posterior(view.problem, sample), summed=False
        )
        object.__setattr__(self, "_levels", each)

    def evaluate(self, view: MetricView) -> Arrays:
        arrays = self._levels.of(view)
        out = np.full(len(view.theta), np.nan)
        recorded = np.array(arrays[1:]).reshape(-1, len(out))
        for r in range(len(out)):
            own = recorded[~np.isnan(recorded[:, r]), r]
            if len(own):
                out[r] = distances.hpd_error(own, arrays[0], self.alpha)
        return {"hpd_error": out}

    def _threshold(self, view: MetricView) -> Array:
        given = np.asarray(self.reference, np.float64)
        return given if given.ndim == 0 else np.quantile(negative_log_posterior(view.problem, given), 1 - self.alpha)
