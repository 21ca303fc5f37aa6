"""Per-client numbers: one for everybody, or a column with one row per client."""

from __future__ import annotations

import math

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_float_array
from fedsim.errors import InvalidInput
from fedsim.text import short_repr

Column = float | Array


def column(name: str, value: object, low: float = 0.0, high: float = math.inf) -> Column:
    """A float, or a read-only float64 column, with every number finite and in [low, high]."""
    numbers = as_float_array(value)
    if numbers is None:
        raise InvalidInput(f"{name}={short_repr(value)}: give a number, or one number per client")
    if numbers.ndim > 1 or numbers.size == 0:
        raise InvalidInput(
            f"{name} has shape {numbers.shape}: give a number, or one number per client, shape (clients,)"
        )
    wrong = ~(np.isfinite(numbers) & (numbers >= low) & (numbers <= high))
    if wrong.any():
        row = "" if numbers.ndim == 0 else f" of client {int(np.argmax(wrong))}"
        raise InvalidInput(f"{name}{row} is {numbers[wrong].flat[0]:g}: it has to be {_between(low, high)}")
    if numbers.ndim == 0:
        return float(numbers)
    numbers.flags.writeable = False
    return numbers


def number(name: str, value: object, low: float = 0.0, high: float = math.inf) -> float:
    """One finite number in [low, high]."""
    checked = column(name, value, low, high)
    if isinstance(checked, np.ndarray):
        raise InvalidInput(f"{name} has {len(checked)} values: give one number for all clients")
    return checked


def check_field(holder: object, field: str, name: str, low: float = 0.0, high: float = math.inf) -> None:
    """A field of a frozen dataclass as the float that it was checked to be."""
    object.__setattr__(holder, field, number(name, getattr(holder, field), low, high))


def pick(values: Column, rows: Array) -> Column:
    """The number everybody shares, or each row's own, (n,)."""
    if isinstance(values, float):
        return values
    if rows.size and (rows.min() < 0 or rows.max() >= len(values)):
        raise InvalidInput(
            f"client {rows.max()} is not among the {len(values)} rows of the devices: give one row per client"
        )
    return values[rows]


def length(values: object) -> int | None:
    """The number of rows of a column; None for a number that everybody shares."""
    return len(values) if isinstance(values, np.ndarray) else None


def duration(values: Column) -> str:
    """Seconds in words: `1 ms`, `2.5 s`, `8 h`, or the range of a column."""
    low, high = float(np.min(values)), float(np.max(values))
    return _seconds(low) if low == high else f"{_seconds(low)} to {_seconds(high)}"


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value == size or value >= (2 * size if size > 1 else 0.9995 * size):  # 90 s, not 1.5 min
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _between(low: float, high: float) -> str:
    if high < math.inf:
        return f"from {low:g} to {high:g}"
    return f"a finite number of at least {low:g}"


TINY = float(np.finfo(np.float64).tiny)  # the `low` of numbers that have to be above zero
