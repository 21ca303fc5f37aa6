"""The compiled clocks of all replicas: run ahead, a replica a task on the runtime's threads; saved; wound forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from fedsim.arrays import Array, Arrays

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

VISITS = 200_000  # made at a go
MOST = 4_000  # rounds made at a go
SAVED = 64e6  # bytes of clocks that go into a checkpoint; larger ones are wound forward anew


class CompiledClock(Protocol):
    """One replica's."""

    def run(self, until: int) -> int: ...
    def saved(self) -> Arrays: ...
    def restore(self, saved: Arrays) -> bool: ...
    def said(self, name: str) -> float: ...


Kind = TypeVar("Kind", bound=CompiledClock)


class ClocksAhead(Generic[Kind]):
    """A clock per replica, by position; `begin` makes one at time 0, of about `bytes_each`."""

    def __init__(self, run: Run, begin: Callable[[int], Kind], bytes_each: float) -> None:
        self._run, self._begin = run, begin
        replicas = len(run.world.replicas)
        self._clocks = {i: begin(i) for i in range(replicas)}
        self._saves = run.checkpoints.files is not None and bytes_each * replicas <= SAVED
        self.before: Arrays = {}  # the clocks as they were before the rounds that are ahead

    def of(self, position: int) -> Kind:
        return self._clocks[position]

    def more(self, number: int, active: Array, each: int) -> tuple[Array, list[Kind]]:
        """Rounds from `number` on, of so many visits each, as many as are made at a go; why each clock stopped."""
        count, rounds = max(1, min(MOST, VISITS // (len(active) * each))), self._run.world.budget.rounds
        if rounds is not None:
            count = min(count, int(rounds) - number)
        return self._make(number, number + count, active), [self._clocks[i] for i in active.tolist()]

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        """To the opening of round `number`, from where clocks were saved, if they were."""
        first = self._restored(active, saved)
        if first < number:
            self._make(first, number, active)

    def until(self, number: int, count: int) -> int:
        """How many of so many rounds may be taken at a go."""
        every, thin = self._run.checkpoints.rounds, self._run.world.scenario.record.rounds_every
        limits = [count] if every is None else [count, every - number % every]
        return min(limits if thin == 1 else [*limits, thin - number % thin])

    def _make(self, first: int, until: int, active: Array) -> Array:
        """Every replica's rounds up to `until`."""
        if self._saves:
            saved = {f"clock.{i}.{n}": a for i in active.tolist() for n, a in self._clocks[i].saved().items()}
            self.before = saved | {"clock.round": np.array(first)}
        status = self._run.learner.session.each(lambda i: self._clocks[i].run(until), active.tolist())
        return np.array(status, np.int64)

    def _restored(self, active: Array, saved: Arrays) -> int:
        """The round that the clocks are at, as far as they were saved."""
        for i in active.tolist():
            own = f"clock.{i}."
            columns = {n.removeprefix(own): a for n, a in saved.items() if n.startswith(own)}
            if not columns or not self._clocks[i].restore(columns):
                self._clocks = {i: self._begin(i) for i in self._clocks}
                return 0
        return int(saved["clock.round"])
