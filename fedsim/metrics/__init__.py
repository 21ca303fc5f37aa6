"""Metrics: functions of samples and class probabilities, and factories for Scenario(metrics=...).

`diagnostics.ess(draws)` is a function of chains; `ess()` makes the metric. `fs.protocols.Metric` is the contract of a
metric of your own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedsim.checks import call_function, check_array
from fedsim.errors import InvalidInput
from fedsim.metrics import diagnostics
from fedsim.metrics.classification import PREDICTIVE, Predictive, against, calibration, confident, entropies, predictive
from fedsim.metrics.diagnostics import split_rhat
from fedsim.metrics.distances import gaussian_w2, hpd_error, marginal_w1, w2_floor
from fedsim.metrics.mcmc import accepted, ess, ess_per_megabit, ess_per_second, ess_tail, rhat
from fedsim.metrics.posterior import Moments, covariance_error, hpd, marginal_error, mean_error, w2
from fedsim.metrics.scores import (
    Reliability,
    accuracy,
    accuracy_above,
    accuracy_curve,
    agreement,
    brier,
    ece,
    entropy,
    nll,
    outside_accuracy,
    predictions,
    reliability,
    total_variation,
)
from fedsim.metrics.theta import Function, FunctionMetric, consensus, distance_to, distance_to_ps, loss, mse
from fedsim.protocols import Metric, member, missing
from fedsim.text import short_repr

__all__ = [
    "Moments",
    "Reliability",
    "accepted",
    "accuracy",
    "accuracy_above",
    "accuracy_curve",
    "against",
    "agreement",
    "brier",
    "calibration",
    "confident",
    "consensus",
    "covariance_error",
    "diagnostics",
    "distance_to",
    "distance_to_ps",
    "ece",
    "entropies",
    "entropy",
    "ess",
    "ess_per_megabit",
    "ess_per_second",
    "ess_tail",
    "gaussian_w2",
    "hpd",
    "hpd_error",
    "loss",
    "marginal_error",
    "marginal_w1",
    "mean_error",
    "mse",
    "nll",
    "outside_accuracy",
    "predictions",
    "predictive",
    "reliability",
    "resolve",
    "rhat",
    "split_rhat",
    "total_variation",
    "w2",
    "w2_floor",
]

_FACTORIES: dict[str, Callable[..., Any]] = {
    make.__name__: make
    for make in (
        w2, mean_error, covariance_error, rhat, ess, ess_tail, ess_per_megabit, ess_per_second, accepted, loss,
        predictive, distance_to_ps, consensus,
        marginal_error, mse, distance_to, against, calibration, confident, entropies, hpd,
    )
}  # fmt: skip
_NEED_ARGUMENTS = ("marginal_error", "mse", "distance_to", "against", "entropies", "hpd")


def resolve(metric: Metric | str | Function, probe: npt.ArrayLike | None = None) -> Metric:
    """Return a metric from a metric, a column name such as "w2", or a function of theta (R, d).

    The column of a function is its name. A call on `probe` (R, d), such as the initial states, determines whether it
    returns (R,) or one number; without a probe one number counts for every replica.
    """
    if isinstance(metric, str):
        if metric in PREDICTIVE:
            return Predictive((metric,))
        if metric == "epsilon":
            raise InvalidInput("metric 'epsilon' needs arguments; write fs.privacy.spent(delta=1e-5)")
        if metric not in _FACTORIES:
            raise InvalidInput(
                f"metric {short_repr(metric)} is unknown; choose among {', '.join([*_FACTORIES, *PREDICTIVE])}"
            )
        if metric in _NEED_ARGUMENTS:
            raise InvalidInput(f"metric {short_repr(metric)} needs arguments; write fs.metrics.{metric}(...)")
        made: Metric = _FACTORIES[metric]()
        return made
    is_metric = not isinstance(metric, type) and not missing(metric, Metric)
    if isinstance(metric, type) or not (is_metric or callable(metric)):
        raise InvalidInput(
            f"{short_repr(metric)} is not a metric; pass fs.metrics.w2(), a name such as 'w2', or a function"
        )
    if is_metric:
        for name in ("columns", "per_replica"):
            member(metric, name)
        return cast(Metric, metric)
    function = cast(Function, metric)
    name = getattr(metric, "__name__", "<unnamed>")
    if any(metric is make for make in _FACTORIES.values()):
        raise InvalidInput(f"fs.metrics.{name} makes a metric; call it: fs.metrics.{name}(...)")
    if name.startswith("<"):
        raise InvalidInput("the function of a metric has no name for its column; write `def my_metric(theta): ...`")
    per_replica = (
        probe is None or np.ndim(call_function(f"metric {name}(theta)", function, check_array("probe", probe))) > 0
    )
    return FunctionMetric(function, per_replica)
