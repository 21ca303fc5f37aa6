"""The events of a run's clocks, where they are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.arrays import Array, Arrays

COLUMNS = ("replica", "round", "time_s", "client", "event", "bits")
DTYPES = (np.int64, np.int64, np.float64, np.int64, object, np.int64)
Note = Callable[[float, int, str, int], None]  # time_s, client, event, bits


class Trace:
    """Rows of `events`, of all replicas, in the order in which they happened on each clock."""

    def __init__(self, kept: bool) -> None:
        self.kept = kept
        self._rows: list[tuple[int, int, float, int, str, int]] = []  # the latest, one by one
        self._blocks: list[Arrays] = []  # those before
        self._saved = 0

    def note(self, replica: int, round: Callable[[], int]) -> Note | None:
        """Where a replica's clock writes; `round` says which round is open, from 0."""
        if not self.kept:
            return None
        rows = self._rows
        return lambda time_s, client, event, bits: rows.append((replica, round() + 1, time_s, client, event, bits))

    def extend(self, columns: Arrays) -> None:
        """Many events at once."""
        self._shut()
        self._blocks.append(columns)

    def columns(self) -> Arrays:
        """All of them."""
        self._shut()
        return _joined(self._blocks)

    def segment(self) -> Arrays:
        """What came since the last call, as flat arrays for a checkpoint."""
        self._shut()
        fresh, self._saved = self._blocks[self._saved :], len(self._blocks)
        columns = _joined(fresh)
        return {f"trace.{n}": c.astype(str) if n == "event" else c for n, c in columns.items()} if fresh else {}

    def restore(self, segments: list[Arrays]) -> None:
        """Take up where checkpoints left off."""
        for part in segments:
            if "trace.round" in part:
                columns = {n: part[f"trace.{n}"] for n in COLUMNS}
                self._blocks.append({n: _typed(columns[n], dtype) for n, dtype in zip(COLUMNS, DTYPES, strict=True)})
        self._saved = len(self._blocks)

    def _shut(self) -> None:
        """The rows so far become a block."""
        if self._rows:
            columns = zip(*self._rows, strict=True)
            self._blocks.append(
                {n: _typed(list(c), dtype) for n, c, dtype in zip(COLUMNS, columns, DTYPES, strict=True)}
            )
            self._rows.clear()


def _joined(blocks: list[Arrays]) -> Arrays:
    return {
        n: np.concatenate([block[n] for block in blocks] or [np.zeros(0, dtype)])
        for n, dtype in zip(COLUMNS, DTYPES, strict=True)
    }


def _typed(values: object, dtype: type) -> Array:
    if dtype is object:
        return np.array(np.asarray(values).tolist(), object)
    return np.asarray(values, dtype)
