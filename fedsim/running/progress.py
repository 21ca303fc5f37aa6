"""A bar, or a line, while a run lasts: it watches, and can never change the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedsim.budget import Budget
from fedsim.text import bits, number, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from fedsim.engine.run import Progress
    from fedsim.protocols import Observer

EVERY_S = 0.1  # a glance this often is enough, and costs nothing beside a round
LOGGED_S = 10.0  # in a log, where nothing can be drawn over
BAR = 20  # columns


@contextmanager
def shown(console: Console, budget: Budget, label: str = "") -> Iterator[tuple[Observer, ...]]:
    """Observers that draw a bar on `console`; none at all where that is no terminal (or None)."""
    if console is None or not console.is_terminal:
        yield ()
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=BAR), TextColumn("{task.fields[facts]}"))
    with Bar(*columns, console=console, refresh_per_second=1 / EVERY_S) as bar:
        task = bar.add_task(f"{label}compiling", total=None, facts="")
        watch = Watch(budget, lambda **update: bar.update(task, **update), label, room=console.width - BAR - 2)
        yield (watch,)
        watch.finish()


@contextmanager
def followed(budget: Budget, progress: bool) -> Iterator[tuple[Observer, ...]]:
    """For `run(progress=True)`: a bar on a terminal, a line drawn over in a notebook, a line now and then in a log."""
    if not progress:
        yield ()
    elif sys.stderr.isatty():
        from rich.console import Console

        with shown(Console(stderr=True), budget) as observers:
            yield observers
    else:
        notebook = "ipykernel" in sys.modules
        ends = "\r" if notebook else "\n"

        def show(description: str, facts: str, **_: object) -> None:
            line = f"{description}  {facts}"
            sys.stderr.write(f"{line:79}{ends}" if notebook else f"{line}{ends}")
            sys.stderr.flush()

        watch = Watch(budget, show, every_s=EVERY_S if notebook else LOGGED_S)
        yield (watch,)
        watch.finish()
        sys.stderr.write("\n" if notebook else "")


class Watch:
    """An observer that passes on a glance every so often, in at most `room` columns."""

    sparse = True  # it need not see every round

    def __init__(
        self, budget: Budget, update: Callable[..., None], label: str = "", room: int = 10**9, every_s: float = EVERY_S
    ) -> None:  # fmt: skip
        self.budget, self._update, self._label, self._room, self._every_s = budget, update, label, room, every_s
        self._next = 0.0
        self._first: tuple[float, float] | None = None  # when the first glance was, and how much was done then
        self._latest: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self._latest = progress
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._every_s
            self._show(progress, now)

    def finish(self) -> None:
        """The last round is shown whatever the time."""
        if self._latest is not None:
            self._show(self._latest, time.perf_counter())

    def _show(self, progress: Progress, now: float) -> None:
        done, total = self._share(progress)
        if self._first is None:  # the first round compiles kernels and says nothing about the pace
            self._first = (now, done)
        rounds = f"{progress.round:,}" + (f"/{self.budget.rounds:,}" if self.budget.rounds else "")
        what = f"{self._label}round {rounds}"
        facts = [f"virtual {seconds(progress.seconds)}", f"up {bits(progress.uplink_bits)}"]
        named = [f"{name} {number(value)}" for name, value in list(progress.metrics.items())[:2]]
        left = self._left_s(now, done, total)
        pace = [] if left is None else [f"ETA {seconds(left)}"]
        room = self._room - len(what)
        while named and len("  ".join([*facts, *named, *pace])) > room:
            named.pop()
        while facts and len("  ".join([*facts, *named, *pace])) > room:
            facts.pop()
        self._update(description=what, completed=done, total=total, facts="  ".join([*facts, *named, *pace]))

    def _share(self, progress: Progress) -> tuple[float, float | None]:
        """How much of the budget that is shown is spent."""
        spent = {"rounds": progress.round, "seconds": progress.seconds, "uplink_bits": progress.uplink_bits}
        for name, value in spent.items():
            if getattr(self.budget, name) is not None:
                return float(value), float(getattr(self.budget, name))
        return float(progress.round), None

    def _left_s(self, now: float, done: float, total: float | None) -> float | None:
        assert self._first is not None
        began, before = self._first
        if total is None or done <= before or done >= total:
            return None
        return float(round((now - began) * (total - done) / (done - before)))
