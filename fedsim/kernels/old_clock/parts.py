"""The parts of a scenario as the compiled clock wants them: numbers and columns, one row per client. No Numba here.

`as_arrays` of a policy, of devices and of a network makes these; who has none is asked visit by visit, on SimPy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array

ALL, SOME, WEIGHTED, COINS = range(4)  # whom a policy asks
WAITS, AT_REPLIES, AT_DEADLINE, FOLDS = range(4)  # when it closes
NO_SLOWDOWN, LOGNORMAL, PARETO, BIMODAL = range(4)
ALWAYS, MARKOV, DIURNAL, INTERVALS = range(4)


class PolicyArrays(NamedTuple):
    """Whom a policy asks, and when it closes."""

    selects: int
    closes: int = WAITS
    draws: int = 0  # how many are asked; 0: all
    coin: float | tuple[float, ...] = 1.0
    replies: int = 0
    seconds: float = math.inf


class SlowdownArrays(NamedTuple):
    """The law of a factor on a visit's compute time."""

    kind: int = NO_SLOWDOWN
    a: float = 0.0
    b: float = 0.0


class PresenceArrays(NamedTuple):
    """When clients are on: MARKOV a, b = on_s, off_s; DIURNAL a, b = on_fraction, phase (NaN: drawn); INTERVALS."""

    kind: int = ALWAYS
    a: float | Array = 0.0
    b: float | Array = 0.0
    period_s: float | Array = math.inf
    begin: Array = np.zeros(1, np.int64)  # of each client's intervals
    end: Array = np.zeros(1, np.int64)
    starts: Array = np.zeros(1)
    ends: Array = np.zeros(1)


class DeviceArrays(NamedTuple):
    """What a client's processor and owner do to the clock."""

    work_s: float | Array  # compute seconds of a visit, before a slow-down
    wake_s: float | Array
    slowdown: SlowdownArrays
    dropout: tuple[float | Array, float | Array, float | Array]  # before, in compute, in the upload
    presence: PresenceArrays


class RouteArrays(NamedTuple):
    """Client c's way down uses the links down[down_starts[c]:down_starts[c + 1]], and likewise up."""

    capacities_bps: Array
    down: Array
    down_starts: Array
    up: Array
    up_starts: Array
