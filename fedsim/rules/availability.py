"""When a device is online. A law is a code and its numbers; every answer is a function of the key and the time alone.

An online period includes its start and excludes its end. All comparisons are made between the numbers that are
returned, so a device is online at the time that `online_s` names. Both rules return nan where the clock is too late for
a law's periods: counting them would stand still.

MARKOV: a, b = mean seconds online and offline. Two Poisson processes drive a device: calls to go offline at rate 1/a,
calls to come online at rate 1/b; a call that asks for the present state does nothing. The latest call of either kind
names the state, the next call of the other kind ends it, so nothing depends on the distant past. A process is cut into
cells of two mean gaps; the gaps of a cell come from the key and the cell's number.
DIURNAL: online for the fraction a of every period, from b of it on; b = nan: the phase is drawn per client.
INTERVALS: online during recorded intervals `begin` to `end` of two columns, repeated every period if that is finite.
"""

from __future__ import annotations

from math import floor, inf, nan
from typing import NamedTuple, Protocol

from fedsim.rules.draws import Key, exponential, philox, uniform, unit

ALWAYS, MARKOV, DIURNAL, INTERVALS = 0, 1, 2, 3
GO_OFFLINE, COME_ONLINE, START = 0, 1, 2  # what a Markov draw is for
MOST_CELLS = 4503599627370496.0  # 2**52: beyond, counting cells would stand still


class OnlineLaw(NamedTuple):
    """One client's row of the availability columns."""

    code: int = ALWAYS
    a: float = 0.0
    b: float = 0.0
    period_s: float = inf
    begin: int = 0
    end: int = 0


class Column(Protocol):
    """A list or an array of numbers."""

    def __getitem__(self, at: int, /) -> float: ...


def online_s(now_s: float, law: OnlineLaw, key: Key, starts_s: Column, ends_s: Column) -> float:
    """Return the earliest time from now on at which a device is online; inf: never."""
    if law.code == MARKOV:
        if not markov_in_range(now_s, law.a, law.b):
            return nan
        if markov_is_online(now_s, law.a, law.b, key):
            return now_s
        return next_call_s(now_s, 2.0 * law.b, COME_ONLINE, key)
    if law.code == DIURNAL:
        phase = diurnal_phase(law.b, key)
        k = cycle(now_s, law.period_s, phase)
        if not is_countable(k):
            return nan
        if law.a <= 0.0:
            return inf
        if now_s < diurnal_end_s(k, phase, law) or law.a >= 1.0:
            return now_s
        return (k + 1.0 + phase) * law.period_s
    if law.code == INTERVALS:
        k = interval_cycle(now_s, law.period_s)
        if not is_countable(k):
            return nan
        base_s, following_s = interval_base_s(k, law.period_s), interval_base_s(k + 1.0, law.period_s)
        at = latest_interval(now_s, base_s, law, starts_s)
        if at >= law.begin and now_s < interval_end_s(at, base_s, following_s, law, ends_s):
            return now_s
        if at + 1 < law.end:
            return base_s + starts_s[at + 1]
        return following_s + starts_s[law.begin] if law.end > law.begin else inf
    return now_s


def offline_s(now_s: float, law: OnlineLaw, key: Key, starts_s: Column, ends_s: Column) -> float:
    """Return when a device that is online now goes offline; now if it is offline; inf: never."""
    if law.code == MARKOV:
        if not markov_in_range(now_s, law.a, law.b):
            return nan
        if not markov_is_online(now_s, law.a, law.b, key):
            return now_s
        return next_call_s(now_s, 2.0 * law.a, GO_OFFLINE, key)
    if law.code == DIURNAL:
        phase = diurnal_phase(law.b, key)
        k = cycle(now_s, law.period_s, phase)
        if not is_countable(k):
            return nan
        if law.a >= 1.0:
            return inf
        end_s = diurnal_end_s(k, phase, law)
        return end_s if end_s > now_s else now_s
    if law.code == INTERVALS:
        k = interval_cycle(now_s, law.period_s)
        if not is_countable(k):
            return nan
        base_s, following_s = interval_base_s(k, law.period_s), interval_base_s(k + 1.0, law.period_s)
        at = latest_interval(now_s, base_s, law, starts_s)
        if at < law.begin:
            return now_s
        until_s = interval_end_s(at, base_s, following_s, law, ends_s)
        if not now_s < until_s:
            return now_s
        if until_s == following_s and starts_s[law.begin] == 0.0:  # it continues in the first of the next period
            return inf if at == law.begin else following_s + ends_s[law.begin]
        return until_s
    return inf


# --- Periods --------------------------------------------------------------------------------------------------------


def cycle(now_s: float, length_s: float, start: float) -> float:
    """Return k with (k + start) * length <= now < (k + 1 + start) * length; nan or inf where it has none."""
    quotient = now_s / length_s - start
    if not is_countable(quotient):
        return quotient
    k = float(floor(quotient))
    if (k + start) * length_s > now_s:
        k = k - 1.0
    if (k + 1.0 + start) * length_s <= now_s:
        k = k + 1.0
    return k


def is_countable(k: float) -> bool:
    """Return True if periods can be counted up to k."""
    return k > -MOST_CELLS and k < MOST_CELLS


def diurnal_phase(phase: float, key: Key) -> float:
    """Return a device's phase; nan: it is drawn."""
    return uniform(key, 0) if phase != phase else phase


def diurnal_end_s(k: float, phase: float, law: OnlineLaw) -> float:
    """Return when the online part of period k ends."""
    end_s, following_s = (k + phase + law.a) * law.period_s, (k + 1.0 + phase) * law.period_s
    return end_s if end_s < following_s else following_s


# --- Recorded intervals ---------------------------------------------------------------------------------------------


def interval_cycle(now_s: float, period_s: float) -> float:
    """Return the number of the recording's repetition; 0 if it does not repeat."""
    return cycle(now_s, period_s, 0.0) if period_s < inf else 0.0


def interval_base_s(k: float, period_s: float) -> float:
    """Return when repetition k begins; a recording that does not repeat begins at 0 and has no second one."""
    if period_s < inf:
        return k * period_s
    return 0.0 if k == 0.0 else inf


def latest_interval(now_s: float, base_s: float, law: OnlineLaw, starts_s: Column) -> int:
    """Return the last interval that has begun; begin - 1: none has."""
    low, high = law.begin - 1, law.end
    while high - low > 1:
        middle = (low + high) >> 1
        if base_s + starts_s[middle] <= now_s:
            low = middle
        else:
            high = middle
    return low


def interval_end_s(at: int, base_s: float, following_s: float, law: OnlineLaw, ends_s: Column) -> float:
    """Return when an interval ends; exactly with the period if it was recorded so."""
    if ends_s[at] == law.period_s:
        return following_s
    end_s = base_s + ends_s[at]
    return end_s if end_s < following_s else following_s


# --- Markov ---------------------------------------------------------------------------------------------------------


def markov_in_range(now_s: float, on_s: float, off_s: float) -> bool:
    """Return True if the cells of both processes can be counted up to now."""
    return is_countable(cycle(now_s, 2.0 * on_s, 0.0)) and is_countable(cycle(now_s, 2.0 * off_s, 0.0))


def markov_is_online(now_s: float, on_s: float, off_s: float, key: Key) -> bool:
    """Return True if a device is online: by the latest call, or, before the first, by a draw."""
    last_off = last_call_s(now_s, 2.0 * on_s, GO_OFFLINE, key)
    last_on = last_call_s(now_s, 2.0 * off_s, COME_ONLINE, key)
    if last_off == -inf and last_on == -inf:
        w = cell_words(key, START, 0.0, 0, 0)
        return unit(w.w0, w.w1) < on_s / (on_s + off_s)
    return last_on >= last_off


def last_call_s(now_s: float, cell_s: float, kind: int, key: Key) -> float:
    """Return the last call at or before now; -inf: there was none since time 0."""
    cell = cycle(now_s, cell_s, 0.0)
    last_s = calls_around(now_s, cell_s, cell, kind, key)[0]
    while last_s == -inf and cell > 0.0:
        cell = cell - 1.0
        last_s = calls_around(now_s, cell_s, cell, kind, key)[0]
    return last_s


def next_call_s(now_s: float, cell_s: float, kind: int, key: Key) -> float:
    """Return the first call after now."""
    cell = cycle(now_s, cell_s, 0.0)
    next_s = calls_around(now_s, cell_s, cell, kind, key)[1]
    while next_s == inf:
        cell = cell + 1.0
        next_s = calls_around(now_s, cell_s, cell, kind, key)[1]
    return next_s


def calls_around(now_s: float, cell_s: float, cell: float, kind: int, key: Key) -> tuple[float, float]:
    """Return the last call at or before now inside a cell and the first after it, else -inf and inf."""
    last_s, at, turn = -inf, 0.0, 0
    while True:
        for block in range(2):
            w = cell_words(key, kind, cell, block, turn)
            for half in range(2):
                at = at + exponential(unit(w.w0, w.w1) if half == 0 else unit(w.w2, w.w3)) / 2.0
                if at >= 1.0:
                    return last_s, inf
                time_s = (cell + at) * cell_s
                if time_s > now_s:
                    return last_s, time_s
                if time_s > last_s:
                    last_s = time_s
        turn = turn + 1


def cell_words(key: Key, kind: int, cell: float, block: int, turn: int) -> Key:
    """Return the words of a block of a cell: the client's key, with the cell and the kind in two of its words."""
    number = int(cell)
    k2 = key.w2 ^ (number & 0xFFFFFFFF)
    k3 = key.w3 ^ (((number >> 32) << 2) | kind)
    return philox(block, turn, k2, k3, key.w0, key.w1)
