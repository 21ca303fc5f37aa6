"""The objects behind Scenario(metrics=...): each looks at a `View` after a round and fills its columns.

With `per_replica` a metric returns (R,) arrays for `Result.rounds`, otherwise it describes the law *over*
replicas by floats for `Result.metrics`. NaN stands for "not defined yet".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput
from fedsim.metrics import chains, distances

Array = npt.NDArray[Any]


class Law(Protocol):
    """Anything with the first two moments of a law."""

    @property
    def mean(self) -> Array: ...
    @property
    def covariance(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of the law a run should reach; their factor is computed once."""

    mean: Array
    covariance: Array

    @cached_property
    def factor(self) -> Array:
        return distances.factor(self.covariance)


class View(Protocol):
    """What a metric sees after a round. The rows of a replica that has stopped are NaN."""

    @property
    def theta(self) -> Array: ...  # (R, d), the states now
    @property
    def history(self) -> Array: ...  # (kept rounds, R, d), the samples recorded so far
    @property
    def target(self) -> Law | None: ...  # the problem's exact law, where there is one
    @property
    def problem(self) -> Any: ...


@runtime_checkable
class Metric(Protocol):
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def per_replica(self) -> bool: ...
    def evaluate(self, view: View) -> Mapping[str, float | Array]: ...


def _target(name: str, reference: Moments | None, view: View) -> Moments:
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


def _law(name: str, view: View) -> Array:
    """The states (R, d) of the replicas still running, once it is clear that they can form a law."""
    if len(view.theta) < 2:
        raise InvalidInput(f"{name} compares the law over replicas: ask for replicas >= 2, not {len(view.theta)}")
    return _running(view)


def _running(view: View) -> Array:
    theta = np.ascontiguousarray(view.theta, np.float64)  # sums follow the layout, bits must not
    stopped = np.isnan(theta)
    return theta[~stopped.all(axis=1)] if stopped.any() else theta


@dataclass(frozen=True, eq=False)
class W2:
    reference: Moments | None = None
    columns: ClassVar[tuple[str, ...]] = ("w2",)
    per_replica: ClassVar[bool] = False

    def evaluate(self, view: View) -> dict[str, float]:
        target, law = _target("w2", self.reference, view), _law("w2", view)
        if len(law) < 2 or not np.isfinite(law).all():
            return {"w2": float("nan")}
        mean, left = distances.sample_factor(law)
        return {"w2": distances.w2_of_factors(mean - target.mean, left, target.factor)}


@dataclass(frozen=True, eq=False)
class MeanError:
    reference: Moments | None = None
    columns: ClassVar[tuple[str, ...]] = ("mean_error",)
    per_replica: ClassVar[bool] = False

    def evaluate(self, view: View) -> dict[str, float]:
        target, law = _target("mean_error", self.reference, view), _running(view)
        if len(law) < 1:
            return {"mean_error": float("nan")}
        return {"mean_error": float(np.linalg.norm(law.mean(axis=0) - target.mean))}


@dataclass(frozen=True, eq=False)
class CovarianceError:
    reference: Moments | None = None
    columns: ClassVar[tuple[str, ...]] = ("covariance_error",)
    per_replica: ClassVar[bool] = False

    def evaluate(self, view: View) -> dict[str, float]:
        name = "covariance_error"
        target, law = _target(name, self.reference, view), _law(name, view)
        if len(law) < 2:
            return {name: float("nan")}
        centred = law - law.mean(axis=0)
        gap = centred.T @ centred / (len(law) - 1) - target.covariance
        return {name: float(np.linalg.norm(gap) / np.linalg.norm(target.covariance))}


@dataclass(frozen=True, eq=False)
class MarginalError:
    reference: Array  # (m, d), each column sorted
    over: Literal["history", "replicas"] = "history"
    columns: ClassVar[tuple[str, ...]] = ("marginal_error",)
    per_replica: ClassVar[bool] = False

    def evaluate(self, view: View) -> dict[str, float]:
        samples = view.history if self.over == "history" else view.theta
        samples = np.asarray(samples, np.float64).reshape(-1, self.reference.shape[1])
        samples = samples[~np.isnan(samples).all(axis=1)]
        return {"marginal_error": distances.w1_to_sorted(samples, self.reference) if len(samples) else float("nan")}


@dataclass(frozen=True, eq=False)
class MeanSquaredError:
    function: Callable[[Array], npt.ArrayLike]
    truth: float
    name: str = "mse"
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: View) -> dict[str, float]:
        kept = ~np.isnan(view.history).all(axis=2)  # (rounds, R)
        runs = kept.any(axis=0)
        if not runs.any():
            return {self.name: float("nan")}
        values = np.zeros(kept.shape)
        values[kept] = self.function(view.history[kept])
        estimates = values.sum(axis=0)[runs] / kept.sum(axis=0)[runs]
        return {self.name: float(((estimates - self.truth) ** 2).mean())}


@dataclass(frozen=True)
class Rhat:
    columns: ClassVar[tuple[str, ...]] = ("rhat",)
    per_replica: ClassVar[bool] = False

    def evaluate(self, view: View) -> dict[str, float]:
        draws = _running_chains(view)
        return {"rhat": float("nan") if draws is None else float(chains.split_rhat(draws).max())}


@dataclass(frozen=True)
class Ess:
    columns: ClassVar[tuple[str, ...]] = ("ess",)
    per_replica: ClassVar[bool] = False

    def evaluate(self, view: View) -> dict[str, float]:
        draws = _running_chains(view)
        return {"ess": float("nan") if draws is None else float(chains.ess(draws).min())}


def _running_chains(view: View) -> Array | None:
    """The history of the replicas still running; None while it is too short to split."""
    if len(view.history) < chains.MIN_DRAWS:
        return None
    running = ~np.isnan(view.history[-1]).all(axis=1)
    return view.history[:, running] if running.any() else None


@dataclass(frozen=True, eq=False)
class DistanceTo:
    point: Array
    name: str = "distance_to_ps"
    per_replica: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: View) -> dict[str, Array]:
        return {self.name: np.linalg.norm(np.asarray(view.theta, np.float64) - self.point, axis=1)}


@dataclass(eq=False)
class DistanceToStable:
    """The point is asked of the problem at the first evaluation: to find it may take a while."""

    columns: ClassVar[tuple[str, ...]] = ("distance_to_ps",)
    per_replica: ClassVar[bool] = True
    _known: tuple[Any, Array] | None = None

    def evaluate(self, view: View) -> dict[str, Array]:
        if self._known is None or self._known[0] is not view.problem:
            if not hasattr(view.problem, "performatively_stable"):
                raise InvalidInput(
                    f"metric 'distance_to_ps': {type(view.problem).__name__} has no performatively_stable(); use "
                    "PerformativeMean or StrategicCredit, or fs.metrics.distance_to(point)"
                )
            self._known = view.problem, np.asarray(view.problem.performatively_stable(), np.float64)
        return DistanceTo(self._known[1]).evaluate(view)


@dataclass(frozen=True)
class FunctionMetric:
    function: Callable[[Array], npt.ArrayLike]
    per_replica: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.function.__name__,)

    def evaluate(self, view: View) -> dict[str, float | Array]:
        (name,), replicas = self.columns, len(view.theta)
        value = np.asarray(self.function(view.theta), np.float64)
        if self.per_replica and value.shape in ((), (replicas,)):
            return {name: np.broadcast_to(value, (replicas,))}
        if not self.per_replica and value.shape == ():
            return {name: float(value)}
        raise InvalidInput(
            f"metric {name}(theta) returned shape {value.shape} for theta {view.theta.shape}; "
            f"it must return {f'one number or ({replicas},)' if self.per_replica else 'one number'}"
        )
