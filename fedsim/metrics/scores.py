"""Functions of class probabilities: p is (points, classes) with rows that sum to one, y the true classes (points,).

For a sampler p is the average of p(y | x, theta) over recorded samples, for every score, accuracy included.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array, check_array, check_float, check_int
from fedsim.errors import InvalidInput
from fedsim.protocols import Predicts, call
from fedsim.rng.elementary import log64
from fedsim.text import short_repr

TINY = float(np.finfo(np.float64).tiny)
_SUM_TOLERANCE = 1e-3  # float32 softmax over many classes stays within; logits do not


def _probabilities(p: npt.ArrayLike) -> Array:
    found = as_array(p)
    if found is None:
        raise InvalidInput(f"class probabilities {short_repr(p)}; give numbers (points, classes)")
    p = found
    if p.ndim != 2 or 0 in p.shape:
        raise InvalidInput(f"class probabilities have shape {p.shape}; give (points, classes), two columns if binary")
    if not (p.min() >= 0.0 and np.abs(p.sum(axis=1) - 1.0).max() <= _SUM_TOLERANCE):
        raise InvalidInput("class probabilities must be non-negative with rows that sum to 1; are these logits?")
    return p


def _with_labels(p: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
    p, found = _probabilities(p), as_array(y)
    y = np.empty(0, object) if found is None else found
    if y.shape != p.shape[:1] or y.dtype.kind not in "iu":
        raise InvalidInput(f"labels are {y.dtype} {y.shape}; they must be {len(p)} integers, one per point")
    if y.min() < 0 or y.max() >= p.shape[1]:
        raise InvalidInput(f"labels run from {y.min()} to {y.max()}; {p.shape[1]} classes are 0..{p.shape[1] - 1}")
    return p, y


def accuracy(p: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return the fraction of points whose most probable class is the true one."""
    p, y = _with_labels(p, y)
    return float((p.argmax(axis=1) == y).mean())


def accuracy_above(p: npt.ArrayLike, y: npt.ArrayLike, threshold: float) -> float:
    """Return the accuracy of the points predicted with probability `threshold` or more; NaN if there are none."""
    p, y = _with_labels(p, y)
    threshold = check_float("accuracy_above(threshold={})", threshold)
    confident = p.max(axis=1) >= threshold
    return float((p.argmax(axis=1) == y)[confident].mean()) if confident.any() else float("nan")


def brier(p: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return the mean over x of sum_c (p(c|x) - [y = c])^2, between 0 and 2."""
    p, y = _with_labels(p, y)
    miss = p.astype(np.float64)
    miss[np.arange(len(y)), y] -= 1.0
    return float((miss**2).sum(axis=1).mean())


def nll(p: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Return -mean log p(y|x) in nats; infinite if a true class has probability 0."""
    p, y = _with_labels(p, y)
    p = p[np.arange(len(y)), y].astype(np.float64)
    return float(-np.where(p > 0, log64(np.maximum(p, TINY)), -np.inf).mean())


class Reliability(NamedTuple):
    """A reliability diagram: one entry per confidence bin ((m-1)/M, m/M], NaN in an empty bin."""

    confidence: Array
    accuracy: Array
    points: Array


def reliability(p: npt.ArrayLike, y: npt.ArrayLike, bins: int = 20) -> Reliability:
    """Return mean confidence and accuracy of the points in each of `bins` equally wide bins of confidence."""
    bins = check_int("reliability(bins={})", bins, most=10**6)
    p, y = _with_labels(p, y)
    confidence, right = p.max(axis=1).astype(np.float64), p.argmax(axis=1) == y
    # Comparing with m/M puts 0.55 into (0.50, 0.55]; ceil(0.55 * 20) would be 12.
    edges = np.arange(1, bins) / bins
    where = np.searchsorted(edges, confidence, side="left")
    points = np.bincount(where, minlength=bins)
    divisor = np.where(points > 0, points, np.nan)
    return Reliability(
        np.bincount(where, confidence, bins) / divisor, np.bincount(where, right, bins) / divisor, points
    )


def ece(p: npt.ArrayLike, y: npt.ArrayLike, bins: int = 20) -> float:
    """Return the expected calibration error: |accuracy - confidence| averaged over bins, weighted by their points."""
    confidence, right, points = reliability(p, y, bins)
    return float(np.nansum(points * np.abs(right - confidence)) / points.sum())


def agreement(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """Return the fraction of points on which two predictors have the same most probable class."""
    p, q = _pair(p, q)
    return float((p.argmax(axis=1) == q.argmax(axis=1)).mean())


def total_variation(p: npt.ArrayLike, q: npt.ArrayLike) -> float:
    """Return the mean over x of (1/2) sum_y |p(y|x) - q(y|x)|, between 0 and 1."""
    p, q = _pair(p, q)
    return float(0.5 * np.abs(p.astype(np.float64) - q).sum(axis=1).mean())


def _pair(p: npt.ArrayLike, q: npt.ArrayLike) -> tuple[Array, Array]:
    p, q = _probabilities(p), _probabilities(q)
    if p.shape != q.shape:
        raise InvalidInput(f"two predictors have shapes {p.shape} and {q.shape}; give equal shapes")
    return p, q


def entropy(p: npt.ArrayLike) -> Array:
    """Return -sum_c p(c|x) log p(c|x) in nats, one per point; 0 log 0 is 0."""
    p = _probabilities(p).astype(np.float64)
    return np.asarray(0.0 - (p * log64(np.maximum(p, TINY))).sum(axis=1))  # 0.0 for a certain prediction, not -0.0


@runtime_checkable
class Sampled(Protocol):
    """A result with samples."""

    theta: Array  # (replicas, samples, d)


def predictions(result: Sampled, problem: Predicts) -> Array:
    """Return class probabilities (rows, classes) of the problem's test rows, averaged over the samples of a run."""
    if not isinstance(result, Sampled):
        raise InvalidInput(f"metrics.predictions(result={short_repr(result)}): give a result, as fs.run returns one")
    return averaged(result.theta, _predicting("metrics.predictions", problem))


def _predicting(where: str, problem: object) -> Predicts:
    if not isinstance(problem, Predicts):
        raise InvalidInput(f"{where}(problem={short_repr(problem)}): give a problem with predict(theta) and test rows")
    return problem


def averaged(samples: Array, problem: Predicts) -> Array:
    """Return class probabilities averaged over samples (..., d) that are not NaN."""
    samples = samples.reshape(-1, samples.shape[-1])
    recorded = samples[~np.isnan(samples).any(axis=1)]
    if not len(recorded):
        raise InvalidInput("metrics.predictions: the run has recorded no samples; set record=fs.Record(every=...)")
    total = np.asarray(call(problem, "predict", recorded[0]), np.float64)
    for theta in recorded[1:]:
        total = total + call(problem, "predict", theta)
    return np.asarray(total / total.sum(axis=1, keepdims=True))


def accuracy_curve(p: npt.ArrayLike, y: npt.ArrayLike, thresholds: npt.ArrayLike) -> tuple[Array, Array]:
    """Return the accuracy of the points predicted with at least each threshold, NaN for none, and their fraction."""
    at = np.atleast_1d(check_array("accuracy_curve(thresholds)", thresholds))
    if at.ndim > 1 or not at.size:
        raise InvalidInput(f"accuracy_curve(thresholds of shape {at.shape}): give a list of probabilities")
    right = np.array([accuracy_above(p, y, float(t)) for t in at])
    confidence = np.asarray(p).max(axis=1)
    return right, np.array([(confidence >= t).mean() for t in at])


def outside_accuracy(inside: npt.ArrayLike, outside: npt.ArrayLike) -> float:
    """Return how often entropies classify points as inside or outside, by the larger of two kernel densities.

    `inside` and `outside` are predictive entropies; the densities have Gaussian kernels of Scott's width. The figure
    is the mean of the fractions of both sets, 1/2 where the entropies are uninformative.
    """
    from scipy.stats import gaussian_kde

    remedy = "give entropies, a finite number for each point"
    sets = [
        check_array(f"outside_accuracy({name})", e, axes=1, finite=True, remedy=remedy)
        for name, e in (("inside", inside), ("outside", outside))
    ]
    if any(len(e) < 2 for e in sets):
        raise InvalidInput("outside_accuracy: a set has fewer than two points; give at least two inside and outside")
    if np.ptp(np.concatenate(sets)) == 0:
        return 0.5
    width = 1e-9 * (1 + max(np.abs(e).max() for e in sets))  # a set of equal entropies has a density too
    kernels = [gaussian_kde(np.append(e, e[:1] + width) if np.ptp(e) == 0 else e) for e in sets]
    known = [kernels[0](e) > kernels[1](e) for e in sets]
    return float((known[0].mean() + 1 - known[1].mean()) / 2)
