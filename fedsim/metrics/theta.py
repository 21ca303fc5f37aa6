"""What a metric is, what it sees, and the two simplest: the distance to a point and a function of one's own.

With `per_replica` a metric returns (R,) arrays for `Result.rounds`, otherwise it describes the law *over*
replicas, or over their history, by floats for `Result.metrics`. NaN stands for "not defined yet". Where a figure of
finite states leaves float64 a metric raises, and the run ends as one that diverged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.checks import call_function, check_array
from fedsim.errors import InvalidInput
from fedsim.protocols import Explained as Explained
from fedsim.protocols import Law as Law
from fedsim.protocols import Metric as Metric
from fedsim.protocols import MetricView as MetricView
from fedsim.protocols import OfTheta as OfTheta
from fedsim.protocols import Stable
from fedsim.protocols import Warns as Warns


@dataclass(frozen=True, eq=False)
class DistanceTo:
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


@dataclass(eq=False)
class DistanceToStable:
    """The point is asked of the problem at the first evaluation: to find it may take a while."""

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
            self._known = view.problem, np.asarray(view.problem.performatively_stable(), np.float64)
        return DistanceTo(self._known[1]).evaluate(view)


@dataclass(frozen=True)
class FunctionMetric:
    function: Callable[[Array], npt.ArrayLike]
    per_replica: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.function.__name__,)

    def evaluate(self, view: MetricView) -> dict[str, float | Array]:
        (name,), replicas = self.columns, len(view.theta)
        value = call_function(f"metric {name}(theta)", self.function, view.theta)
        value = check_array(f"metric {name}(theta) returned", value, remedy="it must return numbers")
        if self.per_replica and value.shape in ((), (replicas,)):
            return {name: np.broadcast_to(value, (replicas,))}
        if not self.per_replica and value.shape == ():
            return {name: float(value)}
        raise InvalidInput(
            f"metric {name}(theta) returned shape {value.shape} for theta {view.theta.shape}; "
            f"it must return {f'one number or ({replicas},)' if self.per_replica else 'one number'}"
        )
