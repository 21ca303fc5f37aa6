"""Metrics of predicted class probabilities: scores, calibration, entropies, agreement with a reference.

Each scores the probabilities of the current theta, or their average over the samples recorded so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float, as_float_array, check_choice, check_int, check_name
from fedsim.errors import InvalidInput
from fedsim.metrics import scores
from fedsim.metrics.samples import SampleArrays, predictions_of
from fedsim.metrics.scores import accuracy_curve, averaged, outside_accuracy
from fedsim.protocols import MetricView, Predicts, as_problem
from fedsim.text import short_repr

Of = Literal["current", "average"] | None
PREDICTIVE = ("accuracy", "brier", "ece", "nll")


def predictive(*columns: str, of: Of = None) -> Predictive:
    """Return scores of predicted class probabilities: `predictive("accuracy", "nll")`; without names all four.

    of="current" takes the current theta, of="average" the probabilities averaged over the samples recorded so far (the
    current theta while there are none). The default is the average for samplers and the current theta for optimisers.
    """
    if unknown := [name for name in columns if name not in PREDICTIVE]:
        raise InvalidInput(f"metrics.predictive({unknown[0]!r}): choose among {', '.join(PREDICTIVE)}")
    _check_of("predictive", of)
    return Predictive(columns or PREDICTIVE, of)


@dataclass(frozen=True)
class Predictive:
    """Scores of class probabilities of the current theta, or of their average over the recorded samples (C17).

    `of` None means "average" for samplers and "current" for optimisers.
    """

    columns: tuple[str, ...] = PREDICTIVE
    of: Of = None
    per_replica: ClassVar[bool] = True

    def source(self, view: MetricView) -> Literal["current", "average"]:
        """Return which of the two is scored in this run."""
        return self.of or ("average" if view.sampler else "current")

    def about(self, view: MetricView) -> str:
        return {"current": "the current theta", "average": "the average over recorded samples"}[self.source(view)]

    def evaluate(self, view: MetricView) -> Arrays:
        if as_problem(view.problem).test is None:
            raise InvalidInput(
                f"metric {self.columns[0]!r}: {type(view.problem).__name__} has no test rows; set test=(X, y)"
            )
        labels = view.problem.test[1]
        p = np.asarray(view.predictive(self.source(view)), np.float64)
        running = np.isfinite(p).all(axis=(1, 2))
        p = p / p.sum(axis=2, keepdims=True)  # float32 probabilities sum to one up to rounding
        out = {name: np.full(len(p), np.nan) for name in self.columns}
        for r in np.flatnonzero(running):
            for name in self.columns:
                out[name][r] = getattr(scores, name)(p[r], labels)
        return out


@dataclass(frozen=True, eq=False)
class Scored:
    """Any scores of the test rows' probabilities, one value per replica and column."""

    columns: tuple[str, ...]
    score: Callable[[Any, Array], Sequence[float]]  # of the view and one replica's probabilities
    of: Of = None
    given: Any = None  # the reference, for the manifest
    per_replica: ClassVar[bool] = True

    def about(self, view: MetricView) -> str:
        return Predictive(self.columns, self.of).about(view)

    def evaluate(self, view: MetricView) -> Arrays:
        predictive = Predictive(self.columns, self.of)
        if as_problem(view.problem).test is None:
            return predictive.evaluate(view)  # raises
        p = np.asarray(view.predictive(predictive.source(view)), np.float64)
        values = np.full((len(p), len(self.columns)), np.nan)
        for r in np.flatnonzero(np.isfinite(p).all(axis=(1, 2))):
            values[r] = self.score(view, p[r] / p[r].sum(axis=1, keepdims=True))
        return dict(zip(self.columns, values.T, strict=True))


def against(reference: Any, of: Of = None) -> Scored:
    """Return `agreement` and `total_variation` with a reference's predictions of the test rows.

    `reference` is a finished run of the same problem, or class probabilities (rows, classes).
    """
    _check_of("against", of)
    given = as_float_array(reference.theta if hasattr(reference, "samples") else reference)
    if given is None or given.ndim < 2:
        raise InvalidInput(
            f"metrics.against({short_repr(reference, 60)}): give a finished run, or probabilities (rows, classes)"
        )
    known: list[Array] = []

    def score(view: MetricView, p: Array) -> tuple[float, float]:
        if not known:
            known.append(given if given.ndim == 2 else averaged(given, view.problem))
        return scores.agreement(p, known[0]), scores.total_variation(p, known[0])

    return Scored(("agreement", "total_variation"), score, of, given)


def calibration(bins: int = 20, of: Of = None, name: str = "ece") -> Scored:
    """Return the expected calibration error with this number of confidence bins."""
    bins = check_int("metrics.calibration(bins={})", bins, most=10**6)
    _check_of("calibration", of)
    check_name("metrics.calibration(name={!r})", name, "give the name of its column, such as 'ece'")
    return Scored((name,), lambda view, p: (scores.ece(p, view.problem.test[1], bins),), of)


def confident(*thresholds: float, of: Of = None) -> Scored:
    """Return the accuracy of the test rows predicted with at least these probabilities, and their fraction of all.

    Columns `accuracy_above_0.9` and `share_above_0.9`; NaN if there are no such rows.
    """
    _check_of("confident", of)
    at = thresholds or (0.5, 0.8, 0.9, 0.95, 0.99)
    if not all(0 <= as_float(t) <= 1 for t in at):
        raise InvalidInput(f"metrics.confident{short_repr(at)}: give probabilities between 0 and 1")
    names = (*(f"accuracy_above_{t:g}" for t in at), *(f"share_above_{t:g}" for t in at))
    return Scored(names, lambda view, p: np.concatenate(accuracy_curve(p, view.problem.test[1], at)).tolist(), of)


def entropies(outside: Any, of: Of = None) -> Entropies:
    """Return the mean predictive entropy of the test rows (`entropy`) and of another problem's (`entropy_outside`).

    `outside` is a problem with the same model and out-of-distribution test rows; `outside_accuracy` is the fraction of
    rows that are attributed correctly by the entropy alone, with kernel densities.
    """
    _check_of("entropies", of)
    if not isinstance(outside, Predicts):
        given = f"metrics.entropies({short_repr(outside, 60)})"
        raise InvalidInput(f"{given}: give a problem with the same model and other test rows")
    return Entropies(outside, of)


@dataclass(frozen=True, eq=False)
class Entropies:
    """Mean predictive entropy of the test rows and of others, and how well it separates them."""

    outside: Any  # a problem with the same model and other test rows
    of: Of = None
    columns: ClassVar[tuple[str, ...]] = ("entropy", "entropy_outside", "outside_accuracy")
    per_replica: ClassVar[bool] = True
    _sums: SampleArrays = field(init=False, repr=False)

    def __post_init__(self) -> None:
        each = SampleArrays(
            lambda view: np.array(0.0), lambda view, sample: predictions_of(self.outside, sample), summed=True
        )
        object.__setattr__(self, "_sums", each)

    def about(self, view: MetricView) -> str:
        return Predictive(self.columns, self.of).about(view)

    def evaluate(self, view: MetricView) -> Arrays:
        source = Predictive(self.columns, self.of).source(view)
        if self.outside.dim != view.theta.shape[1] or as_problem(self.outside).test is None:
            raise InvalidInput("metrics.entropies(outside=...): give a problem with the same model and other test rows")
        if source == "average" and len(view.history):
            other = self._sums.of(view)[0] / len(view.history)
        else:
            other = predictions_of(self.outside, view.theta)
        own = np.asarray(view.predictive(source), np.float64)
        values = np.full((3, len(own)), np.nan)
        for r in np.flatnonzero(np.isfinite(own).all(axis=(1, 2)) & np.isfinite(other).all(axis=(1, 2))):
            inside, outside = (scores.entropy(p[r] / p[r].sum(axis=1, keepdims=True)) for p in (own, other))
            values[:, r] = inside.mean(), outside.mean(), outside_accuracy(inside, outside)
        return dict(zip(self.columns, values, strict=True))


def _check_of(name: str, of: Any) -> None:
    check_choice(f"metrics.{name}(of={{!r}})", of, (None, "current", "average"))
