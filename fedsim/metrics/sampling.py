"""Metrics of samplers: have the chains mixed, what are their draws worth, at what price, and what was accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.checks import called, numbers
from fedsim.errors import InvalidInput
from fedsim.metrics import chains
from fedsim.metrics.evaluate import MetricView

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
        found = numbers(f"{self.name}: function returned", called(f"{self.name}: function", self.function, samples))
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
        draws = chains.running(view.history)
        return {"rhat": NAN if draws is None else float(chains.split_rhat(draws).max())}

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
        return {self.name: _ess(view, chains.ess_tail if self.name == "ess_tail" else chains.ess)}

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


def _ess(view: MetricView, size: Callable[[Array], Array] = chains.ess) -> float:
    draws = chains.running(view.history)
    return NAN if draws is None else float(size(draws).min())


def _undefined(name: str, view: MetricView) -> list[str]:
    """Why a figure of chains is NaN, infinite or of fewer chains than it seems: too few samples, or no moves."""
    draws = chains.running(view.history)
    if draws is None:
        kept = len(view.history)
        return [
            f"{name} is not defined: {kept} samples of each replica were kept; it needs {chains.MIN_DRAWS}, run more "
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
