"""Metrics after a round. They read the run and cannot change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim import metrics
from fedsim.arrays import Array, Arrays
from fedsim.engine.recorder import Recorder
from fedsim.errors import FedsimError, InvalidInput, NonFinite
from fedsim.exchanges import Gossip
from fedsim.protocols import Exact, Explained, KeepsLedger, OfTheta, Predicts, ProblemLike, Warns, call

if TYPE_CHECKING:
    from fedsim.scenario import Scenario

DIVERGED = (OverflowError, FloatingPointError, np.linalg.LinAlgError)  # what a metric raises of a run that diverges


class Evaluator:
    """The metrics of a run and what they read: states, samples, predictions, the target law, what was spent.

    `problem` is the one that jobs compute with: over gossip its clients have other weights.
    """

    def __init__(
        self, scenario: Scenario, recorder: Recorder, problem: ProblemLike, remedy: Callable[[], str]
    ) -> None:  # fmt: skip
        self.metrics = [metrics.resolve(m, scenario.starts) for m in scenario.metrics]
        self.problem, self.recorder, self._seed, self._remedy = scenario.problem, recorder, scenario.seed, remedy
        self._site = "client" if isinstance(scenario.exchange, Gossip) else "site"
        replicas = len(recorder.replicas)
        accountants = [m for m in self.metrics if isinstance(m, KeepsLedger)]
        role = scenario.parts.algorithm
        ledgers = [call(m, "ledger", role.wrapped, problem, replicas) for m in accountants]
        self.ledger = ledgers[0] if ledgers else None  # the uploads so far, where a metric accounts for their privacy
        self.temperature = role.temperature
        self.sampler = role.sampler and self.temperature > 0
        self.theta = np.empty((replicas, recorder.dim), recorder.dtype)
        self.sites = np.empty((replicas, scenario.sites.count, recorder.dim), recorder.dtype)
        spent = ("uplink_bits", "downlink_bits", "backhaul_bits", "seconds")
        self.spent: Arrays = {n: np.zeros(replicas) for n in spent}
        self.memory: Mapping[str, Array] = {}
        self._ensemble = role.ensemble  # of models that predict together
        self._models: tuple[Array, Array] | None = None  # (replicas, models, d), and which are there
        self._current: Array | None = None  # predictions of theta now
        self._predicted: Array | None = None  # (replicas, rows, classes), summed over the samples seen
        self._seen = 0
        self._latest: dict[str, tuple[float, int]] = {}  # figures over replicas: the last one, of how many

    def check(self, start: Array, sites: Array, memory: Mapping[str, Array]) -> None:
        """Evaluate all metrics once on the initial states, so that one that cannot work is refused before the run."""
        self.after(0, np.arange(len(self.theta)), start, sites, {}, memory)
        self._latest = {}

    @property
    def history(self) -> Array:
        return self.recorder.history

    @cached_property
    def target(self) -> Any:
        """The exact law exp(-f / temperature), or None if the problem has none."""
        if not isinstance(self.problem, Exact):
            return None
        mean, covariance = call(self.problem, "exact")
        return metrics.Moments(np.asarray(mean), self.temperature * np.asarray(covariance))

    def predictive(self, of: Literal["current", "average"]) -> Array:
        """Return class probabilities (replicas, rows, classes) of theta now, or averaged over the samples so far.

        Before the first sample, the average is that of theta now.
        """
        if of == "average" and self.recorder.samples:
            for sample in self.recorder.samples[self._seen :]:
                p = self._predict(sample)
                self._predicted = p if self._predicted is None else self._predicted + p
            self._seen = len(self.recorder.samples)
            assert self._predicted is not None
            return self._predicted / self._seen
        if self._current is None:
            self._current = self._predict(self.theta) if self._models is None else self._together(*self._models)
        return self._current

    def _together(self, models: Array, there: Array) -> Array:
        """Return the average over the models of every replica."""
        total = self._predict(np.where(np.isnan(self.theta[:, :1]), np.nan, models[:, 0]))
        for m in range(1, models.shape[1]):
            if (here := there[:, m] > 0).any():
                rows = np.where(here[:, None] & ~np.isnan(self.theta[:, :1]), models[:, m], np.nan)
                total = total + np.nan_to_num(self._predict(rows)) if not np.isnan(rows).all() else total
        return np.asarray(total / there.sum(axis=1)[:, None, None])

    def _predict(self, theta: Array) -> Array:
        """Return predictions of every replica, NaN for those that have stopped."""
        assert isinstance(self.problem, Predicts)
        running = np.flatnonzero(~np.isnan(theta).all(axis=1))
        first = np.asarray(call(self.problem, "predict", theta[running[0]]))
        out = np.full((len(theta), *first.shape), np.nan, first.dtype)
        out[running[0]] = first
        for r in running[1:]:
            out[r] = call(self.problem, "predict", theta[r])
        if not np.isfinite(out[running]).all():
            raise FloatingPointError("predictions are not finite where theta is")
        return out

    def state(self) -> Arrays:
        """Return the running predictive average and the ledger, for a checkpoint."""
        out = {} if self._predicted is None else {"predicted": self._predicted, "seen": np.array(self._seen)}
        return out | {f"ledger.{n}": a for n, a in (self.ledger.state() if self.ledger else {}).items()}

    def restore(self, state: Arrays) -> None:
        if "predicted" in state:
            self._predicted, self._seen = state["predicted"], int(state["seen"])
        if self.ledger is not None:
            self.ledger.restore({n.removeprefix("ledger."): a for n, a in state.items() if n.startswith("ledger.")})

    def of_rounds(self, theta: Array, ends: Sequence[int]) -> Arrays:
        """Return columns of metrics that evaluate many rounds in one call, a row after each of `ends`.

        theta is (rounds, replicas, d).
        """
        able = [m for m in self.metrics if isinstance(m, OfTheta)]
        found: Arrays = {}
        if able:
            seen = theta[np.asarray(ends) - 1]
            for metric in able:
                with suppress(*DIVERGED), np.errstate(over="ignore", invalid="ignore"):  # `after` finds the round
                    found |= call(metric, "evaluate_rounds", self, seen) or {}
        return found

    def after(
        self, number: int, active: Array, theta: Array, sites: Array, spent: Mapping[str, Array],
        memory: Mapping[str, Array], state: Arrays | None = None, known: Mapping[str, Array] = MappingProxyType({}),
        per_replica: bool | None = None,
    ) -> tuple[Arrays, dict[str, float]]:  # fmt: skip
        """Return the columns for `rounds` (one value per active replica) and for `metrics`, after round `number`.

        `theta`, `sites` and `spent` are of the active replicas, `memory` and the server's `state` are those of
        all replicas.
        `known` are columns from `of_rounds`. `per_replica` asks for one of the two kinds of metrics alone.
        """
        asked = [m for m in self.metrics if per_replica in (None, m.per_replica)]
        if not asked:
            return {}, {}
        self._models = None if self._ensemble is None or state is None else self._ensemble(state)
        self.theta[:] = np.nan
        self.theta[active] = theta
        self.sites[:] = np.nan
        self.sites[active] = sites
        for name, so_far in spent.items():
            self.spent[name][active] = so_far
        self.memory, self._current = memory, None
        columns: Arrays = {}
        overall: dict[str, float] = {}
        for metric in asked:
            early = {name: known[name] for name in metric.columns if name in known}
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    found = early or call(metric, "evaluate", self)
            except (InvalidInput, *DIVERGED) as error:
                if isinstance(error, InvalidInput) and not isinstance(error.__cause__, DIVERGED):
                    raise
                raise self._diverged(number, active, sites, metric.columns[0]) from error
            for name, value in found.items():
                if metric.per_replica:
                    columns[name] = np.asarray(value, np.float64)[... if early else active]
                else:
                    overall[name] = float(np.asarray(value))
                    if not math.isnan(overall[name]):
                        self._latest[name] = overall[name], len(active)
        return columns, overall

    def _diverged(self, number: int, active: Array, sites: Array, column: str) -> FedsimError:
        """Return the error about states (active, sites, d) that are finite and too large for a metric."""
        row, site = np.unravel_index(int(np.argmax(np.abs(sites).max(axis=2))), sites.shape[:2])
        whose = f" of {self._site} {site}" if sites.shape[1] > 1 else ""
        reached = f"theta{whose} reaches {np.abs(sites[row, site]).max():.3g}"
        if not number:
            return InvalidInput(f"initial: {reached} and {column} cannot be computed; start nearer to 0")
        where = f"replica {self.recorder.replicas[active[row]]}, seed {self._seed}"
        return NonFinite(f"{reached} in round {number} and {column} cannot be computed ({where}); {self._remedy()}")

    def about(self) -> dict[str, str]:
        """Return the descriptions of columns whose metrics have one."""
        explained = [(m, call(m, "about", self)) for m in self.metrics if isinstance(m, Explained)]
        return {column: text for m, text in explained for column in m.columns}

    def warnings(self) -> list[str]:
        """Return warnings about figures of the finished run, a sentence each."""
        return [
            text
            for m in self.metrics
            if isinstance(m, Warns)
            for text in call(m, "warnings", self, *self._latest.get(m.columns[0], (math.nan, 0)))
        ]
