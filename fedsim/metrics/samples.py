"""Arrays computed from samples: class probabilities, log posteriors, and their updates as samples are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.protocols import Exact, HasPotential, MetricView, Predicts, ProblemLike, call, total_potential


class SampleArrays:
    """An array for every recorded sample of a run after a first one, or their running sum.

    `of(view)` computes the arrays of samples that were recorded since its last call; a resumed run computes all again.
    """

    def __init__(self, first: Callable[[Any], Array], each: Callable[[Any, Array], Array], summed: bool) -> None:
        self._first, self._each, self._summed = first, each, summed
        self._runs: WeakKeyDictionary[Any, tuple[list[Array], list[int]]] = WeakKeyDictionary()

    def of(self, view: MetricView) -> list[Array]:
        """Return [first, one per recorded sample ...], or [first + all of them]."""
        if view not in self._runs:
            self._runs[view] = [self._first(view)], [0]
        arrays, count = self._runs[view]
        history = view.history
        for sample in history[count[0] :]:
            new = self._each(view, sample)
            if self._summed:
                arrays[0] = arrays[0] + new
            else:
                arrays.append(new)
        count[0] = len(history)
        return arrays


def predictions_of(problem: Predicts, theta: Array) -> Array:
    """Return the probabilities of every replica, (replicas, rows, classes); NaN for stopped replicas."""
    running = np.flatnonzero(~np.isnan(theta).any(axis=1))
    each = [np.asarray(call(problem, "predict", theta[r]), np.float64) for r in running]
    out = np.full((len(theta), *each[0].shape), np.nan)
    out[running] = each
    return out


def negative_log_posterior(problem: ProblemLike, theta: Array) -> Array:
    """Return -log posterior of every row of theta: zero at an exact mean, else the sum of potentials; NaN stays NaN."""
    theta = np.asarray(theta, np.float64)
    out, valid = np.full(len(theta), np.nan), ~np.isnan(theta).any(axis=1)
    if isinstance(problem, Exact):
        mean, covariance = call(problem, "exact")
        centred = theta[valid] - mean
        out[valid] = (centred * np.linalg.solve(covariance, centred.T).T).sum(axis=1) / 2
    elif isinstance(problem, HasPotential):
        out[valid] = total_potential(problem, theta[valid])
    else:
        raise InvalidInput(
            f"metrics.hpd(): {type(problem).__name__} has neither potential(theta, client, rows=None) nor exact()"
        )
    return out
