"""Progress of a run: a bar on a terminal, a line in a notebook, log lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedsim.budget import Budget
from fedsim.text import bits, number, printable, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from fedsim.engine.run import Progress
    from fedsim.protocols import Observer

UPDATE_S = 0.1  # seconds between two updates of a bar
LOG_S = 10.0  # seconds between two lines of a log
BAR = 20  # columns


@contextmanager
def progress_bar(console: Console, budget: Budget, label: str = "") -> Iterator[tuple[Observer, ...]]:
    """Yield observers that draw a bar on `console`; none if it is None or no terminal."""
    if console is None or not console.is_terminal:
        yield ()
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=BAR), TextColumn("{task.fields[facts]}"))
    with Bar(*columns, console=console, refresh_per_second=1 / UPDATE_S) as bar:
        task = bar.add_task(f"{label}compiling", total=None, facts="")
        line = ProgressLine(budget, lambda **update: bar.update(task, **update), label, width=console.width - BAR - 2)
        yield (line,)
        line.finish()


@contextmanager
def progress_observers(budget: Budget, progress: bool) -> Iterator[tuple[Observer, ...]]:
    """Yield the observers of `run(progress=True)`, which write to stderr."""
    if not progress:
        yield ()
    elif sys.stderr.isatty():
        from rich.console import Console

        with progress_bar(Console(stderr=True), budget) as observers:
            yield observers
    else:
        notebook = "ipykernel" in sys.modules

        def write(description: str, facts: str, **_: object) -> None:
            text = f"{description}  {facts}"
            sys.stderr.write(f"{text:79}\r" if notebook else f"{text}\n")
            sys.stderr.flush()

        line = ProgressLine(budget, write, every_s=UPDATE_S if notebook else LOG_S)
        yield (line,)
        line.finish()
        sys.stderr.write("\n" if notebook else "")


class ProgressLine:
    """An observer that updates a line of at most `width` columns every `every_s` seconds."""

    sparse = True  # it need not receive every round

    def __init__(
        self, budget: Budget, update: Callable[..., None], label: str = "", width: int = 10**9,
        every_s: float = UPDATE_S,
    ) -> None:  # fmt: skip
        self.budget, self._update, self._label, self._width, self._every_s = budget, update, label, width, every_s
        self._next = 0.0
        self._first: tuple[float, float] | None = None  # time of the first update, and the amount done then
        self._latest: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self._latest = progress
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._every_s
            self._show(progress, now)

    def finish(self) -> None:
        """Show the last round."""
        if self._latest is not None:
            self._show(self._latest, time.perf_counter())

    def _show(self, progress: Progress, now: float) -> None:
        done, total = self._share(progress)
        if self._first is None:  # the first round compiles kernels, so the pace is measured after it
            self._first = (now, done)
        rounds = f"{progress.round:,}" + (f"/{self.budget.rounds:,}" if self.budget.rounds else "")
        title = f"{self._label}round {rounds}"
        facts = [f"virtual {seconds(progress.seconds)}", f"up {bits(progress.uplink_bits)}"]
        metrics = [f"{name} {number(value)}" for name, value in list(progress.metrics.items())[:2]]
        left = self._left_s(now, done, total)
        pace = [] if left is None else [f"ETA {seconds(left)}"]
        width = self._width - len(title)
        while metrics and len("  ".join([*facts, *metrics, *pace])) > width:
            metrics.pop()
        while facts and len("  ".join([*facts, *metrics, *pace])) > width:
            facts.pop()
        shown = printable("  ".join([*facts, *metrics, *pace]))
        self._update(description=printable(title), completed=done, total=total, facts=shown)

    def _share(self, progress: Progress) -> tuple[float, float | None]:
        """Return the amount done and its total, in the first budget that is set."""
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
