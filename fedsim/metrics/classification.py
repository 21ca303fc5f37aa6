"""Predictive metrics beyond the four scores: against a reference run, out of distribution, by confidence, HPD regions.

All of them look at class probabilities as `predictive` does: of theta now, or averaged over the samples kept so far.
Averages are kept up as samples come in; a resumed run makes them again from its samples.

Metrics of what was learnt: the predictive columns and the training loss, one value per replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float, as_float_array, check_choice, check_int
from fedsim.errors import InvalidInput
from fedsim.metrics import distances, scores
from fedsim.metrics.scores import accuracy_curve, averaged, outside_accuracy
from fedsim.protocols import Exact, HasLoss, HasPotential, Predicts, ProblemLike, as_problem, total_potential
from fedsim.text import short_repr

if TYPE_CHECKING:
    from fedsim.metrics.theta import MetricView

Of = Literal["current", "average"] | None


class SampleArrays:
    """An array for each sample of a run after a first one, or their running sum; brought up to date when asked for."""

    def __init__(self, first: Callable[[Any], Array], each: Callable[[Any, Array], Array], summed: bool) -> None:
        self._first, self._each, self._summed = first, each, summed
        self._known: WeakKeyDictionary[Any, tuple[list[Array], list[int]]] = WeakKeyDictionary()

    def of(self, view: MetricView) -> list[Array]:
        """[first, one per kept sample ...], or [first + all of them]."""
        if view not in self._known:
            self._known[view] = [self._first(view)], [0]
        held, seen = self._known[view]
        history = view.history
        for sample in history[seen[0] :]:
            new = self._each(view, sample)
            if self._summed:
                held[0] = held[0] + new
            else:
                held.append(new)
        seen[0] = len(history)
        return held


def predicted(problem: Predicts, theta: Array) -> Array:
    """Of every replica (replicas, rows, classes); NaN for those that have stopped."""
    running = np.flatnonzero(~np.isnan(theta).any(axis=1))
    each = [np.asarray(problem.predict(theta[r]), np.float64) for r in running]
    out = np.full((len(theta), *each[0].shape), np.nan)
    out[running] = each
    return out


@dataclass(frozen=True, eq=False)
class Scored:
    """Any figures of the test rows' probabilities, one value per replica and column."""

    columns: tuple[str, ...]
    score: Callable[[Any, Array], Sequence[float]]  # of the view and one replica's probabilities
    of: Of = None
    given: Any = None  # what it compares with, for the manifest
    per_replica: ClassVar[bool] = True

    def about(self, view: MetricView) -> str:
        return Predictive(self.columns, self.of).about(view)

    def evaluate(self, view: MetricView) -> Arrays:
        whole = Predictive(self.columns, self.of)
        if as_problem(view.problem).test is None:
            return whole.evaluate(view)  # which says what is missing
        p = np.asarray(view.predictive(whole.judged(view)), np.float64)
        values = np.full((len(p), len(self.columns)), np.nan)
        for r in np.flatnonzero(np.isfinite(p).all(axis=(1, 2))):
            values[r] = self.score(view, p[r] / p[r].sum(axis=1, keepdims=True))
        return dict(zip(self.columns, values.T, strict=True))


@dataclass(frozen=True, eq=False)
class Entropies:
    """Mean predictive entropy of the test rows and of others, and how well it tells them apart."""

    outside: Any  # a problem with the same model and other test rows
    of: Of = None
    columns: ClassVar[tuple[str, ...]] = ("entropy", "entropy_outside", "outside_accuracy")
    per_replica: ClassVar[bool] = True
    _sums: SampleArrays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        each = SampleArrays(
            lambda view: np.array(0.0), lambda view, sample: predicted(self.outside, sample), summed=True
        )
        object.__setattr__(self, "_sums", each)

    def about(self, view: MetricView) -> str:
        return Predictive(self.columns, self.of).about(view)

    def evaluate(self, view: MetricView) -> Arrays:
        judged = Predictive(self.columns, self.of).judged(view)
        if self.outside.dim != view.theta.shape[1] or as_problem(self.outside).test is None:
            raise InvalidInput(
                "metrics.entropies(outside=...): give a problem with the run's own model and other test rows"
            )
        if judged == "average" and len(view.history):
            other = self._sums.of(view)[0] / len(view.history)
        else:
            other = predicted(self.outside, view.theta)
        own = np.asarray(view.predictive(judged), np.float64)
        values = np.full((3, len(own)), np.nan)
        for r in np.flatnonzero(np.isfinite(own).all(axis=(1, 2)) & np.isfinite(other).all(axis=(1, 2))):
            inside, outside = (scores.entropy(p[r] / p[r].sum(axis=1, keepdims=True)) for p in (own, other))
            values[:, r] = inside.mean(), outside.mean(), outside_accuracy(inside, outside)
        return dict(zip(self.columns, values, strict=True))


@dataclass(frozen=True, eq=False)
class HpdError:
    """Relative error of the highest-density threshold over the samples that each replica has kept so far."""

    reference: float | Array  # the threshold, or reference samples (m, d)
    alpha: float = 0.01
    columns: ClassVar[tuple[str, ...]] = ("hpd_error",)
    per_replica: ClassVar[bool] = True
    _levels: SampleArrays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        each = SampleArrays(self._threshold, lambda view, sample: levels(view.problem, sample), summed=False)
        object.__setattr__(self, "_levels", each)

    def evaluate(self, view: MetricView) -> Arrays:
        known = self._levels.of(view)
        out = np.full(len(view.theta), np.nan)
        kept = np.array(known[1:]).reshape(-1, len(out))
        for r in range(len(out)):
            own = kept[~np.isnan(kept[:, r]), r]
            if len(own):
                out[r] = distances.hpd_error(own, known[0], self.alpha)
        return {"hpd_error": out}

    def _threshold(self, view: MetricView) -> Array:
        given = np.asarray(self.reference, np.float64)
        return given if given.ndim == 0 else np.quantile(levels(view.problem, given), 1 - self.alpha)


def levels(problem: ProblemLike, theta: Array) -> Array:
    """-log posterior of every row of theta, NaN where theta is: zero at an exact mean, else the sum of potentials."""
    theta = np.asarray(theta, np.float64)
    out, there = np.full(len(theta), np.nan), ~np.isnan(theta).any(axis=1)
    if isinstance(problem, Exact):
        mean, covariance = problem.exact()
        centred = theta[there] - mean
        out[there] = (centred * np.linalg.solve(covariance, centred.T).T).sum(axis=1) / 2
    elif isinstance(problem, HasPotential):
        out[there] = total_potential(problem, theta[there])
    else:
        raise InvalidInput(
            f"metrics.hpd(): {type(problem).__name__} has neither potential(theta, client, rows=None) nor exact()"
        )
    return out


# --- Factories --------------------------------------------------------------------------------------------


def against(reference: Any, of: Of = None) -> Scored:
    """`agreement` and `total_variation` with a reference's predictions of the test rows.

    `reference` is a finished run of the same problem, or class probabilities (rows, classes).
    """
    _of("against", of)
    given = as_float_array(reference.theta if hasattr(reference, "samples") else reference)
    if given is None or given.ndim < 2:
        raise InvalidInput(
            f"metrics.against({short_repr(reference, 60)}): give a finished run, or probabilities (rows, classes)"
        )
    once: list[Array] = []

    def score(view: MetricView, p: Array) -> tuple[float, float]:
        if not once:
            once.append(given if given.ndim == 2 else averaged(given, view.problem))
        return scores.agreement(p, once[0]), scores.total_variation(p, once[0])

    return Scored(("agreement", "total_variation"), score, of, given)


def calibration(bins: int = 20, of: Of = None, name: str = "ece") -> Scored:
    """The expected calibration error in any number of bins of confidence."""
    bins = check_int("metrics.calibration(bins={})", bins, most=10**6)
    _of("calibration", of)
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"metrics.calibration(name={short_repr(name)}): name its column with a word, such as 'ece'")
    return Scored((name,), lambda view, p: (scores.ece(p, view.problem.test[1], bins),), of)


def confident(*thresholds: float, of: Of = None) -> Scored:
    """Accuracy among the test rows predicted with at least these probabilities, and their share of all.

    Columns `accuracy_above_0.9` and `share_above_0.9`; NaN where there are no such rows.
    """
    _of("confident", of)
    at = thresholds or (0.5, 0.8, 0.9, 0.95, 0.99)
    if not all(0 <= as_float(t) <= 1 for t in at):
        raise InvalidInput(f"metrics.confident{short_repr(at)}: probabilities between 0 and 1")
    names = (*(f"accuracy_above_{t:g}" for t in at), *(f"share_above_{t:g}" for t in at))
    return Scored(names, lambda view, p: np.concatenate(accuracy_curve(p, view.problem.test[1], at)).tolist(), of)


def entropies(outside: Any, of: Of = None) -> Entropies:
    """Mean predictive entropy of the test rows (`entropy`) and of another problem's (`entropy_outside`).

    `outside` is a problem with the same model whose test rows come from elsewhere; `outside_accuracy` is how often the
    entropy alone tells which of the two a row is from, by kernel densities.
    """
    _of("entropies", of)
    if not isinstance(outside, Predicts):
        given = f"metrics.entropies({short_repr(outside, 60)})"
        raise InvalidInput(f"{given}: give a problem with the run's own model and other test rows")
    return Entropies(outside, of)


def hpd(reference: Any, alpha: float = 0.01) -> HpdError:
    """Relative error of the highest-density threshold at 1 - alpha, of each replica's kept samples (`hpd_error`).

    `reference` is the threshold itself, reference samples (m, d), or a finished run. Thresholds are values of
    -log posterior: zero at the mean where `exact()` has it, else the sum of the clients' potentials.
    """
    if not 0 < as_float(alpha) < 1:
        raise InvalidInput(f"metrics.hpd(alpha={short_repr(alpha)}): no probability; 0.01 means the 99 % region")
    if hasattr(reference, "samples"):
        reference = reference.theta.reshape(-1, reference.samples.shape[-1])
        reference = reference[~np.isnan(reference).any(axis=1)]
    at = as_float_array(reference)
    if at is None or at.ndim not in (0, 2):
        given = f"metrics.hpd({short_repr(reference, 60)})"
        raise InvalidInput(f"{given}: give a threshold, samples (m, d), or a finished run")
    return HpdError(at, float(alpha))


def _of(name: str, of: Any) -> None:
    check_choice(f"metrics.{name}(of={{!r}})", of, (None, "current", "average"))


if TYPE_CHECKING:
    from fedsim.metrics.theta import MetricView


PREDICTIVE = ("accuracy", "brier", "ece", "nll")


@dataclass(frozen=True)
class Predictive:
    """Of class probabilities: those of theta now, or their average over the samples kept so far (C17).

    With `of` None the algorithm decides: a sampler is judged by the average, an optimiser by its current theta.
    """

    columns: tuple[str, ...] = PREDICTIVE
    of: Literal["current", "average"] | None = None
    per_replica: ClassVar[bool] = True

    def judged(self, view: MetricView) -> Literal["current", "average"]:
        """Which of the two it is in this run."""
        return self.of or ("average" if view.sampler else "current")

    def about(self, view: MetricView) -> str:
        return {"current": "the current theta", "average": "the average over kept samples"}[self.judged(view)]

    def evaluate(self, view: MetricView) -> Arrays:
        if as_problem(view.problem).test is None:
            raise InvalidInput(
                f"metric {self.columns[0]!r}: {type(view.problem).__name__} has no test rows; give it test=(X, y)"
            )
        labels = view.problem.test[1]
        p = np.asarray(view.predictive(self.judged(view)), np.float64)
        running = np.isfinite(p).all(axis=(1, 2))
        p = p / p.sum(axis=2, keepdims=True)  # float32 probabilities sum to one only nearly
        out = {name: np.full(len(p), np.nan) for name in self.columns}
        for r in np.flatnonzero(running):
            for name in self.columns:
                out[name][r] = getattr(scores, name)(p[r], labels)
        return out


@dataclass(frozen=True)
class Consensus:
    """How far the sites' models are from their average: the root of the mean squared distance, 0 for one site."""

    columns: ClassVar[tuple[str, ...]] = ("consensus",)
    per_replica: ClassVar[bool] = True

    @np.errstate(over="raise")
    def evaluate(self, view: MetricView) -> Arrays:
        away = np.asarray(view.sites, np.float64) - np.asarray(view.theta, np.float64)[:, None]
        return {"consensus": np.sqrt((away**2).sum(axis=2).mean(axis=1))}


@dataclass(frozen=True)
class Loss:
    """The problem's mean training loss at theta now."""

    columns: ClassVar[tuple[str, ...]] = ("loss",)
    per_replica: ClassVar[bool] = True

    def evaluate(self, view: MetricView) -> Arrays:
        if not isinstance(view.problem, HasLoss):
            raise InvalidInput(f"metric 'loss': {type(view.problem).__name__} has no loss(theta)")
        out = np.full(len(view.theta), np.nan)
        running = np.isfinite(view.theta).all(axis=1)
        out[running] = view.problem.loss(view.theta[running])
        if np.isnan(out[running]).any():
            raise FloatingPointError("the loss is NaN where theta is finite")
        return {"loss": out}
