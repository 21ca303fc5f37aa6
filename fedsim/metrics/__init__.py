"""What a run is judged by: functions of samples and probabilities, and factories for Scenario(metrics=...).

The functions come from `distances`, `scores` and `diagnostics`; `diagnostics.ess(draws)` keeps its module's name in
front because `ess()` here makes the metric. `Metric` says what a metric of your own has to offer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import call_function, check_array, check_choice, check_float
from fedsim.errors import InvalidInput
from fedsim.metrics import diagnostics, distances
from fedsim.metrics.classification import (
    PREDICTIVE,
    Consensus,
    Loss,
    Predictive,
    against,
    calibration,
    confident,
    entropies,
    hpd,
)
from fedsim.metrics.diagnostics import Accepted, Ess, EssPer, MeanSquaredError, Rhat, split_rhat
from fedsim.metrics.distances import gaussian_w2, hpd_error, marginal_w1, w2_floor
from fedsim.metrics.posterior import COVARIANCE_ERROR, MEAN_ERROR, W2, Distance, MarginalError, Measure, Moments, Over
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
from fedsim.metrics.theta import (
    DistanceTo,
    DistanceToStable,
    Explained,
    FunctionMetric,
    Law,
    Metric,
    MetricView,
    OfTheta,
    Warns,
)
from fedsim.text import short_repr

__all__ = [
    "Explained",
    "Metric",
    "MetricView",
    "Moments",
    "OfTheta",
    "Reliability",
    "Warns",
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

Exact = tuple[npt.ArrayLike, npt.ArrayLike]  # mean (d,) and covariance (d, d), as `problem.exact()` returns
Function = Callable[[Array], npt.ArrayLike]


def w2(reference: Exact | Law | None = None, over: Over = "replicas", name: str = "w2") -> Distance:
    """Wasserstein-2 distance from a Gaussian fitted to the samples to the exact law; see `w2_floor`.

    The samples are the replicas' states now, or with over="history" all that were kept so far, of one replica or
    more: set `record=fs.Record(warmup=...)`. `name` is the column, where a run has both. A warning at the end says
    so where the number of samples is too small for the figure. The same holds for the two errors below.
    """
    return _distance(W2, reference, over, name)


def mean_error(reference: Exact | Law | None = None, over: Over = "replicas", name: str = "mean_error") -> Distance:
    """|mean over replicas, or over the history, - exact mean|."""
    return _distance(MEAN_ERROR, reference, over, name)


def covariance_error(
    reference: Exact | Law | None = None, over: Over = "replicas", name: str = "covariance_error"
) -> Distance:
    """|covariance over replicas, or over the history, - exact covariance| / |exact covariance|, Frobenius norms."""
    return _distance(COVARIANCE_ERROR, reference, over, name)


def predictive(*columns: str, of: Literal["current", "average"] | None = None) -> Predictive:
    """Scores of predicted class probabilities: `predictive("accuracy", "nll", of="average")`; without names all four.

    of="current" judges theta now, of="average" the probabilities averaged over the samples kept so far (theta now
    while there are none). By default samplers are judged by the average and optimisers by the current theta.
    """
    if strange := [name for name in columns if name not in PREDICTIVE]:
        raise InvalidInput(f"metrics.predictive({strange[0]!r}): choose among {', '.join(PREDICTIVE)}")
    check_choice("metrics.predictive(of={!r})", of, (None, "current", "average"))
    return Predictive(columns or PREDICTIVE, of)


def marginal_error(reference: npt.ArrayLike, over: Literal["history", "replicas"] = "history") -> MarginalError:
    """ME against reference samples (m, d), of all samples recorded so far or of the replicas' states now."""
    check_choice("marginal_error: over = {!r}", over, ("history", "replicas"), "it must be 'history' or 'replicas'")
    return MarginalError(np.sort(distances.columns(reference), axis=0), over)


def mse(function: Function, truth: float, name: str = "mse") -> MeanSquaredError:
    """(average of function(theta) over a run's recorded samples - truth)^2, averaged over runs.

    `function` maps (n, d) to (n,): `mse(lambda theta: np.linalg.norm(theta, axis=1), truth)`.
    """
    if not callable(function) or isinstance(function, type):
        raise InvalidInput(f"mse(function={short_repr(function)}): give a function of samples (n, d) that returns (n,)")
    return MeanSquaredError(function, check_float("mse(truth={})", truth), _name("mse", name))


def rhat() -> Rhat:
    """The largest rank-normalised, folded split R-hat over coordinates, replicas as chains (Vehtari et al. 2021).

    NaN before 4 samples are recorded or where nothing moved, infinite where chains stand still apart. A warning at the
    end gives the reason, and another where R-hat is above 1.01 or all replicas began at the same point.
    """
    return Rhat()


def ess() -> Ess:
    """The smallest bulk effective sample size over coordinates, all replicas together.

    NaN before 4 samples and where no chain ever moved; a warning at the end gives the reason, and another where it is
    below 400.
    """
    return Ess()


def ess_tail() -> Ess:
    """The smallest tail effective sample size over coordinates, of the 5 % and 95 % quantiles; otherwise as `ess`."""
    return Ess("ess_tail")


def ess_per_megabit(
    bits: Literal["sent_bits", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits"] = "sent_bits",
    name: str = "ess_per_megabit",
) -> EssPer:
    """`ess` per million bits that the replicas have sent together, warm-up included.

    "sent_bits" are the uplink and what sites send each other, which over gossip is all there is.
    """
    known = ("sent_bits", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits")
    check_choice("ess_per_megabit(bits={!r})", bits, known)
    return EssPer(bits, 1e6, _name("ess_per_megabit", name))


def ess_per_second(name: str = "ess_per_second") -> EssPer:
    """`ess` per second of virtual time, the replicas' clocks added up; NaN where nothing takes time."""
    return EssPer("seconds", 1.0, _name("ess_per_second", name))


def accepted() -> Accepted:
    """The share of its proposals that each replica has accepted so far, for MALA and HMC.

    A sampler of your own offers it with a client's memory of `accepted` (share) and `proposed` (count), (1,) each.
    """
    return Accepted()


def consensus() -> Consensus:
    """How far the sites of an exchange are from their average, theta: the root of the mean squared distance."""
    return Consensus()


def loss() -> Loss:
    """The problem's mean training loss at theta."""
    return Loss()


def distance_to(point: npt.ArrayLike, name: str = "distance_to_ps") -> DistanceTo:
    """|theta - point| of each replica, for instance to the performatively stable point."""
    at = check_array("distance_to(point)", point, axes=1, finite=True)
    return DistanceTo(at, _name("distance_to", name))


def _name(where: str, name: object) -> str:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidInput(f"{where}(name={short_repr(name)}): name its column with a word, such as {where!r}")
    return name


def distance_to_ps() -> DistanceToStable:
    """|theta - theta_PS|, the distance to the point that the problem's `performatively_stable()` gives."""
    return DistanceToStable()


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
    """A metric from a metric, from a column name such as "w2", or from a function of theta (R, d).

    A function's column is its name. Whether it returns (R,) or one number is found by calling it on `probe`
    (R, d), say the initial states; without a probe one number counts for every replica.
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
    if isinstance(metric, type) or not (isinstance(metric, Metric) or callable(metric)):
        raise InvalidInput(
            f"{short_repr(metric)} is no metric; pass fs.metrics.w2(), a name such as 'w2', or a function"
        )
    if isinstance(metric, Metric):
        return metric
    name = getattr(metric, "__name__", "<nameless>")
    if any(metric is make for make in _FACTORIES.values()):
        raise InvalidInput(f"fs.metrics.{name} makes a metric; call it: fs.metrics.{name}(...)")
    if name.startswith("<"):
        raise InvalidInput("a metric's column is its function's name; write `def my_metric(theta): ...`")
    per_replica = (
        probe is None or np.ndim(call_function(f"metric {name}(theta)", metric, check_array("probe", probe))) > 0
    )
    return FunctionMetric(metric, per_replica)


def _distance(measure: Measure, reference: Exact | Law | None, over: Over, name: str) -> Distance:
    check_choice(f"{measure.name}(over={{!r}})", over, ("replicas", "history"))
    return Distance(measure, _reference(reference), over, _name(measure.name, name))


def _reference(reference: Exact | Law | None) -> Moments | None:
    if reference is None or isinstance(reference, Moments):
        return reference
    if isinstance(reference, tuple | list) and len(reference) == 2:
        mean, covariance = reference
    elif isinstance(reference, Law):
        mean, covariance = reference.mean, reference.covariance
    else:
        raise InvalidInput(f"reference is a {type(reference).__name__}; it must be a pair (mean, covariance)")
    remedy = "a reference is a pair of numbers (mean, covariance), of shapes (d,) and (d, d)"
    moments = Moments(check_array("mean", mean, remedy=remedy), check_array("covariance", covariance, remedy=remedy))
    if moments.factor.shape[:1] != moments.mean.shape:
        raise InvalidInput(
            f"reference has a mean {moments.mean.shape} and a covariance {moments.covariance.shape}; "
            "they must be (d,) and (d, d)"
        )
    return moments
