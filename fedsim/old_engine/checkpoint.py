"""When to checkpoint, what goes into it, and how a run takes up from one.

The clock need not be saved. It is a pure function of the seed, so a resumed run winds it forward, without computing
anything, and holds the same flows and the same visits in flight as the run that was interrupted. What was *learnt* is
stored, and what a way of keeping time hands over (`Driver.state`): the compiled clock's arrays, where they are small.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.checkpoint import Checkpointer as NewCheckpointer
from fedsim.errors import FedsimError, Interrupted

if TYPE_CHECKING:
    from fedsim.old_engine.run import Driver, Run


class Checkpointer(NewCheckpointer):
    """Writes a run's checkpoints; `every` counts rounds, or real seconds as in "60s". None: only when interrupted."""

    def resume(self, run: Run) -> tuple[int, Array, Arrays]:
        """The round to go on with, who is still active, and what the way of keeping time stored for itself."""
        if self.saved is None:
            return 0, np.arange(len(run.world.replicas)), {}
        state = self.saved.state
        _restore(run, state, self.saved.segments)
        own = {n.removeprefix("own."): v for n, v in state.items() if n.startswith("own.")}
        return self.saved.number, state["active"], own

    def after(self, run: Run, driver: Driver, number: int, active: Array) -> None:
        """A round is closed: checkpoint if it is time to; stop if asked to."""
        asked = self.stopping
        due = self.rounds is not None and number % self.rounds == 0
        due |= self.seconds is not None and time.monotonic() - self._wrote >= self.seconds
        if self.files is not None and len(active) and (due or asked):
            self.files.save(number, _state(run, active, driver.state(active)), _segment(run))
            self._wrote = time.monotonic()
        if asked and len(active):
            with suppress(FedsimError):  # a metric that fails is no reason to lose the checkpoint's message
                run.interrupted(number, active)
            where = "" if self.files is None else f"; go on with: fedsim resume {self.files.folder.parent}"
            raise Interrupted(f"stopped after round {number}{where}")


def _state(run: Run, active: Array, own: Arrays) -> Arrays:
    out = {"active": active, "stopped_by": np.asarray(run.accounts.stopped_by, np.str_)}
    groups: dict[str, Arrays] = {
        "state": run.learner.state, "memory": run.learner.memory, "spent": run.accounts.spent,
        "totals": run.accounts.totals, "recorder": run.recorder.state(), "judge": run.evaluator.state(), "own": own,
    }  # fmt: skip
    for group, arrays in groups.items():
        out |= {f"{group}.{name}": a for name, a in arrays.items()}
    return out


def _segment(run: Run) -> Arrays:
    return run.recorder.segment() | run.inputs.segment() | run.trace.segment()


def _restore(run: Run, saved: Arrays, segments: list[Arrays]) -> None:
    def group(name: str) -> Arrays:
        return {n.removeprefix(name + "."): a for n, a in saved.items() if n.startswith(name + ".")}

    run.learner.state, run.learner.memory = group("state"), group("memory")
    run.accounts.spent, run.accounts.totals = group("spent"), group("totals")
    run.accounts.stopped_by = [str(s) for s in saved["stopped_by"]]
    run.recorder.restore(group("recorder"), segments)
    run.evaluator.restore(group("judge"))
    run.inputs.restore(segments)
    run.trace.restore(segments)
