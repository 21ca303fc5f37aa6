"""The events that compiled clocks of several sites have noted ahead, where they are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.old_engine.replica_clock import ClockColumns


class NotesAhead:
    """Rounds `first` on of some replicas; `headers` say where each of a replica's rounds ends among its notes."""

    def __init__(
        self, first: int, active: Array, clocks: Sequence[ClockColumns], headers: list[Array], names: tuple[str, ...]
    ) -> None:
        self._first, self._names = first, np.array(names, object)
        self._notes: dict[int, Array] = {}
        self._ends: dict[int, list[int]] = {}
        for i, clock, own in zip(active.tolist(), clocks, headers, strict=True):
            self._notes[i] = notes = clock.written("notes", "notes").copy()
            opening = int(clock.said("begun_notes")) if first == 0 else 0
            self._ends[i] = [0, opening, *own["end_notes"].tolist(), len(notes)]

    def trace(self, number: int, count: int, active: Array, replicas: Array) -> Arrays:
        """Those of so many rounds: all openings of the first, then every replica's up to the close of each."""
        parts = []
        for k in range(number - self._first, number - self._first + count):
            halves = ([0] if k == 0 else []) + [k + 1]
            parts += [(i, self._ends[i][h], self._ends[i][h + 1]) for h in halves for i in active.tolist()]
        n = np.concatenate([self._notes[i][a:b] for i, a, b in parts])
        return {
            "replica": np.repeat([replicas[i] for i, _, _ in parts], [b - a for _, a, b in parts]),
            "round": n["round"] + 1, "time_s": np.ascontiguousarray(n["time"]),
            "client": np.ascontiguousarray(n["client"]), "event": self._names[n["what"]],
            "bits": np.ascontiguousarray(n["bits"]),
        }  # fmt: skip
