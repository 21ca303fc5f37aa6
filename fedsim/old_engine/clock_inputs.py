"""What the clock was told of the replies, where it depends on values: their sizes, and the losses that policies see.

A resumed run winds its clock forward without computing anything, so it has to be told the same again, in the same
order. What was noted goes to disk with every checkpoint and is forgotten here; a run without a folder notes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays

PARTS = 1_000  # so many small arrays are joined into one


class ClockInputs:
    """Streams of numbers, one per name and replica, in the order in which they were told."""

    def __init__(self, kept: bool) -> None:
        self._kept = kept  # whether anybody will ever ask
        self._fresh: dict[str, list[tuple[Array, Array]]] = {}  # by name: positions and values
        self._replay: dict[tuple[str, int], Iterator[Any]] = {}

    def add(self, name: str, position: Array, value: Array) -> None:
        """These replicas' clocks were told these values."""
        if not self._kept:
            return
        parts = self._fresh.setdefault(name, [])
        parts.append((position.astype(np.int32), value.copy()))
        if len(parts) >= PARTS:
            self._fresh[name] = [_joined(parts)]

    def segment(self) -> Arrays:
        """What was noted since the last call, which is forgotten."""
        out = {}
        for name, parts in self._fresh.items():
            out[f"inputs.{name}.position"], out[f"inputs.{name}.value"] = _joined(parts)
        self._fresh = {}
        return out

    def restore(self, segments: list[Arrays]) -> None:
        """Take what earlier checkpoints hold, for `again`."""
        names = {key.split(".")[1] for part in segments for key in part if key.startswith("inputs.")}
        for name in sorted(names):
            keys = f"inputs.{name}.position", f"inputs.{name}.value"
            position, value = _joined([(part[keys[0]], part[keys[1]]) for part in segments if keys[0] in part])
            order = np.argsort(position, kind="stable")
            position, value = position[order], value[order]
            for i in np.unique(position).tolist():
                low, high = np.searchsorted(position, [i, i + 1])
                self._replay[name, i] = iter(value[low:high].tolist())

    def again(self, name: str, position: int, count: int) -> list[Any]:
        """The next so many values that this replica's clock was told."""
        stream = self._replay[name, position]
        return [next(stream) for _ in range(count)]

    def forget(self) -> None:
        """The clocks are where they were."""
        self._replay = {}


def _joined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    return np.concatenate([p for p, _ in parts]), np.concatenate([v for _, v in parts])
