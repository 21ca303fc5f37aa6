"""When to checkpoint, what goes into it, and how a run resumes from one."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import is_int
from fedsim.errors import FedsimError, Interrupted, InvalidInput, RuntimeFailed
from fedsim.results.checkpoints import Checkpoints, SavedCheckpoint
from fedsim.text import short_repr

if TYPE_CHECKING:
    from fedsim.engine.clock import Clock
    from fedsim.engine.run import Run


class Checkpointer:
    """Writes a run's checkpoints; `every` counts rounds, or real seconds as in "60s". None: only when interrupted."""

    def __init__(
        self, folder: Path | None, identity: str, every: int | str | None, stop: threading.Event | None
    ) -> None:
        self.files = None if folder is None else Checkpoints(folder / "checkpoints", identity)
        self.rounds, self.seconds = _interval(every)
        self.stop, self._wrote = stop, time.monotonic()
        self.asked = stop is not None or self.files is not None  # whether there is anything to do after a round
        self.saved: SavedCheckpoint | None = None
        self.failure: RuntimeFailed | None = None
        self._announce: Callable[[int], None] = lambda done: None

    def announce(self, function: Callable[[int], None]) -> None:
        """Call a function with the rounds that are done, after every block of rounds."""
        self._announce, self.asked = function, True

    def find(self) -> str:
        """Find the checkpoint to resume from; return a note about damaged ones."""
        self.saved = self.files.latest() if self.files is not None else None
        return self.saved.note if self.saved is not None else ""

    @property
    def stopping(self) -> bool:
        """True if the run is asked to end, or the runtime gave up."""
        return self.failure is not None or (self.stop is not None and self.stop.is_set())

    def fail(self, failure: RuntimeFailed) -> None:
        """End the run after the last round that counts, because its runtime gave up."""
        self.failure = failure

    def clock_of(self, clock: str) -> str:
        """Return the clock of the run that is resumed, or else this one."""
        saved = "" if self.saved is None else str(self.saved.state.get("clock", ""))
        if saved and clock not in ("auto", saved):
            raise InvalidInput(f"clock={clock!r}: the run was begun on clock={saved!r}; resume it without clock=")
        return saved or clock

    def resume(self, run: Run) -> tuple[int, Array, Arrays]:
        """Restore the run; return the rounds that are done, the active replicas, and the clock's saved state."""
        if self.saved is None:
            return 0, np.arange(len(run.system.replicas)), {}
        state = self.saved.state

        def group(name: str) -> Arrays:
            return {n.removeprefix(name + "."): a for n, a in state.items() if n.startswith(name + ".")}

        run.learner.restore(group("state"), group("memory"), group("losses"), group("broadcasts"))
        run.totals.spent, run.totals.totals = group("spent"), group("totals")
        run.totals.stopped_by = [str(s) for s in state["stopped_by"]]
        run.recorder.restore(group("recorder"), self.saved.segments)
        run.evaluator.restore(group("judge"))
        run.trace.restore(self.saved.segments)
        return self.saved.number, state["active"], group("own")

    def after_block(self, run: Run, clock: Clock, done: int, active: Array) -> None:
        """Checkpoint if it is due; raise if the runtime gave up, or Interrupted if the run was asked to stop."""
        self._announce(done)
        stopping = self.stopping
        due = self.rounds is not None and done % self.rounds == 0
        due |= self.seconds is not None and time.monotonic() - self._wrote >= self.seconds
        if self.files is not None and done and len(active) and (due or stopping):
            segment = run.recorder.segment() | run.trace.segment()
            self.files.save(done, _state(run, active, clock), segment)
            self._wrote = time.monotonic()
        if self.failure is not None:
            raise self.failure
        if stopping and len(active):
            with suppress(FedsimError):  # a metric that fails is no reason to lose the checkpoint's message
                run.interrupted(done, active)
            where = "" if self.files is None else f"; go on with: fedsim resume {self.files.folder.parent}"
            raise Interrupted(f"stopped after round {done}{where}")


def _state(run: Run, active: Array, clock: Clock) -> Arrays:
    out = {"active": active, "stopped_by": np.asarray(run.totals.stopped_by, np.str_), "clock": np.asarray(clock.name)}
    groups: dict[str, Arrays] = {
        "state": run.learner.state, "memory": run.learner.memory, "losses": run.learner.losses(),
        "spent": run.totals.spent, "totals": run.totals.totals, "recorder": run.recorder.state(),
        "judge": run.evaluator.state(), "own": clock.state(), "broadcasts": run.learner.broadcasts.state(),
    }  # fmt: skip
    for group, arrays in groups.items():
        out |= {f"{group}.{name}": a for name, a in arrays.items()}
    return out


def _interval(every: int | str | None) -> tuple[int | None, float | None]:
    if every is None:
        return None, None
    if isinstance(every, str) and (match := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{0,9})?)\s*s", every)):
        return None, float(match[1])
    if not isinstance(every, str) and is_int(every, least=1):
        return int(every), None
    raise InvalidInput(
        f"checkpoint_every={short_repr(every)}: a number of rounds such as 100, or real seconds such as '60s'"
    )
