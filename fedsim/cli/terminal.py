"""Output to terminals and files: the live table of a sweep, closed pipes, held warnings, Ctrl-C and SIGTERM."""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim import text
from fedsim.errors import FedsimError

if TYPE_CHECKING:
    from rich.console import Console

    from fedsim.sweeps import Event
    from fedsim.sweeps.spec import SweepSpec

HEARTBEAT_S = 60.0  # between two lines if stdout is not a terminal
ROWS = 30  # an axis with more values has no table
Form = Callable[[float], str]
Cell = Callable[[list[dict[str, Any]]], str]  # of the outcomes of some runs
INF = float("inf")
COSTS: dict[str, tuple[str, Form]] = {
    "seconds": ("virtual time", text.seconds),
    "uplink_bits": ("uplink", text.bits),
    "backhaul_bits": ("between sites", text.bits),
}
HIDDEN = {"rounds", "downlink_bits", "wasted_bits", "total_bits", "real_s"}


class LiveTable:
    """An observer of a sweep: a live table by swept value on a terminal, one line per run elsewhere."""

    def __init__(
        self, spec: SweepSpec, out: Path, total: int, todo: int, at_once: int, terminal: Console,
        write: Callable[..., None],
    ) -> None:  # fmt: skip
        self.spec, self.out, self.total, self.todo, self.at_once, self._write = spec, out, total, todo, at_once, write
        self.states: Counter[str] = Counter()
        self._running: set[str] = set()
        self._cells: dict[tuple[str, str], Counter[str]] = {}
        self._ends: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._limit_s: float | None = None  # on virtual time, in the budget; inf for none
        self._started = time.monotonic()
        self._live: Any = None
        self._beat = heartbeat(write, lambda: f"{self._done():,}/{self.total:,} runs, {', '.join(self._facts())}")
        self._terminal = terminal if terminal is not None and terminal.is_terminal else None

    def __enter__(self) -> LiveTable:
        if self._terminal is not None:
            from rich.live import Live

            self._live = Live(console=self._terminal, get_renderable=self._render, refresh_per_second=4, transient=True)
            self._live.__enter__()
        self._beat.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._beat.__exit__(None, None, None)
        if self._live is not None:
            self._live.__exit__(*error)

    def __call__(self, event: Event) -> None:
        settings = event.run.settings
        if event.state == "started":
            self._running.add(event.run.name)
            return
        self._running.discard(event.run.name)
        self.states[event.state] += 1
        for name in self.spec.grid:
            key = (name, str(settings[name]))
            self._cells.setdefault(key, Counter())[event.state] += 1
            if event.outcome:
                self._ends.setdefault(key, []).append(dict(event.outcome))
        if event.outcome and self._limit_s is None:
            self._first_complete(event)
        if self._live is None and event.state in ("complete", "failed"):
            swept = " ".join(f"{name}={settings[name]}" for name in self.spec.grid)
            self._write(f"{self._done()}/{self.total} {event.state:8}  {event.run.name} {swept}")

    def _first_complete(self, event: Event) -> None:
        """Read the budget of the first complete run and print what the sweep will take."""
        from fedsim.results.folder import read_manifest

        folder, self._limit_s = self.out / event.run.name, INF
        with suppress(FedsimError, OSError, ValueError, LookupError, TypeError, AttributeError):  # damaged
            manifest = read_manifest(folder)
            self._limit_s = float(manifest["scenario"]["budget"].get("seconds") or INF)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            line = estimate_line(float(event.outcome["real_s"]), size, self.todo, self.at_once)
            if self.todo:
                self._live.console.print(line, markup=False) if self._live is not None else self._write(line)

    def table(self) -> list[str]:
        """Return one line per value of the first axis that has several, then one line per other axis."""
        axes = [name for name, values in self.spec.grid.items() if len(values) > 1]
        if not axes or len(self.spec.grid[axes[0]]) > ROWS:
            return []
        first, *others = axes
        shown = self._columns()
        rows = [[first, "done", "failed", *shown]]
        for value in map(str, self.spec.grid[first]):
            cell, ends = self._cells.get((first, value), Counter()), self._ends.get((first, value), [])
            done = str(cell["complete"] + cell["skipped"])
            rows.append([value, done, str(cell["failed"]), *(form(ends) for form in shown.values())])
        rows = [[row[0].ljust(max(len(r[0]) for r in rows)), *row[1:]] for row in rows]
        lines = text.columns(rows, text.width())
        main = next(iter(shown.values()), None)
        for axis in others:
            if main is not None and axis != "seed" and len(self.spec.grid[axis]) <= ROWS:
                cells = [(value, main(self._ends.get((axis, value), []))) for value in map(str, self.spec.grid[axis])]
                line = f"{axis}  " + ", ".join(f"{value}: {cell or '-'}" for value, cell in cells)
                lines += text.wrapped(line, text.width(), indent=len(axis) + 2)
        return lines

    def _columns(self) -> dict[str, Cell]:
        """Return the columns after the counts.

        With a target: median time and bits to it, and the share of runs that reach it within the budget's seconds.
        Otherwise: medians of what was spent and of the final metrics.
        """
        ends = [one for group in self._ends.values() for one in group]
        if ends and all("target" in one for one in ends):
            level, limit = str(ends[0]["target"]).split()[-1], self._limit_s or INF

            def share_reached(times: list[float]) -> float:
                return sum(spent <= limit and spent < INF for spent in times) / len(times)

            chance = f"P(<{text.seconds(limit)})" if limit < INF else "P(reached)"
            return {
                f"time to {level}": _cell("seconds_to_target", text.seconds),
                "Mbit": _cell("total_bits_to_target", lambda bits: text.number(bits / 1e6) if bits < INF else "never"),
                chance: _cell("seconds_to_target", "{:.2f}".format, share_reached),
            }
        words = {name for one in ends for name, value in one.items() if isinstance(value, str)}
        names = [name for name in dict.fromkeys(n for one in ends for n in one) if name not in HIDDEN | words]
        if not any(one.get("backhaul_bits") for one in ends):  # a star
            names = [name for name in names if name != "backhaul_bits"]
        titles = {name: COSTS.get(name, (name, text.number)) for name in names}
        return {title: _cell(name, form) for name, (title, form) in titles.items()}

    def _done(self) -> int:
        return self.states["skipped"] + self.states["complete"] + self.states["failed"]

    def _facts(self) -> list[str]:
        facts = [f"running {len(self._running)}", f"failed {self.states['failed']}"]
        if self.states["complete"]:
            pace = (time.monotonic() - self._started) / (self.states["complete"] + self.states["failed"])
            facts.append(f"ETA {text.seconds(round((self.total - self._done()) * pace))}")
        return facts

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done, facts = self._done(), "  ".join(self._facts())
        line = Table.grid(padding=(0, 1))
        line.add_row(f"{done:,}/{self.total:,}", ProgressBar(self.total, done, width=20), facts)
        return Group(line, *(Text(text.printable(row)) for row in self.table()))


def _cell(name: str, form: Form, statistic: Callable[[list[float]], float] = statistics.median) -> Cell:
    def cell(ends: list[dict[str, Any]]) -> str:
        values = [float(end[name]) for end in ends if end.get(name) is not None]
        return form(statistic(values)) if values else ""

    return cell


def estimate_line(real_s: float, size: float, runs: int, at_once: int) -> str:
    """Return what `runs` runs take if one takes `real_s` seconds and `size` bytes."""
    total_s = real_s * runs / min(at_once, max(runs, 1))
    each = f"{text.seconds(real_s)}, {text.size(size)} each"
    total = f"{runs:,} runs, {at_once} at a time: {text.seconds(total_s)}, {text.size(size * runs)}"
    return f"estimate: {each}; {total}"


class Output:
    """A stream that stops writing after its first error and keeps that error."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.error = stream, None if stream is not None else OSError(9, "closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: str) -> int:
        self._try("write", data)
        return len(data)

    def flush(self) -> None:
        self._try("flush")

    def isatty(self) -> bool:
        return self.error is None and bool(self._stream.isatty())

    def code(self, code: int) -> int:
        """Return the exit code: 1 if the output could not be written, except to a closed pipe or stream."""
        self.flush()
        if self.error is None:
            return code
        if self._stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise Python reports the error again at exit
        if isinstance(self.error, BrokenPipeError) or self._stream is None:
            return code
        why = self.error.strerror or self.error
        print_error(f"fedsim: standard output cannot be written to ({why}); results are where --out says")
        return code or 1

    def _try(self, name: str, *arguments: object) -> None:
        if self.error is None:
            try:
                getattr(self._stream, name)(*arguments)
            except OSError as error:
                self.error = error


@contextmanager
def safe_streams() -> Iterator[Output]:
    """Replace the standard streams by streams that never raise, and yield standard output."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # names of files may have characters that the terminal cannot encode
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
    """The warnings of a command; after a failure only UserWarnings are printed."""

    failed: bool = False
    lines: dict[str, type[Warning]] = field(default_factory=dict)  # without duplicates, in order


@contextmanager
def held_warnings() -> Iterator[HeldWarnings]:
    """Print Python's warnings after the command instead of before its error."""
    held = HeldWarnings()

    def hold(message: object, category: type[Warning], *_: object, **__: object) -> None:
        held.lines.setdefault(f"warning: {' '.join(str(message).split())}", category)

    before = warnings.showwarning
    warnings.showwarning = hold
    try:
        yield held
    finally:
        warnings.showwarning = before
        for line, category in held.lines.items():
            if not held.failed or issubclass(category, UserWarning):
                print_error(line)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; the second raises KeyboardInterrupt."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only the main thread can handle signals
        yield stop
        return

    def handle(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def heartbeat(write: Callable[..., None], line: Callable[[], str]) -> Iterator[None]:
    """Write a line with the time once a minute while the body runs, unless stdout is a terminal."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_S):
            write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line()}")

    if sys.stdout.isatty():
        yield
        return
    thread = threading.Thread(target=beat, name="fedsim-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def print_lines(*lines: str) -> None:
    """Print lines to stdout."""
    for line in lines:
        print(text.printable(line))


def print_error(*lines: str) -> None:
    """Print lines to stderr, if it is open."""
    for line in lines if sys.stderr is not None else ():
        print(text.printable(line), file=sys.stderr)


def outputs(quiet: bool) -> tuple[Callable[..., None], Any]:
    """Return a function that prints lines to stdout, and the console of the progress bar (stderr)."""
    if quiet:
        return (lambda *lines: None), None
    from rich.console import Console

    console = Console(force_terminal=sys.stdout.isatty(), highlight=False, markup=False, emoji=False)

    def write(*lines: str) -> None:
        for line in lines:
            console.print(text.printable(line), soft_wrap=True)

    return write, Console(stderr=True, force_terminal=sys.stderr.isatty())
