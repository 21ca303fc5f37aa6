"""MCMC metrics: R-hat, effective sample sizes and their cost, and the acceptance rate of proposals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import check_choice, check_name
from fedsim.errors import InvalidInput
from fedsim.metrics import diagnostics
from fedsim.metrics.diagnostics import ESS, MIN_DRAWS, RHAT, running, split_rhat
from fedsim.protocols import MetricView

Spent = Literal["sent_bits", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits", "seconds"]
PARTS = {
    "sent_bits": ("uplink_bits", "backhaul_bits"),  # what clients and sites send; over gossip there is no uplink
    "total_bits": ("uplink_bits", "downlink_bits", "backhaul_bits"),
}
NAN = float("nan")
COLUMN = "give the name of its column"


def rhat() -> Rhat:
    """Return the largest split R-hat over coordinates, with replicas as chains (Vehtari et al. 2021).

    NaN before 4 samples are recorded or if no chain moved, infinite if constant chains differ. The run ends with a
    warning that gives the reason, and with another if R-hat is above 1.01 or all replicas began at the same point.
    """
    return Rhat()


@dataclass(frozen=True)
class Rhat:
    """The largest R-hat over coordinates."""

    columns: ClassVar[tuple[str, ...]] = ("rhat",)
    per_replica: ClassVar[bool] = False

    @np.errstate(over="raise")
    def evaluate(self, view: MetricView) -> dict[str, float]:
        draws = running(view.history)
        return {"rhat": NAN if draws is None else float(split_rhat(draws).max())}

    def warnings(self, view: MetricView, value: float, replicas: int) -> list[str]:
        if undefined := _undefined("rhat", view):
            return undefined
        if not value > RHAT:
            return []
        return [f"rhat {value:.3g} is above {RHAT}: the chains differ in location or scale; run longer"]


def ess() -> Ess:
    """Return the smallest bulk effective sample size over coordinates, of all replicas together.

    NaN before 4 samples are recorded and if no chain moved. The run ends with a warning that gives the reason, and with
    another if the size is below 400.
    """
    return Ess()


def ess_tail() -> Ess:
    """Return the smallest tail effective sample size over coordinates, of the 5 % and 95 % quantiles; else as `ess`."""
    return Ess("ess_tail")


@dataclass(frozen=True)
class Ess:
    """The smallest effective sample size over coordinates."""

    name: Literal["ess", "ess_tail"] = "ess"
    per_replica: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, view: MetricView) -> dict[str, float]:
        return {self.name: _ess(view, diagnostics.ess_tail if self.name == "ess_tail" else diagnostics.ess)}

    def warnings(self, view: MetricView, value: float, replicas: int) -> list[str]:
        if undefined := _undefined(self.name, view):
            return undefined
        if not value < ESS:
            return []
        return [f"{self.name} {value:.3g} is below {ESS}: estimates from these samples are rough; run longer"]


def ess_per_megabit(
    bits: Literal["sent_bits", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits"] = "sent_bits",
    name: str = "ess_per_megabit",
) -> EssPer:
    """Return `ess` per million bits that all replicas have sent, warm-up included.

    "sent_bits" are uplink bits and the bits between sites; gossip has only the latter.
    """
    known = ("sent_bits", "uplink_bits", "downlink_bits", "backhaul_bits", "total_bits")
    check_choice("ess_per_megabit(bits={!r})", bits, known)
    return EssPer(bits, 1e6, check_name("ess_per_megabit(name={!r})", name, COLUMN))


def ess_per_second(name: str = "ess_per_second") -> EssPer:
    """Return `ess` per second of virtual time, summed over replicas; NaN if nothing takes time."""
    return EssPer("seconds", 1.0, check_name("ess_per_second(name={!r})", name, COLUMN))


@dataclass(frozen=True)
class EssPer:
    """The effective sample size of the running replicas over their cost, warm-up included."""

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
        return f"{self.spent} of all replicas"

    def warnings(self, view: MetricView, value: float, replicas: int) -> list[str]:
        if self._spent(view) > 0:
            return _undefined(self.name, view)
        return [f"{self.name} is not defined: {self.spent} are 0; give the scenario a network or devices"]

    def _spent(self, view: MetricView) -> float:
        active = ~np.isnan(view.theta).all(axis=1)
        parts = PARTS.get(self.spent, (self.spent,))
        return float(sum(view.spent[part][active].sum() for part in parts)) / self.unit


def accepted() -> Accepted:
    """Return the fraction of its proposals that each replica has accepted so far, for MALA and HMC.

    A sampler of your own needs `accepted` (fraction) and `proposed` (count), (1,) each, in its clients' memory.
    """
    return Accepted()


@dataclass(frozen=True)
class Accepted:
    """The fraction of accepted proposals of each replica, from the clients' memory `accepted` and `proposed`."""

    columns: ClassVar[tuple[str, ...]] = ("accepted",)
    per_replica: ClassVar[bool] = True

    def evaluate(self, view: MetricView) -> Arrays:
        share = _accepted(view)
        if share is None:
            raise InvalidInput("metric 'accepted': this algorithm accepts all proposals; use MALA or HMC")
        return {"accepted": np.where(np.isnan(view.theta).all(axis=1), np.nan, share)}


def _accepted(view: MetricView) -> Array | None:
    """Return fractions (R,), NaN before the first proposal; None if the algorithm rejects no proposal."""
    if not {"accepted", "proposed"} <= set(view.memory):
        return None
    shares, counts = (np.asarray(view.memory[n], np.float64)[..., 0] for n in ("accepted", "proposed"))  # (R, clients)
    total = counts.sum(axis=1)
    return np.asarray(np.divide((shares * counts).sum(axis=1), total, np.full(len(total), np.nan), where=total > 0))


def common_start(starts: Array) -> list[str]:
    """Return a warning about R-hat if all replicas began at the same point."""
    if len(starts) < 2 or not (starts == starts[0]).all():
        return []
    return [
        f"rhat: all {len(starts)} replicas began at the same point, so that R-hat is small before they have mixed; "
        "set initial=fs.initial.normal(scale)"
    ]


def _ess(view: MetricView, size: Callable[[Array], Array] = diagnostics.ess) -> float:
    draws = running(view.history)
    return NAN if draws is None else float(size(draws).min())


def _undefined(name: str, view: MetricView) -> list[str]:
    """Return why a figure of chains is not defined or misleading: too few samples, or chains that never moved."""
    draws = running(view.history)
    if draws is None:
        count = len(view.history)
        return [
            f"{name} is not defined: {count} samples of each replica were recorded; it needs {MIN_DRAWS}, run more "
            "rounds or set record=fs.Record(every=1)"
        ]
    still = (draws == draws[0]).all(axis=0)  # (chains, d)
    frozen = still.all(axis=1)
    if not frozen.any():
        fixed = int(still.all(axis=0).sum())
        return [f"{name} is not defined: {fixed} of {still.shape[1]} coordinates never moved"] if fixed else []
    shares = _accepted(view)
    remedy = "see the column `arrived`"
    if shares is not None:
        share = shares[~np.isnan(view.history[-1]).all(axis=1)][frozen].mean()
        remedy = f"{100 * share:.3g} % of their proposals were accepted, lower step_size"
    return [f"{name}: {frozen.sum()} of {len(frozen)} chains never moved; {remedy}"]
