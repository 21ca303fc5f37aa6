"""One replica's compiled clock: its columns, and the state that says where they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.kernels.old_clock.state import ROOM

GROWING = {  # columns that a round may fill, and what says how far they are filled
    "events": "events", "ended": "rows", "rounds": "rounds", "notes": "notes",
    "flows": "flows", "nodes": "nodes", "starting": "flows", "done": "flows",
}  # fmt: skip
WRITTEN = ("ended", "rounds", "notes")  # what is read off a clock; it does not look at them again
FIXED = ("clients", "intervals", "route_links")  # the scenario's


class ClockColumns:
    """What a compiled loop works on. `left_out` are columns that a clock can go on without, or has anyhow."""

    def __init__(self, state: Array, columns: Arrays, left_out: tuple[str, ...]) -> None:
        self.state, self.columns, self._left_out = state, columns, left_out
        self.point()

    def saved(self) -> Arrays:
        """All that a clock goes on from."""
        own = {name: a for name, a in self.columns.items() if name not in self._left_out}
        return {name: a.copy() for name, a in (own | {"state": self.state}).items()}

    def restore(self, saved: Arrays) -> bool:
        """Go on from there; False where clocks were laid out in another way."""
        mine = self.columns | {"state": self.state}
        if any(name not in mine or mine[name].dtype != a.dtype for name, a in saved.items()):
            return False
        self.columns |= {name: a.copy() for name, a in saved.items() if name != "state"}
        self.state = saved["state"].copy()
        self.point()
        return True

    def written(self, column: str, count: str) -> Array:
        """What was written of a column."""
        return self.columns[column][: int(self.state[count][0])]

    def said(self, name: str) -> float:
        """A number of its state."""
        return float(self.state[name][0])

    def grow(self, growing: Mapping[str, str], need: float) -> None:
        """Twice the room wherever so much more might not fit."""
        for name, used in growing.items():
            if len(self.columns[name]) < 2 * (self.said(used) + need):
                self.columns[name] = doubled(self.columns[name])
        self.point()

    def point(self) -> None:
        """Tell the state where the columns are."""
        for name, column in self.columns.items():
            self.state[f"at_{name}"], self.state[f"room_{name}"] = column.ctypes.data, len(column)


class ReplicaClock(ClockColumns):
    """The clock of a star: rounds, or folds, one after another."""

    def __init__(self, state: Array, columns: Arrays) -> None:
        super().__init__(state, columns, WRITTEN + FIXED)

    def run(self, until: int) -> int:
        """Rounds up to number `until`; what was written before is forgotten. Why it stopped there."""
        from fedsim.kernels.old_clock.loop import run

        ahead, slots = until - int(self.said("round")), len(self.columns["visits"])
        for name, size in (("rounds", ahead + 1), ("ended", (ahead + 1) * slots + 2)):
            if len(self.columns[name]) < size:
                self.columns[name] = np.zeros(size, self.columns[name].dtype)
        self.point()
        self.state["until"] = until
        for name in ("rows", "rounds", "notes"):
            self.state[name] = 0
        while (status := run(self.state)) == ROOM:
            copies = self.said("coming") + self.said("copies") * self.said("population")
            self.grow(GROWING, 4 * slots + 64 + copies)
        return int(status)

    def made(self) -> tuple[Array, Array]:
        """The rounds that were written, and their visits."""
        rounds = self.written("rounds", "rounds")
        return rounds, self.columns["ended"][: rounds["end"][-1] if len(rounds) else 0]

    def unfinished(self) -> tuple[Array, Array]:
        """Clients and versions of visits that are in flight, or that ended after the last round that was written."""
        rounds, slots = self.written("rounds", "rounds"), self.columns["places"]["slot"]
        over = self.written("ended", "rows")[rounds["end"][-1] if len(rounds) else 0 :]
        under_way = self.columns["visits"][slots[slots >= 0]]
        client, version = (np.concatenate([over[n], under_way[n]]) for n in ("client", "version"))
        return client, version


def doubled(a: Array) -> Array:
    return np.concatenate([a, np.zeros_like(a)])
