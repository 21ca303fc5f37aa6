"""Per-client numbers: one number for all clients, or a column with one row per client."""

from __future__ import annotations

import math

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_float_array
from fedsim.errors import InvalidInput
from fedsim.text import seconds, short_repr

Column = float | Array
TINY = float(np.finfo(np.float64).tiny)  # the `low` of numbers that must be positive


def check_column(name: str, value: object, low: float = 0.0, high: float = math.inf) -> Column:
    """Return a float, or a read-only float64 column, with every number finite and in [low, high]."""
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
        bounds = f"from {low:g} to {high:g}" if high < math.inf else f"a finite number of at least {low:g}"
        raise InvalidInput(f"{name}{row} is {numbers[wrong].flat[0]:g}: it must be {bounds}")
    if numbers.ndim == 0:
        return float(numbers)
    numbers.flags.writeable = False
    return numbers


def check_number(name: str, value: object, low: float = 0.0, high: float = math.inf) -> float:
    """Return one finite number in [low, high]."""
    checked = check_column(name, value, low, high)
    if isinstance(checked, np.ndarray):
        raise InvalidInput(f"{name} has {len(checked)} values: give one number for all clients")
    return checked


def check_field(part: object, field: str, name: str, low: float = 0.0, high: float = math.inf) -> None:
    """Store a field of a frozen dataclass as a finite float in [low, high]."""
    object.__setattr__(part, field, check_number(name, getattr(part, field), low, high))


def rows_of(values: Column, rows: Array) -> Column:
    """Return the number that all clients share, or the values of these rows, (n,)."""
    if isinstance(values, float):
        return values
    if rows.size and (rows.min() < 0 or rows.max() >= len(values)):
        raise InvalidInput(
            f"client {rows.max()} is not among the {len(values)} rows of the devices: give one row per client"
        )
    return values[rows]


def row_count(values: object) -> int | None:
    """Return the number of rows of a column; None for a number that all clients share."""
    return len(values) if isinstance(values, np.ndarray) else None


def duration(values: Column) -> str:
    """Return seconds as text: `1 ms`, `2.5 s`, `8h00m`, or the range of a column."""
    low, high = float(np.min(values)), float(np.max(values))
    return seconds(low) if low == high else f"{seconds(low)} to {seconds(high)}"
