"""Metrics of what was learnt: the predictive columns and the training loss, one value per replica."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from fedsim.arrays import Arrays
from fedsim.errors import InvalidInput
from fedsim.metrics import scores
from fedsim.protocols import HasLoss, as_problem

if TYPE_CHECKING:
    from fedsim.metrics.evaluate import MetricView


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
