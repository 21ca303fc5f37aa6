"""Checks of the arguments that algorithms have in common, so that each says the same thing the same way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedsim.errors import InvalidInput, shown
from fedsim.problems.shards import rows_per_batch

__all__ = ["check_batch_size", "check_count", "check_number", "check_step_size", "rows_per_batch"]


def check_count(where: str, name: str, value: Any, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InvalidInput(f"{where}({name}={value}): must be a whole number of at least {least}")


def check_number(where: str, name: str, value: Any, low: float = 0.0, high: float = math.inf) -> None:
    if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and low <= value <= high):
        bounds = f"between {low:g} and {high:g}" if high < math.inf else f"of at least {low:g}"
        raise InvalidInput(f"{where}({name}={value}): must be a number {bounds}")


def check_step_size(where: str, step_size: Any) -> None:
    if callable(step_size):
        return
    if not (isinstance(step_size, (int, float, np.number)) and math.isfinite(step_size) and step_size > 0):
        raise InvalidInput(f"{where}(step_size={step_size}): must be a positive number or a schedule (fs.schedules)")


def check_batch_size(where: str, batch_size: Any, clients: int | None = None) -> None:
    """Refuse a batch size that is no positive count, fraction, or list of counts."""
    if batch_size is None:
        return
    try:
        sizes = np.asarray(batch_size)
    except ValueError:  # a ragged list
        sizes = np.empty(0, object)
    if sizes.ndim > 1 or sizes.dtype.kind not in "iuf" or not np.all((sizes > 0) & (sizes < np.inf)):
        given = f"{where}: batch_size={shown(batch_size)}"
        raise InvalidInput(f"{given}: a positive count, a fraction below 1, or one count per client")
    if sizes.dtype.kind == "f" and (sizes.ndim == 1 or (sizes >= 1 and sizes != np.floor(sizes))):
        raise InvalidInput(f"{where}: batch_size={batch_size}: a fraction must be below 1, a count a whole number")
    if clients is not None and sizes.ndim == 1 and len(sizes) != clients:
        raise InvalidInput(
            f"{where}: {len(sizes)} batch sizes for {clients} clients; give one number or one per client"
        )
