"""What a run refuses: a timeline that needs values, and rounds that would go on for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.budget import Budget
from fedsim.errors import InvalidInput

Array = npt.NDArray[Any]
IDLE_ROUNDS = 10_000  # in a row that spend nothing of what the budget limits, before a run counts as endless


def check_skip(run: Any) -> None:
    """Refuse a timing-only run of what has no timeline without its values, and a computed run of what has none."""
    if not run.skip:
        if getattr(run.problem, "timing_only", False):
            raise InvalidInput(f'problems.{type(run.problem).__name__} has no data to compute with; run it with compute="skip"')
        return
    if run.budget.target is not None:
        raise InvalidInput(
            f'compute="skip" evaluates no metrics, so Budget(target on {run.budget.target.metric!r}) would never be reached; give '
            "rounds=, bits or seconds="
        )
    if any(run.reply_shape(round).bits is None for round in (0, 1)):
        raise InvalidInput(
            f'compute="skip" cannot time {type(run.algorithm).__name__} with codec={getattr(run.algorithm, "codec", None)}: how long '
            "its replies are depends on their values; take a codec of fixed length such as fs.codecs.QSGD(levels), or compute"
        )


class Patience:
    """Watches that every round brings each replica nearer to the end of its budget."""

    def __init__(self, budget: Budget, replicas: int) -> None:
        limits = ("seconds", "uplink_bits", "downlink_bits", "total_bits")
        self._limited = [name for name in limits if getattr(budget, name) is not None]
        self._endless = budget.rounds is None
        self._idle = np.zeros(replicas, np.int64)  # rounds in a row that spent nothing

    def after(self, active: Array, number: int, columns: dict[str, Array]) -> None:
        """Round `number` of these replicas is about to count."""
        if not np.isfinite(columns["closed_s"]).all():
            raise InvalidInput(
                f"round {number} never closes: some client takes infinitely long; shorten its latency or its compute time, close "
                "with a deadline, or give the Budget seconds="
            )
        if not self._endless:
            return
        spent = {**columns, "seconds": columns["closed_s"] - columns["opened_s"]}
        spent["total_bits"] = columns["uplink_bits"] + columns["downlink_bits"]
        moved = np.any([spent[name] > 0 for name in self._limited], axis=0)
        self._idle[active] = np.where(moved, 0, self._idle[active] + 1)
        if self._idle[active].max() >= IDLE_ROUNDS:
            raise InvalidInput(
                f"{IDLE_ROUNDS:,} rounds in a row spent nothing of what the budget limits, so the run might never end; add rounds= "
                "to the Budget"
            )
