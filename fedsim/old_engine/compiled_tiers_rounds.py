"""Rounds of edges under a cloud, which the compiled clock has made ahead, of all replicas, in the order of rounds."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.kernels.old_clock.tiers_state import NOTES
from fedsim.old_engine.compiled_rounds import CompiledRounds
from fedsim.old_engine.notes_ahead import NotesAhead
from fedsim.old_engine.round import Round, Stopped, Stretch
from fedsim.old_engine.tiers_arrays import TiersArrays, TiersClock


class CompiledTiersRounds:
    """A star's rounds, whose visits are those of all edges, and what edges and cloud tell each other."""

    def __init__(
        self, arrays: TiersArrays, first: int, active: Array, clocks: list[TiersClock], status: Array
    ) -> None:  # fmt: skip
        self._arrays = arrays
        self._rounds = CompiledRounds(first, active, clocks, status, arrays.down_bits, self._between)
        self.first, self.common, self.over, self.has = first, self._rounds.common, self._rounds.over, self._rounds.has
        headers = [clock.headers() for clock in clocks]
        self._notes = NotesAhead(first, active, clocks, headers, NOTES) if arrays.traced else None

    def _between(self, number: Array) -> Array:
        """Bits between edges and cloud, of rounds by number."""
        merges = (number + 1) % self._arrays.every == 0
        return np.asarray(merges * np.int64(self._arrays.edges * sum(self._arrays.between_bits)))

    def round(self, number: int, active: Array, stopped: Stopped) -> Round:
        return self._rounds.round(number, active, stopped)[0]

    def stretch(self, number: int, active: Array, count: int) -> Stretch:
        return self._rounds.stretch(number, active, count, learnt=False)

    def trace(self, number: int, count: int, active: Array, replicas: Array) -> Arrays:
        assert self._notes is not None
        return self._notes.trace(number, count, active, replicas)
