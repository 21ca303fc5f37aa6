"""When a client is on: always, by the hour of the day, at random (`onoff.py`), or as a trace recorded it.

Each model is a pure function of a client's key and the time, so its answers agree with one another in any
order. An on-period includes its start and excludes its end, and all comparisons are made between the very
numbers that are returned: a client is on at the time `next_available` names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import floats_of
from fedsim.devices.columns import TINY, Column, column, duration, length, pick, settle
from fedsim.errors import InvalidInput, quoted, shown
from fedsim.protocols.columns import AvailabilityColumns
from fedsim.rng import Draws
from fedsim.rules import availability


class Availability(Protocol):
    """On-periods over time; `rng` has one row per client, the same at every call: (seed, replica, client)."""

    @property
    def clients(self) -> int | None: ...  # rows of its table, None for any number of clients

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array: ...

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array: ...

    def describe(self) -> str: ...


def cycle(now_s: Array, length_s: Column, start: Column = 0.0) -> Array:
    """The k with (k + start) * length <= now < (k + 1 + start) * length, as computed in floating point."""
    k = np.floor(now_s / length_s - start)
    k -= (k + start) * length_s > now_s
    k = np.asarray(k + ((k + 1.0 + start) * length_s <= now_s))
    if not (np.abs(k) < 2.0**52).all():  # counting on would stand still
        raise InvalidInput(
            f"the clock is at {np.max(now_s):g} s, too late for periods of {duration(length_s)}; set a budget"
        )
    return k


BRIEFEST = 1e-9  # of a period: a shorter window would vanish in the rounding of the clock


@dataclass(frozen=True, eq=False)
class Diurnal:
    """On for `on_fraction` of every period, beginning at `phase` (a fraction of the period) of it."""

    period_s: float
    on_fraction: Column
    phase: Column | str = "per client"

    def __post_init__(self) -> None:
        settle(self, "period_s", "diurnal period_s", low=TINY)
        on = column("diurnal on_fraction", self.on_fraction, high=1.0)
        if np.any((np.asarray(on) > 0) & (np.asarray(on) < BRIEFEST)):
            raise InvalidInput(f"diurnal on_fraction={shown(on)}: give 0 for never, or at least {BRIEFEST:g}")
        object.__setattr__(self, "on_fraction", on)
        if isinstance(self.phase, str):
            if self.phase != "per client":
                raise InvalidInput(f'diurnal phase={quoted(self.phase)}: give "per client" or a number from 0 to 1')
        else:
            object.__setattr__(self, "phase", column("diurnal phase", self.phase, high=1.0))

    @property
    def clients(self) -> int | None:
        rows = [n for n in (length(self.on_fraction), length(self.phase)) if n is not None]
        return min(rows, default=None)

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        end, following = self._window(clients, now_s, rng)
        on = pick(self.on_fraction, clients)
        return np.where(on <= 0.0, np.inf, np.where((now_s < end) | (on >= 1.0), now_s, following))

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        end, _ = self._window(clients, now_s, rng)
        return np.where(pick(self.on_fraction, clients) >= 1.0, np.inf, np.maximum(end, now_s))

    def _window(self, clients: Array, now_s: Array, rng: Draws) -> tuple[Array, Array]:
        """The end of the window that began last, and the beginning of the next."""
        phase = rng.uniform() if isinstance(self.phase, str) else pick(self.phase, clients)
        k = cycle(now_s, self.period_s, phase)
        end = (k + phase + pick(self.on_fraction, clients)) * self.period_s
        following = (k + 1.0 + phase) * self.period_s
        return np.minimum(end, following), following

    def to_columns(self, rows: Array) -> AvailabilityColumns:
        phase = math.nan if isinstance(self.phase, str) else pick(self.phase, rows)
        return AvailabilityColumns(availability.DIURNAL, pick(self.on_fraction, rows), phase, self.period_s)

    def describe(self) -> str:
        return f"on {100 * np.mean(self.on_fraction):.3g}% of every {duration(self.period_s)}"


@dataclass(frozen=True, eq=False)
class Intervals:
    """On during recorded intervals: client c owns numbers `offsets[c]:offsets[c + 1]` of `starts` and `ends`.

    With `period_s` (a number, or one per client) the recording repeats for ever, and an interval that ends
    with the period continues in one that starts with it. Looking one up takes log(intervals of a client).
    """

    starts: Array
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
        period = column("intervals period_s", self.period_s, low=TINY)
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
        first, end, base, following, at = self._find(clients, now_s)
        on = (at >= first) & (now_s < self._end(clients, at, base, following))
        again = np.where(end > first, following + self._value(self.starts, first), np.inf)
        later = np.where(at + 1 < end, base + self._value(self.starts, at + 1), again)
        return np.where(on, now_s, later)

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        first, _, base, following, at = self._find(clients, now_s)
        until = self._end(clients, at, base, following)
        on = (at >= first) & (now_s < until)
        # The last interval of a period may go on in the first of the next.
        joined = on & (until == following) & (self._value(self.starts, first) == 0.0)
        whole = joined & (at == first)
        until = np.where(joined, following + self._value(self.ends, first), until)
        return np.where(whole, np.inf, np.where(on, until, now_s))

    def _find(self, clients: Array, now_s: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Each client's range of intervals, when its period began and ends, and its last interval begun."""
        if clients.size and (clients.min() < 0 or clients.max() >= len(self.offsets) - 1):
            raise InvalidInput(
                f"client {clients.max()} has no intervals: only {len(self.offsets) - 1} clients were recorded"
            )
        first, end = self.offsets[clients], self.offsets[clients + 1]
        base, following = np.zeros(len(clients)), np.full(len(clients), np.inf)
        if self.period_s is not None:
            period = pick(self.period_s, clients)
            k = cycle(now_s, period)
            base, following = k * period, (k + 1.0) * period
        low, high = first - 1, end  # the last interval begun is at `low` or between it and `high`
        while (wide := high - low > 1).any():
            middle = (low + high) // 2
            begun = base + self._value(self.starts, middle) <= now_s
            low, high = np.where(wide & begun, middle, low), np.where(wide & ~begun, middle, high)
        return first, end, base, following, low

    def _end(self, clients: Array, at: Array, base: Array, following: Array) -> Array:
        """When interval `at` ends; exactly with the period if it was recorded so."""
        end = self._value(self.ends, at)
        period = np.inf if self.period_s is None else pick(self.period_s, clients)
        return np.where(end == period, following, np.minimum(base + end, following))

    @staticmethod
    def _value(values: Array, at: Array) -> Array:
        """values[at], with anything where `at` points outside: the caller masks it."""
        return values[np.clip(at, 0, len(values) - 1)] if len(values) else np.zeros(at.shape)

    def to_columns(self, rows: Array) -> AvailabilityColumns:
        period_s = math.inf if self.period_s is None else pick(self.period_s, rows)
        begin, end = self.offsets[rows], self.offsets[rows + 1]
        return AvailabilityColumns(availability.INTERVALS, 0.0, 0.0, period_s, begin, end, self.starts, self.ends)

    def describe(self) -> str:
        repeated = "" if self.period_s is None else f", repeated every {duration(self.period_s)}"
        return f"recorded availability of {self.clients} devices{repeated}"


def _checked(starts: npt.ArrayLike, ends: npt.ArrayLike, offsets: npt.ArrayLike) -> tuple[Array, Array, Array]:
    columns = [floats_of(value) for value in (starts, ends, offsets)]
    if any(column is None for column in columns):
        raise InvalidInput("intervals: starts, ends and offsets have to be columns of numbers")
    s, e, o = (np.asarray(column) for column in columns)
    if not (np.isfinite(o).all() and (o == np.floor(o)).all() and (np.abs(o) < 2**53).all()):
        raise InvalidInput("intervals: offsets have to be whole numbers")
    o = o.astype(np.int64)
    if s.ndim != 1 or s.shape != e.shape:
        raise InvalidInput(f"intervals: starts {s.shape} and ends {e.shape} have to be columns of one length")
    if o.ndim != 1 or len(o) < 2 or o[0] != 0 or o[-1] != len(s) or (np.diff(o) < 0).any():
        raise InvalidInput(f"intervals: offsets have to rise from 0 to the number of intervals, {len(s)}")
    if not (np.isfinite(s) & np.isfinite(e) & (s >= 0) & (s < e)).all():
        i = int(np.argmin(np.isfinite(s) & np.isfinite(e) & (s >= 0) & (s < e)))
        raise InvalidInput(
            f"intervals: number {i} from {s[i]:g} to {e[i]:g} s; it has to begin at 0 or later and to end later"
        )
    inside = np.ones(len(s), bool)  # not the first of its client
    inside[o[:-1][o[:-1] < len(s)]] = False
    late = np.flatnonzero(inside[1:] & (s[1:] <= e[:-1]))
    if late.size:
        i = int(late[0]) + 1
        raise InvalidInput(
            f"intervals: number {i} begins at {s[i]:g} s, not after the one before it ends, {e[i - 1]:g} s;"
            " sort a client's intervals and merge those that touch"
        )
    return s, e, o


def diurnal(period_s: float, on_fraction: Any, phase: Any = "per client") -> Diurnal:
    """On for a fraction of every period; the phase (0 to 1) is drawn per client, or given for all or each."""
    return Diurnal(period_s, on_fraction, phase)


def intervals(starts: Any, ends: Any, offsets: Any, period_s: Any = None) -> Intervals:
    """On during given intervals, for example of a trace; repeated every `period_s` if that is given."""
    return Intervals(starts, ends, offsets, period_s)
