"""Devices: per client, how long computing takes, how often it fails, and when it is on.

    devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.05, availability=devices.markov(3600, 7200))

`traces` reads recordings of real phones.
"""

from __future__ import annotations

from fedsim.devices import traces
from fedsim.devices.availability import Availability, Diurnal, Intervals, Markov, diurnal, intervals, markov
from fedsim.devices.factories import constant, from_flops, lognormal, table
from fedsim.devices.model import BEFORE, COMPUTE, NONE, UPLOAD, Devices
from fedsim.devices.speed import (
    BimodalSlowdown,
    LognormalSlowdown,
    LognormalSpeed,
    ParetoSlowdown,
    Slowdown,
    bimodal_slowdown,
    lognormal_slowdown,
    pareto_slowdown,
)

__all__ = [
    "BEFORE",
    "COMPUTE",
    "NONE",
    "UPLOAD",
    "Availability",
    "BimodalSlowdown",
    "Devices",
    "Diurnal",
    "Intervals",
    "LognormalSlowdown",
    "LognormalSpeed",
    "Markov",
    "ParetoSlowdown",
    "Slowdown",
    "bimodal_slowdown",
    "constant",
    "diurnal",
    "from_flops",
    "intervals",
    "lognormal",
    "lognormal_slowdown",
    "markov",
    "pareto_slowdown",
    "table",
    "traces",
]
