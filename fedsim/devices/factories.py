"""Factories of `Devices` (one number, a law, a table, floating-point speeds) and laws of slow-down."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.devices.model import Devices, LognormalSpeed
from fedsim.errors import InvalidInput
from fedsim.per_client import TINY, check_column, check_field, check_number, row_count, rows_of
from fedsim.protocols import SlowdownColumns
from fedsim.protocols.devices import Availability, Slowdown
from fedsim.renamed import refuse_old_keywords
from fedsim.rng import Draws
from fedsim.rules import draws
from fedsim.text import short_repr, short_str


def constant(
    seconds_per_step: Any = None,
    *,
    slowdown: Slowdown | None = None,
    dropout: Any = 0.0,
    availability: Availability | None = None,
    seconds_per_example: Any = None,
    latency_s: Any = 0.0,
) -> Devices:
    """Return devices with a constant time per step or per example; a number for all clients or one per client."""
    if (seconds_per_step is None) == (seconds_per_example is None):
        raise InvalidInput("devices.constant: give either seconds_per_step or seconds_per_example")
    per_example = seconds_per_step is None
    seconds = seconds_per_example if per_example else seconds_per_step
    return Devices(
        seconds,
        slowdown=slowdown,
        dropout=dropout,
        availability=availability,
        latency_s=latency_s,
        per_example=per_example,
    )


def lognormal(
    median_step_s: float,
    *,
    sigma: float,
    dropout: Any = 0.0,
    slowdown: Slowdown | None = None,
    availability: Availability | None = None,
    seed: int = 0,
    per_example: bool = False,
) -> Devices:
    """Return devices whose seconds per step are lognormal *across clients*, one draw for each (seed, client)."""
    law = LognormalSpeed(median_step_s, sigma=sigma, seed=seed)
    return Devices(law, slowdown=slowdown, dropout=dropout, availability=availability, per_example=per_example)


def from_flops(
    flops_per_step: float,
    *,
    flops_per_second: npt.ArrayLike,
    slowdown: Slowdown | None = None,
    dropout: Any = 0.0,
    availability: Availability | None = None,
) -> Devices:
    """Return devices whose seconds per step are the work of a step over each device's floating-point speed."""
    work = check_number("flops_per_step", flops_per_step)
    speed = check_column("flops_per_second", flops_per_second, low=TINY)
    return Devices(
        np.divide(work, speed), slowdown=slowdown, dropout=dropout, availability=availability, flops_per_step=work
    )


COLUMNS = ("seconds_per_step", "seconds_per_example", "slowdown", "dropout", "latency_s", "client")


def table(
    frame: Any,
    *,
    slowdown: Slowdown | None = None,
    dropout: Any = None,
    availability: Availability | None = None,
    recycle: bool = False,
) -> Devices:
    """Return devices from a DataFrame or a mapping of columns, one row per client.

    `seconds_per_step` (or `seconds_per_example`) is required; `slowdown` multiplies it, `dropout` and
    `latency_s` are as in `Devices`, and `client` (0 to rows - 1, in any order) is the client of the row.
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
    columns = {name: check_column(f"devices.table {name}", frame[name]) for name in names}
    rows = row_count(columns[speeds[0]]) or 0
    for name, values in columns.items():
        if not rows or row_count(values) != rows:
            raise InvalidInput(f"devices.table: {name} must have one row per client, like {speeds[0]} ({rows})")
    order: Any = columns.pop("client", np.arange(rows))
    if not np.array_equal(np.sort(order), np.arange(rows)):
        raise InvalidInput(f"devices.table: the client column must name each of 0 to {rows - 1} once")
    by_client = np.argsort(order)
    picked = {name: rows_of(values, by_client) for name, values in columns.items()}
    return Devices(
        picked[speeds[0]] * picked.get("slowdown", 1.0),
        slowdown=slowdown,
        dropout=picked.get("dropout", 0.0) if dropout is None else dropout,
        availability=availability,
        latency_s=picked.get("latency_s", 0.0),
        per_example=speeds[0] == "seconds_per_example",
        recycle=recycle,
    )


# --- Slow-downs: random factors on the compute time of a visit -----------------------------------------


def factors_of(law: SlowdownColumns, rng: Draws) -> Array:
    """Return a factor for each row of `rng`, from compiled code if the draws are compiled."""
    drawn = np.atleast_1d(rng.normal() if law.law == draws.LOGNORMAL else rng.uniform())
    if rng.source is None or rng.source.name == "numpy":
        return np.array([draws.slowdown(*law, x) for x in drawn.tolist()])
    return np.asarray(rng.source.slowdowns(*law, drawn))


def lognormal_slowdown(sigma: float) -> LognormalSlowdown:
    """Return a factor exp(sigma z) on every visit, z standard normal."""
    return LognormalSlowdown(sigma)


@dataclass(frozen=True)
class LognormalSlowdown:
    """`exp(sigma * z)` with a standard normal z for every visit: median 1, mean exp(sigma**2 / 2)."""

    sigma: float

    def __post_init__(self) -> None:
        check_field(self, "sigma", "lognormal_slowdown sigma", high=50.0)

    def factor(self, rng: Draws) -> Array:
        return factors_of(self.to_columns(), rng)

    def to_columns(self) -> SlowdownColumns:
        return SlowdownColumns(draws.LOGNORMAL, self.sigma)

    def describe(self) -> str:
        return "lognormal slow-down"


def pareto_slowdown(shape: float) -> ParetoSlowdown:
    """Return a factor of at least 1 on every visit, above x with probability x**-shape."""
    return ParetoSlowdown(shape)


@dataclass(frozen=True)
class ParetoSlowdown:
    """A factor of at least 1 with the tail probability `x**-shape`: the heavy tail of stragglers."""

    shape: float

    def __post_init__(self) -> None:
        check_field(self, "shape", "pareto_slowdown shape", low=0.1)  # below, the largest factors overflow

    def factor(self, rng: Draws) -> Array:
        return factors_of(self.to_columns(), rng)

    def to_columns(self) -> SlowdownColumns:
        return SlowdownColumns(draws.PARETO, self.shape)

    def describe(self) -> str:
        return "Pareto slow-down"


@refuse_old_keywords("fs.devices.bimodal_slowdown")
def bimodal_slowdown(probability: float, *, slow_factor: float) -> BimodalSlowdown:
    """Return a factor `slow_factor` on a visit with this probability, else 1."""
    return BimodalSlowdown(probability, slow_factor=slow_factor)


@dataclass(frozen=True)
class BimodalSlowdown:
    """A factor `slow_factor` with a probability, else 1: a device that is sometimes busy."""

    probability: float
    _: KW_ONLY
    slow_factor: float

    def __post_init__(self) -> None:
        check_field(self, "probability", "bimodal_slowdown probability", high=1.0)
        check_field(self, "slow_factor", "bimodal_slowdown slow_factor")

    def factor(self, rng: Draws) -> Array:
        return factors_of(self.to_columns(), rng)

    def to_columns(self) -> SlowdownColumns:
        return SlowdownColumns(draws.BIMODAL, self.probability, self.slow_factor)

    def describe(self) -> str:
        return f"{self.probability:.3g} of visits {self.slow_factor:.3g} times slower"
