"""Parts of a scenario as columns, which the compiled clock reads: codes of `fedsim.rules` and their numbers.

`to_columns` of a policy, of devices and of a network returns these. A part without it runs on the SimPy clock.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.rules.availability import ALWAYS
from fedsim.rules.closing import Closing
from fedsim.rules.draws import NO_SLOWDOWN


class PolicyColumns(NamedTuple):
    """Which clients a policy asks, and when it closes a round."""

    selection: int  # a code of rules.selection
    size: int = 0  # clients, or draws; 0: all clients
    probability: float | tuple[float, ...] = 1.0  # of a client, for BERNOULLI
    closing: Closing = Closing()


class SlowdownColumns(NamedTuple):
    """The law of a factor on the compute time of every visit."""

    law: int = NO_SLOWDOWN
    a: float = 0.0
    b: float = 0.0


class AvailabilityColumns(NamedTuple):
    """When clients are online: the fields of `rules.availability.OnlineLaw`, one number or one per client."""

    code: int = ALWAYS
    a: float | Array = 0.0
    b: float | Array = 0.0
    period_s: float | Array = math.inf
    begin: int | Array = 0  # a client's intervals in the two columns below
    end: int | Array = 0
    starts_s: Array = np.zeros(1)
    ends_s: Array = np.zeros(1)


class DeviceColumns(NamedTuple):
    """Compute time, dropout and availability, one number or one per client."""

    work_s: float | Array  # compute seconds of a visit, before its slow-down
    wake_s: float | Array
    slowdown: SlowdownColumns
    dropout: tuple[float | Array, float | Array, float | Array]  # before, in compute, in the upload
    availability: AvailabilityColumns


class RouteColumns(NamedTuple):
    """Links and routes: row r uses the links down[down_starts[r] : down_starts[r + 1]], and likewise up."""

    capacities_bps: Array
    down: Array
    down_starts: Array
    up: Array
    up_starts: Array


DEFINES = {  # members that `to_columns` describes: a class that overrides one of them has no columns
    "policy": ("select", "close"), "devices": ("compute_s", "drop", "next_available", "available_until"),
    "network": ("route", "delay_s", "loss_factor", "bottleneck_bps"),
}  # fmt: skip


def has_columns(part: object, role: str) -> bool:
    """Return True if a part's `to_columns` is not older than the members that it describes."""
    kind = type(part)
    return all(_depth(kind, "to_columns") <= _depth(kind, name) for name in DEFINES[role])


def _depth(kind: type, name: str) -> int:
    return next((i for i, base in enumerate(kind.__mro__) if name in vars(base)), len(kind.__mro__))
