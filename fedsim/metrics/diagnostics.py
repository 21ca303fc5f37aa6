"""Convergence of chains and the worth of their draws: R-hat and the effective sample sizes of bulk and tails.

All take chains (draws, chains, d), cut each chain into a first and a last half, and return one number per coordinate.
They are those of Vehtari, Gelman, Simpson, Carpenter and Buerkner (Bayesian Analysis, 2021), ArviZ's defaults: R-hat is
the larger one of the ranks' normal scores and of the folded draws', so that chains that differ in place or in spread
are found and heavy tails do not matter; the effective sample size is that of the normal scores (bulk), or the smaller
one of the two events "at most the 5 % quantile" and "at most the 95 % quantile" (tail). NaN in a coordinate gives NaN.
Unlike ArviZ, R-hat of a single chain compares its halves, and draws that never moved have no effective sample size.

Metrics of samplers: have the chains mixed, what are their draws worth, at what price, and what was accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.checks import call_function, check_array
from fedsim.errors import InvalidInput
from fedsim.metrics.theta import MetricView

TAILS = (0.05, 0.95)
MIN_DRAWS = 4  # two halves of two draws, the least that has a variance


def _halves(chains: npt.ArrayLike) -> tuple[Array, Array]:
    chains = np.ascontiguousarray(check_array("chains", chains))  # sums follow the layout, bits must not
    if chains.ndim != 3 or chains.shape[1] < 1:
        raise InvalidInput(f"chains have shape {chains.shape}; they must be (draws, chains, d)")
    if len(chains) < MIN_DRAWS:
        raise InvalidInput(f"chains hold {len(chains)} draws; split chains need at least {MIN_DRAWS}")
    half = len(chains) // 2
    return chains[:half], chains[-half:]


def split_rhat(chains: npt.ArrayLike) -> Array:
    """Rank-normalised R-hat, folded and not, the larger one, (d,); near 1 where the chains agree in place and spread.

    NaN where no draw differs from another, infinite where the chains stand still at different points.
    """
    first, last = _halves(chains)
    return np.array([_rhat_of_coordinate(_split(first, last, j)) for j in range(first.shape[2])])


def ess(chains: npt.ArrayLike) -> Array:
    """Bulk effective sample size, (d,); NaN where no chain has moved, which tells nothing about the law."""
    first, last = _halves(chains)
    moved = _moved(first, last)
    return np.array([_ess_of_coordinate(_split(first, last, j)) if moved[j] else np.nan for j in range(first.shape[2])])


def ess_tail(chains: npt.ArrayLike) -> Array:
    """Tail effective sample size, (d,): how well the 5 % and the 95 % quantile are known; NaN where no chain has moved.

    The quantiles are of all draws, the middle one of an odd number included.
    """
    first, last = _halves(chains)
    draws, moved = np.asarray(chains, np.float64), _moved(first, last)
    found = np.full(first.shape[2], np.nan)
    for j in np.flatnonzero(moved).tolist():
        halves = _split(first, last, j)
        if np.isfinite(draws[:, :, j]).all():
            found[j] = min(_ess_of(halves <= level) for level in np.quantile(draws[:, :, j], TAILS))
    return found


def running(history: Array) -> Array | None:
    """The history (draws, chains, d) of the chains that have not stopped; None while it is too short to split."""
    if len(history) < MIN_DRAWS:
        return None
    kept = ~np.isnan(history[-1]).all(axis=1)
    return history[:, kept] if kept.any() else None


def _split(first: Array, last: Array, j: int) -> Array:
    return np.concatenate([first[:, :, j].T, last[:, :, j].T])  # (2 chains, half the draws)


def _moved(first: Array, last: Array) -> Array:
    return np.asarray(np.any(np.concatenate([first, last]) != first[0], axis=(0, 1)))  # (d,)


def _rhat_of_coordinate(x: Array) -> float:
    if not np.isfinite(x).all():
        return float("nan")
    folded = np.abs(x - np.median(x))
    return float(np.fmax(_rhat_of(_normal_scores(x)), _rhat_of(_normal_scores(folded))))


def _rhat_of(x: Array) -> float:
    """sqrt(pooled variance / variance within half chains); NaN of equal numbers."""
    if (x == x[:, :1]).all():  # asked of the numbers themselves, since their means are rounded
        return float("nan") if (x == x[0, 0]).all() else float("inf")
    draws = x.shape[1]
    within, between = x.var(axis=1, ddof=1).mean(), draws * x.mean(axis=1).var(ddof=1)
    return float(np.sqrt((between / within + draws - 1) / draws))


def _ess_of_coordinate(x: Array) -> float:
    return _ess_of(_normal_scores(x)) if np.isfinite(x).all() else float("nan")


def _ess_of(x: Array) -> float:
    if (x == x[0, 0]).all():  # an event that is always the case is known exactly
        return float(x.size)
    x = np.asarray(x, np.float64)
    draws = x.shape[1]
    means = x.mean(axis=1)
    within = _autocovariance(x - means[:, None])
    mean_var = within[0] * draws / (draws - 1.0)
    var_plus = within[0] + means.var(ddof=1)
    rho = 1.0 - (mean_var - within) / var_plus
    rho[0] = 1.0
    return float(x.size / max(_autocorrelation_time(rho), 1.0 / math.log10(x.size)))


def _normal_scores(x: Array) -> Array:
    """Ranks among all draws of all chains, ties averaged, as quantiles of N(0, 1) (Blom's formula)."""
    from scipy.special import ndtri

    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    return np.asarray(ndtri((rank - 0.375) / (x.size + 0.25))[place.reshape(x.shape)])


def _autocovariance(centred: Array) -> Array:
    """Mean over chains of the biased autocovariance at every lag; averaging first saves inverse transforms."""
    draws = centred.shape[1]
    padded = 1 << (2 * draws - 1).bit_length()  # no wrap-around, and a length that is fast
    power = (np.abs(np.fft.rfft(centred, padded, axis=1)) ** 2).mean(axis=0)
    return np.asarray(np.fft.irfft(power, padded)[:draws] / draws)


def _autocorrelation_time(rho: Array) -> float:
    """Geyer's initial monotone sequence over the sums of neighbouring autocorrelations.

    Pairs count while their sum is positive, each at most its predecessor; of the pair that ends the
    sequence only the even half counts, and only once.
    """
    examined = max((len(rho) - 1) // 2, 1)
    pairs = rho[0 : 2 * examined : 2] + rho[1 : 2 * examined : 2]
    ends = np.flatnonzero(pairs <= 0.0)
    end = int(ends[0]) if len(ends) else examined - 1
    tail = rho[2 * end] if pairs[end] >= 0.0 else max(rho[2 * end], 0.0)
    return float(-1.0 + 2.0 * np.minimum.accumulate(pairs[:end]).sum() + tail)


Spent = Literal["sent_bits", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits", "seconds"]
PARTS = {
    "sent_bits": ("uplink_bits", "backhaul_bits"),  # what clients and sites send; over gossip there is no uplink
    "total_bits": ("uplink_bits", "downlink_bits", "backhaul_bits"),
}
NAN = float("nan")
RHAT = 1.01  # above it chains have not mixed (Vehtari et al. 2021, section 4)
ESS = 400  # below it R-hat and quantiles are unreliable (the same)


@dataclass(frozen=True, eq=False)
class MeanSquaredError:
    function: Callable[[Array], npt.ArrayLike]
    truth: float
    name: str = "mse"
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: MetricView) -> dict[str, float]:
        kept = ~np.isnan(view.history).all(axis=2)  # (rounds, R)
        runs = kept.any(axis=0)
        if not runs.any():
            return {self.name: float("nan")}
        values = np.zeros(kept.shape)
        samples = view.history[kept]
        found = check_array(
            f"{self.name}: function returned", call_function(f"{self.name}: function", self.function, samples)
        )
        if found.shape not in ((), (len(samples),)):
            raise InvalidInput(f"{self.name}: function returned shape {found.shape}; give one number for every sample")
        values[kept] = found
        with np.errstate(over="raise"):
            estimates = values.sum(axis=0)[runs] / kept.sum(axis=0)[runs]
            return {self.name: float(((estimates - self.truth) ** 2).mean())}


@dataclass(frozen=True)
class Rhat:
    columns: ClassVar[tuple[str, ...]] = ("rhat",)
    per_replica: ClassVar[bool] = False

    @np.errstate(over="raise")
    def evaluate(self, view: MetricView) -> dict[str, float]:
        draws = running(view.history)
        return {"rhat": NAN if draws is None else float(split_rhat(draws).max())}

    def doubts(self, view: MetricView, value: float, replicas: int) -> list[str]:
        if unknown := _undefined("rhat", view):
            return unknown
        if not value > RHAT:
            return []
        return [f"rhat {value:.3g} is above {RHAT}: the chains disagree about place or spread; run longer"]


@dataclass(frozen=True)
class Ess:
    name: Literal["ess", "ess_tail"] = "ess"
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: MetricView) -> dict[str, float]:
        return {self.name: _ess(view, ess_tail if self.name == "ess_tail" else ess)}

    def doubts(self, view: MetricView, value: float, replicas: int) -> list[str]:
        if unknown := _undefined(self.name, view):
            return unknown
        if not value < ESS:
            return []
        return [f"{self.name} {value:.3g} is below {ESS}: estimates from these samples are rough; run longer"]


@dataclass(frozen=True)
class EssPer:
    """The effective sample size of the replicas still running over what they have spent, warm-up included."""

    spent: Spent
    unit: float
    name: str
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: MetricView) -> dict[str, float]:
        spent = self._spent(view)
        return {self.name: _ess(view) / spent if spent > 0 else NAN}

    def about(self, view: MetricView) -> str:
        return f"all replicas' {self.spent} together"

    def doubts(self, view: MetricView, value: float, replicas: int) -> list[str]:
        if self._spent(view) > 0:
            return _undefined(self.name, view)
        return [f"{self.name} is not defined: no {self.spent} were spent; give the scenario a network or devices"]

    def _spent(self, view: MetricView) -> float:
        running = ~np.isnan(view.theta).all(axis=1)
        parts = PARTS.get(self.spent, (self.spent,))
        return float(sum(view.spent[part][running].sum() for part in parts)) / self.unit


@dataclass(frozen=True)
class Accepted:
    """What share of its proposals each replica has accepted so far, by the clients' memory `accepted`, `proposed`."""

    columns: ClassVar[tuple[str, ...]] = ("accepted",)
    per_replica: ClassVar[bool] = True

    def evaluate(self, view: MetricView) -> Arrays:
        share = _accepted(view)
        if share is None:
            raise InvalidInput("metric 'accepted': this algorithm accepts all it proposes; it is for MALA and HMC")
        return {"accepted": np.where(np.isnan(view.theta).all(axis=1), np.nan, share)}


def _accepted(view: MetricView) -> Array | None:
    """Shares (R,), NaN before the first proposal; None where nothing is ever rejected."""
    if not {"accepted", "proposed"} <= set(view.memory):
        return None
    shares, counts = (np.asarray(view.memory[n], np.float64)[..., 0] for n in ("accepted", "proposed"))  # (R, clients)
    total = counts.sum(axis=1)
    return np.asarray(np.divide((shares * counts).sum(axis=1), total, np.full(len(total), np.nan), where=total > 0))


def common_start(starts: Array) -> list[str]:
    """A warning about R-hat where all replicas began at the same point."""
    if len(starts) < 2 or not (starts == starts[0]).all():
        return []
    return [
        f"rhat: all {len(starts)} replicas began at the same point, so that they agree before they have mixed; "
        "set initial=fs.initial.normal(scale)"
    ]


def _ess(view: MetricView, size: Callable[[Array], Array] = ess) -> float:
    draws = running(view.history)
    return NAN if draws is None else float(size(draws).min())


def _undefined(name: str, view: MetricView) -> list[str]:
    """Why a figure of chains is NaN, infinite or of fewer chains than it seems: too few samples, or no moves."""
    draws = running(view.history)
    if draws is None:
        kept = len(view.history)
        return [
            f"{name} is not defined: {kept} samples of each replica were kept; it needs {MIN_DRAWS}, run more "
            "rounds or set record=fs.Record(every=1)"
        ]
    still = (draws == draws[0]).all(axis=0)  # (chains, d)
    frozen = still.all(axis=1)
    if not frozen.any():
        fixed = int(still.all(axis=0).sum())
        return [f"{name} is not defined: {fixed} of {still.shape[1]} coordinates never moved"] if fixed else []
    shares = _accepted(view)
    remedy = "see `arrived` in rounds"
    if shares is not None:
        share = shares[~np.isnan(view.history[-1]).all(axis=1)][frozen].mean()
        remedy = f"{100 * share:.3g} % of their proposals were accepted, lower step_size"
    return [f"{name}: {frozen.sum()} of {len(frozen)} chains never moved; {remedy}"]
