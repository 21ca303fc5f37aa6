"""The ways to make `Devices`: one number, a law, a table, or floating-point speeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.devices.availability import Availability
from fedsim.devices.model import Devices
from fedsim.devices.speed import LognormalSpeed, Slowdown
from fedsim.errors import InvalidInput
from fedsim.per_client import TINY, column, length, number, pick
from fedsim.text import short_repr, short_str


def constant(
    seconds_per_step: Any = None,
    slowdown: Slowdown | None = None,
    dropout: Any = 0.0,
    availability: Availability | None = None,
    *,
    seconds_per_example: Any = None,
    latency_s: Any = 0.0,
) -> Devices:
    """The same time for every step; a number for all clients or one for each. Give steps or examples."""
    if (seconds_per_step is None) == (seconds_per_example is None):
        raise InvalidInput("devices.constant: give either seconds_per_step or seconds_per_example")
    per_example = seconds_per_step is None
    seconds = seconds_per_example if per_example else seconds_per_step
    return Devices(seconds, slowdown, dropout, availability, latency_s, per_example)


def lognormal(
    median_step_s: float,
    sigma: float,
    dropout: Any = 0.0,
    slowdown: Slowdown | None = None,
    availability: Availability | None = None,
    *,
    seed: int = 0,
    per_example: bool = False,
) -> Devices:
    """Seconds per step lognormal *across clients*: each keeps its own, drawn for (seed, client), for ever."""
    law = LognormalSpeed(median_step_s, sigma, seed)
    return Devices(law, slowdown, dropout, availability, per_example=per_example)


def from_flops(
    flops_per_step: float,
    flops_per_second: npt.ArrayLike,
    slowdown: Slowdown | None = None,
    dropout: Any = 0.0,
    availability: Availability | None = None,
) -> Devices:
    """Seconds per step from the work in a step and each device's floating-point speed."""
    work = number("flops_per_step", flops_per_step)
    speed = column("flops_per_second", flops_per_second, low=TINY)
    return Devices(np.divide(work, speed), slowdown, dropout, availability, flops_per_step=work)


COLUMNS = ("seconds_per_step", "seconds_per_example", "slowdown", "dropout", "latency_s", "client")


def table(
    frame: Any,
    slowdown: Slowdown | None = None,
    dropout: Any = None,
    availability: Availability | None = None,
    *,
    recycle: bool = False,
) -> Devices:
    """Devices from a DataFrame or a mapping of columns, one row per client.

    `seconds_per_step` (or `seconds_per_example`) is required; `slowdown` multiplies it, `dropout` and
    `latency_s` are as in `Devices`, and `client` (0 to rows - 1, in any order) says whose row it is.
    """
    if isinstance(frame, type) or not hasattr(frame, "keys"):
        raise InvalidInput(
            f"devices.table({short_repr(frame)}): give seconds_per_step and so on in a DataFrame or a mapping"
        )
    names = [short_str(name) for name in frame.keys()]  # noqa: SIM118  a DataFrame's keys are its columns
    unknown = sorted(set(names) - set(COLUMNS))
    speeds = [name for name in COLUMNS[:2] if name in names]
    if unknown or len(speeds) != 1:
        raise InvalidInput(
            f"devices.table: the columns are {short_str(names)}; give seconds_per_step or seconds_per_example,"
            f" and of the others only {', '.join(COLUMNS[2:])}"
        )
    if dropout is not None and "dropout" in names:
        raise InvalidInput("devices.table: dropout is both a column and an argument; give one of them")
    columns = {name: column(f"devices.table {name}", frame[name]) for name in names}
    rows = length(columns[speeds[0]]) or 0
    for name, values in columns.items():
        if not rows or length(values) != rows:
            raise InvalidInput(f"devices.table: {name} has to have one row per client, like {speeds[0]} ({rows})")
    order: Any = columns.pop("client", np.arange(rows))
    if not np.array_equal(np.sort(order), np.arange(rows)):
        raise InvalidInput(f"devices.table: the client column has to name each of 0 to {rows - 1} once")
    by_client = np.argsort(order)
    picked = {name: pick(values, by_client) for name, values in columns.items()}
    return Devices(
        picked[speeds[0]] * picked.get("slowdown", 1.0),
        slowdown,
        picked.get("dropout", 0.0) if dropout is None else dropout,
        availability,
        picked.get("latency_s", 0.0),
        per_example=speeds[0] == "seconds_per_example",
        recycle=recycle,
    )
