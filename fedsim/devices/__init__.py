"""Devices: per client, compute time, slow-down, dropout and availability.

    devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.05, availability=devices.markov(3600, off_s=7200))

`traces` reads recordings of real phones.
"""

from __future__ import annotations

from fedsim.devices import traces
from fedsim.devices.availability import Diurnal, Intervals, Markov, diurnal, intervals, markov
from fedsim.devices.factories import (
    BimodalSlowdown,
    LognormalSlowdown,
    ParetoSlowdown,
    bimodal_slowdown,
    constant,
    from_flops,
    lognormal,
    lognormal_slowdown,
    pareto_slowdown,
    table,
)
from fedsim.devices.model import Devices, LognormalSpeed

__all__ = [
    "BimodalSlowdown",
    "Devices",
    "Diurnal",
    "Intervals",
    "LognormalSlowdown",
    "LognormalSpeed",
    "Markov",
    "ParetoSlowdown",
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
