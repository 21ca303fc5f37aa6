"""A sweep as it goes: a live table by swept value on a terminal, one line per run elsewhere."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedsim.analysis import units
from fedsim.sweeps import Event
from fedsim.sweeps.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console

ROWS = 30  # more values than this on the first axis are not shown one by one
COSTS = {
    "seconds": ("virtual time", units.seconds),
    "uplink_bits": ("uplink", units.bits),
    "backhaul_bits": ("between sites", units.bits),
}
HIDDEN = {"rounds", "downlink_bits", "wasted_bits", "total_bits", "real_s", "fingerprint"}


class Board:
    """Watches a sweep; it can never change it."""

    def __init__(self, plan: Plan, total: int, terminal: Console, say: Callable[..., None]) -> None:
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
        settings = event.order.settings
        if event.state == "started":
            self._running.add(event.order.run)
            return
        self._running.discard(event.order.run)
        self.states[event.state] += 1
        for name in self.plan.grid:
            at = (name, str(settings[name]))
            self._cells.setdefault(at, Counter())[event.state] += 1
            if event.ends:
                self._ends.setdefault(at, []).append(dict(event.ends))
        if self._live is None and event.state in ("whole", "failed"):
            swept = " ".join(f"{name}={settings[name]}" for name in self.plan.grid)
            done = self.states["kept"] + self.states["whole"] + self.states["failed"]
            self._say(f"{done}/{self.total} {event.state:6}  {event.order.run} {swept}")

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
                    str(cell["whole"] + cell["kept"]),
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

        ended = self.states["whole"] + self.states["failed"]
        done = self.states["kept"] + ended
        facts = f"running {len(self._running)}  failed {self.states['failed']}"
        if self.states["whole"]:
            left = (self.total - done) * (time.monotonic() - self._began) / max(ended, 1)
            facts += f"  ETA {units.seconds(round(left))}"
        line = Table.grid(padding=(0, 1))
        line.add_row(f"{done:,}/{self.total:,}", ProgressBar(self.total, done, width=20), facts)
        return Group(line, *self.table())


def _median(ends: list[dict[str, Any]], name: str) -> str:
    values = [float(end[name]) for end in ends if end.get(name) is not None]
    form = COSTS[name][1] if name in COSTS else units.number
    return form(statistics.median(values)) if values else ""
