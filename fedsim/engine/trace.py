"""The events of a run's clocks, where they are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.arrays import Array, Arrays

COLUMNS = ("replica", "round", "time_s", "client", "event", "bits")
Note = Callable[[float, int, str, int], None]  # time_s, client, event, bits


class Trace:
    """Rows of `events`, of all replicas, in the order in which they happened on each clock."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self.rows: list[tuple[int, int, float, int, str, int]] = []
        self._saved = 0

    def note(self, replica: int, round: Callable[[], int]) -> Note | None:
        """Where a replica's clock writes; `round` says which round is open, from 0."""
        if not self.kept:
            return None
        append = self.rows.append
        return lambda time_s, client, event, bits: append((replica, round() + 1, time_s, client, event, bits))

    def extend(self, parts: list[tuple[int, Arrays]], replicas: Array, round: int) -> None:
        """Events of a round (from 0), of one replica after another."""
        for position, part in parts:
            replica, columns = int(replicas[position]), (part[name].tolist() for name in COLUMNS[2:])
            self.rows += [(replica, round + 1, *row) for row in zip(*columns, strict=True)]

    def segment(self) -> Arrays:
        """What came since the last call, as flat arrays for a checkpoint."""
        rows, self._saved = self.rows[self._saved :], len(self.rows)
        return {f"trace.{name}": np.array([row[i] for row in rows]) for i, name in enumerate(COLUMNS)} if rows else {}

    def restore(self, segments: list[Arrays]) -> None:
        """Take up where checkpoints left off."""
        for part in segments:
            if "trace.round" in part:
                self.rows += list(zip(*(part[f"trace.{name}"].tolist() for name in COLUMNS), strict=True))
        self._saved = len(self.rows)
