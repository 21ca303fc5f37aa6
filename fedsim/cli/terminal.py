"""A sweep as it goes: a live table by swept value on a terminal, one line per run elsewhere.

Standard output that may be closed, full, or read by somebody who has heard enough: a run goes on all the same.

No warning precedes the one sentence that a command ends with.

Ctrl-C and SIGTERM: the first asks for an orderly end, the second does not wait for it.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedsim import text as units

if TYPE_CHECKING:
    from rich.console import Console

    from fedsim.sweeps import Event
    from fedsim.sweeps.spec import SweepSpec

ROWS = 30  # more values than this on the first axis are not shown one by one
COSTS = {
    "seconds": ("virtual time", units.seconds),
    "uplink_bits": ("uplink", units.bits),
    "backhaul_bits": ("between sites", units.bits),
}
HIDDEN = {"rounds", "downlink_bits", "wasted_bits", "total_bits", "real_s", "fingerprint"}


class Board:
    """Watches a sweep; it can never change it."""

    def __init__(self, plan: SweepSpec, total: int, terminal: Console, say: Callable[..., None]) -> None:
        self.plan, self.total, self._say = plan, total, say
        self.states: Counter[str] = Counter()
        self._running: set[str] = set()
        self._cells: dict[tuple[str, str], Counter[str]] = {}
        self._ends: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._began = time.monotonic()
        self._live: Any = None
        self._terminal = terminal if terminal is not None and terminal.is_terminal else None

    def __enter__(self) -> Board:
        if self._terminal is not None:
            from rich.live import Live

            self._live = Live(
                console=self._terminal, get_renderable=self._picture, refresh_per_second=4, transient=True
            )
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def __call__(self, event: Event) -> None:
        settings = event.run.settings
        if event.state == "started":
            self._running.add(event.run.name)
            return
        self._running.discard(event.run.name)
        self.states[event.state] += 1
        for name in self.plan.grid:
            at = (name, str(settings[name]))
            self._cells.setdefault(at, Counter())[event.state] += 1
            if event.outcome:
                self._ends.setdefault(at, []).append(dict(event.outcome))
        if self._live is None and event.state in ("complete", "failed"):
            swept = " ".join(f"{name}={settings[name]}" for name in self.plan.grid)
            done = self.states["skipped"] + self.states["complete"] + self.states["failed"]
            self._say(f"{done}/{self.total} {event.state:8}  {event.run.name} {swept}")

    def table(self) -> list[str]:
        """One line per value of the first axis that has several: done, failed, medians of what came out."""
        axis = next((name for name, values in self.plan.grid.items() if len(values) > 1), None)
        if axis is None or len(self.plan.grid[axis]) > ROWS:
            return []
        every_end = [end for ends in self._ends.values() for end in ends]
        words = {n for end in every_end for n, value in end.items() if isinstance(value, str)}
        names = [n for n in dict.fromkeys(n for end in every_end for n in end) if n not in HIDDEN | words]
        if not any(end.get("backhaul_bits") for end in every_end):  # over a star there is none
            names = [n for n in names if n != "backhaul_bits"]
        rows = [[axis, "done", "failed", *(COSTS[n][0] if n in COSTS else n for n in names)]]
        for value in map(str, self.plan.grid[axis]):
            cell, ends = self._cells.get((axis, value), Counter()), self._ends.get((axis, value), [])
            rows.append(
                [
                    value,
                    str(cell["complete"] + cell["skipped"]),
                    str(cell["failed"]),
                    *(_median(ends, n) for n in names),
                ]
            )
        rows = [[row[0].ljust(max(len(r[0]) for r in rows)), *row[1:]] for row in rows]
        return units.columns(rows, units.width())

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        ended = self.states["complete"] + self.states["failed"]
        done = self.states["skipped"] + ended
        facts = f"running {len(self._running)}  failed {self.states['failed']}"
        if self.states["complete"]:
            left = (self.total - done) * (time.monotonic() - self._began) / max(ended, 1)
            facts += f"  ETA {units.seconds(round(left))}"
        line = Table.grid(padding=(0, 1))
        line.add_row(f"{done:,}/{self.total:,}", ProgressBar(self.total, done, width=20), facts)
        return Group(line, *self.table())


def _median(ends: list[dict[str, Any]], name: str) -> str:
    values = [float(end[name]) for end in ends if end.get(name) is not None]
    form = COSTS[name][1] if name in COSTS else units.number
    return form(statistics.median(values)) if values else ""


class Output:
    """A stream that stops writing at its first error, and remembers it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.error = stream, None if stream is not None else OSError(9, "closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        self._try("flush")

    def isatty(self) -> bool:
        return self.error is None and bool(self._stream.isatty())

    def code(self, code: int) -> int:
        """The exit code: what could not be written is a failure, unless the reader left of its own accord."""
        self.flush()
        if self.error is None:
            return code
        if self._stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains about it at the very end
        if isinstance(self.error, BrokenPipeError) or self._stream is None:
            return code
        why = self.error.strerror or self.error
        print(f"fedsim: standard output cannot be written to ({why}); results are where --out says", file=sys.stderr)
        return code or 1

    def _try(self, name: str, *arguments: object) -> None:
        if self.error is None:
            try:
                getattr(self._stream, name)(*arguments)
            except OSError as error:
                self.error = error


@contextmanager
def careful() -> Iterator[Output]:
    """Standard streams that never raise, whatever is or is not behind them."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # no name of a file, and no letter that the terminal lacks, may stop a run
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    output, before = Output(sys.stdout), (sys.stdout, sys.stderr)
    sys.stdout = output
    sys.stderr = Output(sys.stderr)
    try:
        yield output
    finally:
        sys.stdout = before[0]
        if before[1] is not None:
            sys.stderr = before[1]


@dataclass
class HeldWarnings:
    """The warnings of a command; after a failure, numerical ones say nothing that its sentence does not."""

    failed: bool = False
    lines: dict[str, type[Warning]] = field(default_factory=dict)  # each once, in order


@contextmanager
def warnings_last() -> Iterator[HeldWarnings]:
    """Hold back Python's warnings until the command is done."""
    heard = HeldWarnings()

    def hear(message: object, category: type[Warning], *_: object, **__: object) -> None:
        heard.lines.setdefault(f"warning: {' '.join(str(message).split())}", category)

    before = warnings.showwarning
    warnings.showwarning = hear
    try:
        yield heard
    finally:
        warnings.showwarning = before
        for line, category in heard.lines.items():
            if not heard.failed or issubclass(category, UserWarning):
                print(line, file=sys.stderr)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that is set when the user, or the machine's scheduler, wants the program to end."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield stop
        return

    def ask(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def voices(quiet: bool) -> tuple[Any, Any]:
    """How to say a line, and the terminal for the bar; plain text wherever stdout is not a terminal."""
    if quiet:
        return (lambda *lines: None), None
    from rich.console import Console

    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, markup=False, emoji=False)

    def say(*lines: str) -> None:
        for line in lines:
            console.print(line, soft_wrap=True)

    return say, Console(stderr=True, force_terminal=sys.stderr.isatty())
