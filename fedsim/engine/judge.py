"""Evaluates a scenario's metrics after a round; it reads the run and can never change it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import metrics
from fedsim.engine.record import Recorder

Array = npt.NDArray[Any]


class Judge:
    """Holds the target law and the running predictive average, and fills the metric columns."""

    def __init__(self, scenario: Any, recorder: Recorder) -> None:
        probe = np.repeat(scenario.start[None], len(recorder.replicas), 0)
        self.metrics = [metrics.resolve(m, probe) for m in scenario.metrics]
        self.problem, self.recorder = scenario.problem, recorder
        kept = [
            m.ledger(scenario.algorithm, scenario.problem, len(probe)) for m in self.metrics if hasattr(m, "ledger")
        ]
        self.ledger = kept[0] if kept else None  # the uploads so far, where a metric accounts for their privacy
        self.temperature = getattr(scenario.algorithm, "temperature", 1.0)
        self.theta = np.empty((len(recorder.replicas), recorder.dim), recorder.dtype)
        self._predicted: Array | None = None  # (replicas, rows, classes), summed over the samples seen
        self._seen = 0

    def check(self, start: Array) -> None:
        """Evaluate everything once on the initial states: a metric that cannot work is refused before the run."""
        self.after(np.arange(len(self.theta)), start)

    @property
    def history(self) -> Array:
        return self.recorder.history

    @cached_property
    def target(self) -> Any:
        """The exact law exp(-f / temperature), where the problem knows it."""
        if not hasattr(self.problem, "exact"):
            return None
        mean, covariance = self.problem.exact()
        return metrics.Moments(np.asarray(mean), self.temperature * np.asarray(covariance))

    @property
    def predictive(self) -> Array:
        """Class probabilities averaged over the samples kept so far, or those of theta now before there are any."""
        fresh = self.recorder.samples[self._seen :]
        if not self.recorder.samples:
            return np.stack([self.problem.predict(t) for t in self.theta])
        for sample in fresh:
            p = np.stack([self.problem.predict(t) for t in sample])
            self._predicted = p if self._predicted is None else self._predicted + p
        self._seen = len(self.recorder.samples)
        assert self._predicted is not None
        return self._predicted / self._seen

    def state(self) -> dict[str, Array]:
        """The running predictive average and the ledger, for a checkpoint."""
        out = {} if self._predicted is None else {"predicted": self._predicted, "seen": np.array(self._seen)}
        return out | {f"ledger.{n}": a for n, a in (self.ledger.state() if self.ledger else {}).items()}

    def restore(self, state: dict[str, Array]) -> None:
        if "predicted" in state:
            self._predicted, self._seen = state["predicted"], int(state["seen"])
        if self.ledger is not None:
            self.ledger.restore({n.removeprefix("ledger."): a for n, a in state.items() if n.startswith("ledger.")})

    def after(self, active: Array, theta: Array) -> tuple[dict[str, Array], dict[str, float]]:
        """The metrics' columns for `rounds` (one value per active replica) and for `metrics`."""
        self.theta[:] = np.nan
        self.theta[active] = theta
        per_replica: dict[str, Array] = {}
        overall: dict[str, float] = {}
        for metric in self.metrics:
            for name, value in metric.evaluate(self).items():
                if metric.per_replica:
                    per_replica[name] = np.asarray(value, np.float64)[active]
                else:
                    overall[name] = float(np.asarray(value))
        return per_replica, overall
