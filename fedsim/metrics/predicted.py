"""Predictions of a finished run, and what is read off predictions at hand: no run is watched here."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import numbers
from fedsim.errors import InvalidInput, quoted
from fedsim.metrics import scores
from fedsim.protocols import Predicts


@runtime_checkable
class Sampled(Protocol):
    """A result, as far as it is looked at here."""

    theta: Array  # (replicas, samples, d)


def predictions(result: Sampled, problem: Predicts) -> Array:
    """Class probabilities of the problem's test rows, averaged over all samples of a finished run: (rows, classes)."""
    if not isinstance(result, Sampled):
        raise InvalidInput(f"metrics.predictions(result={quoted(result)}): give a result, as fs.run returns one")
    return averaged(result.theta, _predicting("metrics.predictions", problem))


def _predicting(where: str, problem: object) -> Predicts:
    if not isinstance(problem, Predicts):
        raise InvalidInput(f"{where}(problem={quoted(problem)}): it makes no predictions; give one with a test set")
    return problem


def averaged(samples: Array, problem: Predicts) -> Array:
    samples = samples.reshape(-1, samples.shape[-1])
    kept = samples[~np.isnan(samples).any(axis=1)]
    if not len(kept):
        raise InvalidInput("metrics.predictions: the run has kept no samples; set record=fs.Record(every=...)")
    total = np.asarray(problem.predict(kept[0]), np.float64)
    for theta in kept[1:]:
        total = total + problem.predict(theta)
    return np.asarray(total / total.sum(axis=1, keepdims=True))


def accuracy_curve(p: npt.ArrayLike, y: npt.ArrayLike, thresholds: npt.ArrayLike) -> tuple[Array, Array]:
    """Accuracy among the points predicted with at least each probability, NaN for none, and their share of all."""
    at = np.atleast_1d(numbers("accuracy_curve(thresholds)", thresholds))
    if at.ndim > 1 or not at.size:
        raise InvalidInput(f"accuracy_curve(thresholds of shape {at.shape}): give a list of probabilities")
    right = np.array([scores.accuracy_above(p, y, float(t)) for t in at])
    confidence = np.asarray(p).max(axis=1)
    return right, np.array([(confidence >= t).mean() for t in at])


def outside_accuracy(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """How often entropies tell known from unknown points: each set labelled by the larger of two kernel densities.

    `inside` and `outside` are predictive entropies; the densities are Gaussian kernels of Scott's width, and the
    figure is the mean of both sets' shares, 1/2 where the entropies say nothing.
    """
    from scipy.stats import gaussian_kde

    remedy = "give entropies, a finite number for each point"
    sets = [
        numbers(f"outside_accuracy({name})", e, axes=1, finite=True, remedy=remedy)
        for name, e in (("inside", inside), ("outside", outside))
    ]
    if any(len(e) < 2 for e in sets):
        raise InvalidInput("outside_accuracy: at least two points inside and outside are needed")
    if np.ptp(np.concatenate(sets)) == 0:
        return 0.5
    width = 1e-9 * (1 + max(np.abs(e).max() for e in sets))  # a set of equal entropies has a density too
    kernels = [gaussian_kde(np.append(e, e[:1] + width) if np.ptp(e) == 0 else e) for e in sets]
    known = [kernels[0](e) > kernels[1](e) for e in sets]
    return float((known[0].mean() + 1 - known[1].mean()) / 2)
