"""Metrics of theta: training loss, consensus, the distance to a point, and functions of theta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.checks import call_function, check_array, check_float, check_name
from fedsim.errors import InvalidInput
from fedsim.protocols import HasLoss, MetricView, Stable, call
from fedsim.text import short_repr

Function = Callable[[Array], npt.ArrayLike]
COLUMN = "give the name of its column"


def loss() -> Loss:
    """Return the problem's mean training loss at theta."""
    return Loss()


@dataclass(frozen=True)
class Loss:
    """The problem's mean training loss at theta."""

    columns: ClassVar[tuple[str, ...]] = ("loss",)
    per_replica: ClassVar[bool] = True

    def evaluate(self, view: MetricView) -> Arrays:
        if not isinstance(view.problem, HasLoss):
            raise InvalidInput(f"metric 'loss': {type(view.problem).__name__} has no loss(theta)")
        out = np.full(len(view.theta), np.nan)
        running = np.isfinite(view.theta).all(axis=1)
        out[running] = call(view.problem, "loss", view.theta[running])
        if np.isnan(out[running]).any():
            raise FloatingPointError("the loss is NaN where theta is finite")
        return {"loss": out}


def consensus() -> Consensus:
    """Return the distance of the sites of an exchange from their average, theta: root mean square."""
    return Consensus()


@dataclass(frozen=True)
class Consensus:
    """Root mean square distance of the sites' models from their average, 0 for one site."""

    columns: ClassVar[tuple[str, ...]] = ("consensus",)
    per_replica: ClassVar[bool] = True

    @np.errstate(over="raise")
    def evaluate(self, view: MetricView) -> Arrays:
        away = np.asarray(view.sites, np.float64) - np.asarray(view.theta, np.float64)[:, None]
        return {"consensus": np.sqrt((away**2).sum(axis=2).mean(axis=1))}


def distance_to(point: npt.ArrayLike, name: str = "distance_to_ps") -> DistanceTo:
    """Return |theta - point| of each replica."""
    at = check_array("distance_to(point)", point, axes=1, finite=True)
    return DistanceTo(at, check_name("distance_to(name={!r})", name, COLUMN))


@dataclass(frozen=True, eq=False)
class DistanceTo:
    """|theta - point| of each replica."""

    point: Array
    name: str = "distance_to_ps"
    per_replica: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @np.errstate(over="raise")
    def evaluate(self, view: MetricView) -> Arrays:
        if view.theta.shape[1:] != self.point.shape:
            raise InvalidInput(
                f"distance_to(point of shape {self.point.shape}): theta has {view.theta.shape[1]} numbers; give as many"
            )
        return {self.name: np.linalg.norm(np.asarray(view.theta, np.float64) - self.point, axis=1)}


def distance_to_ps() -> DistanceToStable:
    """Return |theta - theta_PS|, with theta_PS from the problem's `performatively_stable()`."""
    return DistanceToStable()


@dataclass(eq=False)
class DistanceToStable:
    """|theta - theta_PS| of each replica; theta_PS, which may take a while, is computed at the first evaluation."""

    columns: ClassVar[tuple[str, ...]] = ("distance_to_ps",)
    per_replica: ClassVar[bool] = True
    _known: tuple[Any, Array] | None = None

    def evaluate(self, view: MetricView) -> Arrays:
        if self._known is None or self._known[0] is not view.problem:
            if not isinstance(view.problem, Stable):
                raise InvalidInput(
                    f"metric 'distance_to_ps': {type(view.problem).__name__} has no performatively_stable(); use "
                    "PerformativeMean or StrategicCredit, or fs.metrics.distance_to(point)"
                )
            self._known = view.problem, np.asarray(call(view.problem, "performatively_stable"), np.float64)
        return DistanceTo(self._known[1]).evaluate(view)


def mse(function: Function, truth: float, name: str = "mse") -> MeanSquaredError:
    """Return (average of function(theta) over a run's recorded samples - truth)^2, averaged over runs.

    `function` maps (n, d) to (n,): `mse(lambda theta: np.linalg.norm(theta, axis=1), truth)`.
    """
    if not callable(function) or isinstance(function, type):
        raise InvalidInput(f"mse(function={short_repr(function)}): give a function of samples (n, d) that returns (n,)")
    return MeanSquaredError(function, check_float("mse(truth={})", truth), check_name("mse(name={!r})", name, COLUMN))


@dataclass(frozen=True, eq=False)
class MeanSquaredError:
    """The mean squared error of the runs' averages of a function of theta."""

    function: Function
    truth: float
    name: str = "mse"
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: MetricView) -> dict[str, float]:
        recorded = ~np.isnan(view.history).all(axis=2)  # (rounds, R)
        runs = recorded.any(axis=0)
        if not runs.any():
            return {self.name: float("nan")}
        values = np.zeros(recorded.shape)
        samples = view.history[recorded]
        found = check_array(
            f"{self.name}: function returned", call_function(f"{self.name}: function", self.function, samples)
        )
        if found.shape not in ((), (len(samples),)):
            raise InvalidInput(f"{self.name}: function returned shape {found.shape}; return one number per sample")
        values[recorded] = found
        with np.errstate(over="raise"):
            estimates = values.sum(axis=0)[runs] / recorded.sum(axis=0)[runs]
            return {self.name: float(((estimates - self.truth) ** 2).mean())}


@dataclass(frozen=True)
class FunctionMetric:
    """A user's function of theta (R, d)."""

    function: Function
    per_replica: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.function.__name__,)

    def evaluate(self, view: MetricView) -> dict[str, float | Array]:
        (name,), replicas = self.columns, len(view.theta)
        value = call_function(f"metric {name}(theta)", self.function, view.theta)
        value = check_array(f"metric {name}(theta) returned", value, remedy="return numbers")
        if self.per_replica and value.shape in ((), (replicas,)):
            return {name: np.broadcast_to(value, (replicas,))}
        if not self.per_replica and value.shape == ():
            return {name: float(value)}
        raise InvalidInput(
            f"metric {name}(theta) returned shape {value.shape} for theta {view.theta.shape}; "
            f"return {f'one number or ({replicas},)' if self.per_replica else 'one number'}"
        )
