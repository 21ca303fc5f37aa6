"""Availability of clients over time: at random, by the hour of the day, or as recorded in a trace.

The classes check their numbers and return them as columns; `rules.availability` has the laws. A law is a function of
the client's key and the time alone, so its values do not depend on the order of calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_float_array
from fedsim.errors import InvalidInput
from fedsim.per_client import TINY, Column, check_column, check_field, duration, row_count, rows_of
from fedsim.protocols import AvailabilityColumns
from fedsim.rng import Draws
from fedsim.rules import availability
from fedsim.rules.availability import OnlineLaw
from fedsim.rules.draws import Key
from fedsim.text import short_repr, short_str


def times_of(rule: Callable[..., float], law: AvailabilityColumns, clients: Array, now_s: Array, rng: Draws) -> Array:
    """Return the value of a rule for each client, from compiled code if the draws are compiled."""
    rows = [np.broadcast_to(np.asarray(column), clients.shape) for column in (*law[1:6], now_s)]
    arguments: tuple[Any, ...] = (law.code, *rows[:5], law.starts_s, law.ends_s, rng.key, rows[5])
    plain = rng.source is None or rng.source.name == "numpy"
    out = looped(rule, *arguments) if plain else rng.source.online_times(rule is availability.offline_s, *arguments)
    if np.isnan(out).any():
        length_s = np.minimum(law.a, law.b) if law.code == availability.MARKOV else law.period_s
        raise InvalidInput(
            f"the clock is at {np.max(now_s):g} s, too late for periods of {duration(length_s)}; set a budget"
        )
    return out


def looped(
    rule: Callable[..., float], code: int, a: Array, b: Array, period_s: Array, begin: Array, end: Array,
    starts_s: Array, ends_s: Array, key: Array, now_s: Array,
) -> Array:  # fmt: skip
    """Return the value of a rule for each row, by a loop in Python."""
    columns = (a, b, period_s, begin, end, key, now_s)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    values = [rule(now, OnlineLaw(code, *law), Key(*words), starts_s, ends_s) for *law, words, now in rows]
    return np.array(values, np.float64)


def markov(on_s: Column, *, off_s: Column) -> Markov:
    """Return availability with exponential times online and offline; means for all clients or one per client."""
    return Markov(on_s, off_s=off_s)


@dataclass(frozen=True, eq=False)
class Markov:
    """Alternating exponential periods, online with mean `on_s` and offline with mean `off_s`."""

    on_s: Column
    _: KW_ONLY
    off_s: Column

    def __post_init__(self) -> None:
        for name in ("on_s", "off_s"):
            object.__setattr__(self, name, check_column(f"markov {name}", getattr(self, name), low=TINY))

    @property
    def clients(self) -> int | None:
        rows = [n for n in (row_count(self.on_s), row_count(self.off_s)) if n is not None]
        return min(rows, default=None)

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        return times_of(availability.online_s, self.to_columns(clients), clients, now_s, rng)

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        return times_of(availability.offline_s, self.to_columns(clients), clients, now_s, rng)

    def to_columns(self, rows: Array) -> AvailabilityColumns:
        return AvailabilityColumns(availability.MARKOV, rows_of(self.on_s, rows), rows_of(self.off_s, rows))

    def describe(self) -> str:
        return f"online for {duration(self.on_s)}, offline for {duration(self.off_s)} at random"


SHORTEST = 1e-9  # of a period: the clock would round a shorter window to nothing


def diurnal(period_s: float, *, on_fraction: Any, phase: Any = "per client") -> Diurnal:
    """Return availability for a fraction of every period; the phase (0 to 1) is drawn per client unless given."""
    return Diurnal(period_s, on_fraction=on_fraction, phase=phase)


@dataclass(frozen=True, eq=False)
class Diurnal:
    """Online for `on_fraction` of every period, from `phase` (a fraction of the period) on."""

    period_s: float
    _: KW_ONLY
    on_fraction: Column
    phase: Column | str = "per client"

    def __post_init__(self) -> None:
        check_field(self, "period_s", "diurnal period_s", low=TINY)
        on = check_column("diurnal on_fraction", self.on_fraction, high=1.0)
        if np.any((np.asarray(on) > 0) & (np.asarray(on) < SHORTEST)):
            raise InvalidInput(f"diurnal on_fraction={short_str(on)}: give 0 for never, or at least {SHORTEST:g}")
        object.__setattr__(self, "on_fraction", on)
        if isinstance(self.phase, str):
            if self.phase != "per client":
                raise InvalidInput(f'diurnal phase={short_repr(self.phase)}: give "per client" or a number from 0 to 1')
        else:
            object.__setattr__(self, "phase", check_column("diurnal phase", self.phase, high=1.0))

    @property
    def clients(self) -> int | None:
        rows = [n for n in (row_count(self.on_fraction), row_count(self.phase)) if n is not None]
        return min(rows, default=None)

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        return times_of(availability.online_s, self.to_columns(clients), clients, now_s, rng)

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        return times_of(availability.offline_s, self.to_columns(clients), clients, now_s, rng)

    def to_columns(self, rows: Array) -> AvailabilityColumns:
        phase = math.nan if isinstance(self.phase, str) else rows_of(self.phase, rows)
        return AvailabilityColumns(availability.DIURNAL, rows_of(self.on_fraction, rows), phase, self.period_s)

    def describe(self) -> str:
        return f"online {100 * np.mean(self.on_fraction):.3g}% of every {duration(self.period_s)}"


def intervals(starts: Any, *, ends: Any, offsets: Any, period_s: Any = None) -> Intervals:
    """Return availability during given intervals, such as those of a trace, repeated every `period_s` if given."""
    return Intervals(starts, ends=ends, offsets=offsets, period_s=period_s)


@dataclass(frozen=True, eq=False)
class Intervals:
    """Online during recorded intervals; those of client c are `offsets[c]:offsets[c + 1]` of `starts` and `ends`.

    With `period_s` (a number, or one per client) the recording repeats, and an interval that ends with the period
    continues in one that starts with it. A lookup takes time logarithmic in the intervals of a client.
    """

    starts: Array
    _: KW_ONLY
    ends: Array
    offsets: Array
    period_s: Column | None = None

    def __post_init__(self) -> None:
        starts, ends, offsets = _checked(self.starts, self.ends, self.offsets)
        for name, value in (("starts", starts), ("ends", ends), ("offsets", offsets)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)
        if self.period_s is None:
            return
        period = check_column("intervals period_s", self.period_s, low=TINY)
        object.__setattr__(self, "period_s", period)
        if isinstance(period, np.ndarray) and len(period) != len(offsets) - 1:
            raise InvalidInput(f"intervals: {len(period)} periods for {len(offsets) - 1} clients; give one each")
        each = np.repeat(np.broadcast_to(period, len(offsets) - 1), np.diff(offsets))
        if (ends > each).any():
            i = int(np.argmax(ends > each))
            raise InvalidInput(
                f"intervals: an interval ends at {ends[i]:g} s, after the period of {each[i]:g} s; cut it there"
            )

    @property
    def clients(self) -> int | None:
        return len(self.offsets) - 1

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        return times_of(availability.online_s, self.to_columns(clients), clients, now_s, rng)

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        return times_of(availability.offline_s, self.to_columns(clients), clients, now_s, rng)

    def to_columns(self, rows: Array) -> AvailabilityColumns:
        if rows.size and (rows.min() < 0 or rows.max() >= len(self.offsets) - 1):
            raise InvalidInput(
                f"client {rows.max()} has no intervals: only {len(self.offsets) - 1} clients were recorded"
            )
        period_s = math.inf if self.period_s is None else rows_of(self.period_s, rows)
        begin, end = self.offsets[rows], self.offsets[rows + 1]
        return AvailabilityColumns(availability.INTERVALS, 0.0, 0.0, period_s, begin, end, self.starts, self.ends)

    def describe(self) -> str:
        repeated = "" if self.period_s is None else f", repeated every {duration(self.period_s)}"
        return f"recorded availability of {self.clients} devices{repeated}"


def _checked(starts: npt.ArrayLike, ends: npt.ArrayLike, offsets: npt.ArrayLike) -> tuple[Array, Array, Array]:
    columns = [as_float_array(value) for value in (starts, ends, offsets)]
    if any(column is None for column in columns):
        raise InvalidInput("intervals: starts, ends and offsets must be columns of numbers")
    s, e, o = (np.asarray(column) for column in columns)
    if not (np.isfinite(o).all() and (o == np.floor(o)).all() and (np.abs(o) < 2**53).all()):
        raise InvalidInput("intervals: offsets must be integers")
    o = o.astype(np.int64)
    if s.ndim != 1 or s.shape != e.shape:
        raise InvalidInput(f"intervals: starts {s.shape} and ends {e.shape} must be columns of one length")
    if o.ndim != 1 or len(o) < 2 or o[0] != 0 or o[-1] != len(s) or (np.diff(o) < 0).any():
        raise InvalidInput(f"intervals: offsets must rise from 0 to the number of intervals, {len(s)}")
    if not (np.isfinite(s) & np.isfinite(e) & (s >= 0) & (s < e)).all():
        i = int(np.argmin(np.isfinite(s) & np.isfinite(e) & (s >= 0) & (s < e)))
        raise InvalidInput(
            f"intervals: number {i} from {s[i]:g} to {e[i]:g} s; it must begin at 0 or later and end later"
        )
    inside = np.ones(len(s), bool)  # all but the first of each client
    inside[o[:-1][o[:-1] < len(s)]] = False
    late = np.flatnonzero(inside[1:] & (s[1:] <= e[:-1]))
    if late.size:
        i = int(late[0]) + 1
        raise InvalidInput(
            f"intervals: number {i} begins at {s[i]:g} s, not after the one before it ends, {e[i - 1]:g} s;"
            " sort a client's intervals and merge those that touch"
        )
    return s, e, o
