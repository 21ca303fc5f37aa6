"""Devices on the SimPy clock: compiled loops over `fedsim.rules`, for many clients or visits in one call."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import unit
from fedsim.rules import availability, draws, visits
from fedsim.rules.availability import OnlineLaw
from fedsim.rules.draws import Key


@unit
def times_s(until, code, a, b, period_s, begin, end, starts_s, ends_s, key, now_s, out):
    for i in range(len(out)):
        law = OnlineLaw(code, a[i], b[i], period_s[i], begin[i], end[i])
        words = Key(np.int64(key[i, 0]), np.int64(key[i, 1]), np.int64(key[i, 2]), np.int64(key[i, 3]))
        if until:
            out[i] = availability.offline_s(now_s[i], law, words, starts_s, ends_s)
        else:
            out[i] = availability.online_s(now_s[i], law, words, starts_s, ends_s)


def online_times(
    until: bool, code: int, a: Array, b: Array, period_s: Array, begin: Array, end: Array,
    starts_s: Array, ends_s: Array, key: Array, now_s: Array,
) -> Array:  # fmt: skip
    """Return when each client is online from now on or, with `until`, when it goes offline; nan: too late to count."""
    out = np.empty(len(key))
    laws = [np.array(column, np.float64) for column in (a, b, period_s)]  # copies are all of one compiled type
    intervals = [np.array(column, np.int64) for column in (begin, end)]
    times = [np.array(column, np.float64) for column in (starts_s, ends_s)]
    times_s(until, code, *laws, *intervals, *times, np.array(key), np.array(now_s, np.float64), out)
    return out


@unit
def factors(law, a, b, drawn, out):
    for i in range(len(out)):
        out[i] = draws.slowdown(law, a, b, drawn[i])


def slowdowns(law: int, a: float, b: float, drawn: Array) -> Array:
    """Return the factor on the compute time of each visit."""
    out = np.empty(len(drawn))
    factors(law, float(a), float(b), np.array(drawn, np.float64), out)
    return out


@unit
def phases(u, dropout, out):
    for i in range(len(out)):
        out[i] = visits.drop_phase(u[i], dropout[i])


def drop_phases(u: Array, dropout: Array) -> Array:
    """Return the phase in which each visit drops out, from uniforms and records of `visits.DROPOUT`."""
    out = np.empty(len(u), np.int8)
    phases(np.array(u, np.float64), dropout, out)
    return out
