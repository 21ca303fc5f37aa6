"""On and off at random: exponential periods, stationary from time 0 on.

Two independent Poisson processes tell the story of a client: one of calls to go off, at rate 1/on_s, and one
of calls to come on, at rate 1/off_s. A call that asks for what already is does nothing. While on, the time to
the next call to go off is exponential with mean on_s, and likewise for off: this is exactly the Markov process.
What it buys is that nothing depends on the distant past: the latest call of either kind names the state, the
next call of the other kind ends it. So a question costs the same at any time, about a dozen draws, and nothing
is remembered between questions.

A Poisson process is cut into cells of two mean gaps. Exponential gaps are summed from the beginning of a cell
until they leave it (they have no memory, so starting anew at each cell changes nothing); the gaps of cell k
come from the client's key and k alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedsim import rng as numpy_draws
from fedsim.arrays import Array
from fedsim.devices.availability import cycle
from fedsim.devices.columns import TINY, Column, column, duration, length, pick
from fedsim.devices.speed import exponential
from fedsim.protocols.columns import AvailabilityColumns
from fedsim.rng import U64, Draws
from fedsim.rules import availability

OFF, ON, START = 0, 1, 2  # what a draw is for: calls to go off, calls to come on, the state at time 0
GAPS_PER_CELL = 2.0  # on average: more of them cost more draws per cell, fewer leave more cells empty
GAPS_PER_TURN = 4  # drawn at a time, until the cell is full


@dataclass(frozen=True, eq=False)
class Markov:
    """Alternating exponential periods with means `on_s` and `off_s`, numbers or one per client."""

    on_s: Column
    off_s: Column

    def __post_init__(self) -> None:
        for name in ("on_s", "off_s"):
            object.__setattr__(self, name, column(f"markov {name}", getattr(self, name), low=TINY))

    @property
    def clients(self) -> int | None:
        rows = [n for n in (length(self.on_s), length(self.off_s)) if n is not None]
        return min(rows, default=None)

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        if (compiled := self._compiled(clients, now_s, rng, until=False)) is not None:
            return compiled
        on, _, coming = self._look(clients, now_s, rng)
        out = np.array(now_s, np.float64)
        out[~on] = coming.take(~on).following()
        return out

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        if (compiled := self._compiled(clients, now_s, rng, until=True)) is not None:
            return compiled
        on, going, _ = self._look(clients, now_s, rng)
        out = np.array(now_s, np.float64)
        out[on] = going.take(on).following()
        return out

    def _compiled(self, clients: Array, now_s: Array, rng: Draws, until: bool) -> Array | None:
        """The same bits from `kernels/presence.py`, where a compiling backend asks; None: use the plain form."""
        if getattr(rng.source, "name", "numpy") == "numpy":
            return None
        from fedsim.kernels.presence import presence

        on_s, off_s = (np.broadcast_to(pick(column, clients), clients.shape) for column in (self.on_s, self.off_s))
        return presence(rng.key, on_s, off_s, np.broadcast_to(now_s, clients.shape), until)

    def _look(self, clients: Array, now_s: Array, rng: Draws) -> tuple[Array, PoissonRows, PoissonRows]:
        """Whether each client is on, and the calls to go off and to come on."""
        source = rng.source or numpy_draws
        on_s = np.broadcast_to(pick(self.on_s, clients), clients.shape)
        off_s = np.broadcast_to(pick(self.off_s, clients), clients.shape)
        going = PoissonRows(source, OFF, rng.key, GAPS_PER_CELL * on_s, now_s)
        coming = PoissonRows(source, ON, rng.key, GAPS_PER_CELL * off_s, now_s)
        last_off, last_on = going.last(), coming.last()
        start = source.uniform(_cell_key(rng.key, START, np.zeros(len(clients))), 1)[:, 0]
        uncalled = np.maximum(last_off, last_on) == -np.inf
        on = np.where(uncalled, start < on_s / (on_s + off_s), last_on >= last_off)
        return on, going, coming

    def to_columns(self, rows: Array) -> AvailabilityColumns:
        return AvailabilityColumns(availability.MARKOV, pick(self.on_s, rows), pick(self.off_s, rows))

    def describe(self) -> str:
        return f"on for {duration(self.on_s)}, off for {duration(self.off_s)} at random"


def markov(on_s: Column, off_s: Column) -> Markov:
    """On and off for exponential times with these means; numbers for all or one per client."""
    return Markov(on_s, off_s)


class PoissonRows(NamedTuple):
    """One Poisson process per row, and the time it is looked at."""

    source: Any  # `fedsim.rng` or its compiled twin
    kind: int
    key: Array  # uint32 (n, 4)
    cell_s: Array
    now_s: Array

    def take(self, rows: Array) -> PoissonRows:
        return PoissonRows(self.source, self.kind, self.key[rows], self.cell_s[rows], self.now_s[rows])

    def last(self) -> Array:
        """The last call at or before now, -inf if there was none since time 0."""
        cell = cycle(self.now_s, self.cell_s)
        out, _ = self._around(cell)
        rows = np.flatnonzero((out == -np.inf) & (cell > 0))
        while rows.size:
            cell[rows] -= 1
            out[rows], _ = self.take(rows)._around(cell[rows])
            rows = rows[(out[rows] == -np.inf) & (cell[rows] > 0)]
        return out

    def following(self) -> Array:
        """The first call after now."""
        cell = cycle(self.now_s, self.cell_s)
        _, out = self._around(cell)
        rows = np.flatnonzero(out == np.inf)
        while rows.size:
            cell[rows] += 1
            _, out[rows] = self.take(rows)._around(cell[rows])
            rows = rows[out[rows] == np.inf]
        return out

    def _around(self, cell: Array) -> tuple[Array, Array]:
        """Inside a cell, the last call at or before now and the first after it, else -inf and inf."""
        last, following = np.full(len(cell), -np.inf), np.full(len(cell), np.inf)
        reached = np.zeros(len(cell))  # in units of the cell
        rows, turn = np.arange(len(cell)), 0
        while rows.size:
            _, _, key, cell_s, now_s = self.take(rows)
            u = self.source.uniform(_cell_key(key, self.kind, cell[rows]), GAPS_PER_TURN, turn)
            gaps = exponential(u) / GAPS_PER_CELL
            at = np.cumsum(np.column_stack([reached[rows], gaps]), axis=1)[:, 1:]
            time = (cell[rows, None] + at) * cell_s[:, None]
            past, inside = time <= now_s[:, None], at < 1.0
            last[rows] = np.maximum(last[rows], np.where(inside & past, time, -np.inf).max(axis=1))
            following[rows] = np.where(inside & ~past, time, np.inf).min(axis=1)
            reached[rows] = at[:, -1]
            rows, turn = rows[(at[:, -1] < 1.0) & (following[rows] == np.inf)], turn + 1
        return last, following


def _cell_key(key: Array, kind: int, cell: Array) -> Array:
    """A key for every cell of every kind: the client's, with the cell and the kind folded into two words."""
    number = cell.astype(U64)
    name = np.zeros_like(key)
    name[:, 2], name[:, 3] = number & U64(0xFFFFFFFF), number >> U64(32) << U64(2) | U64(kind)
    return key ^ name
