"""Checks of the arguments that algorithms have in common."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from fedsim.checks import as_array, as_float, check_choice, check_float, check_positive, invalid_argument, is_int
from fedsim.errors import InvalidInput
from fedsim.protocols import BatchSize, Codec, missing
from fedsim.text import short_str

MOST = 2**31 - 1  # keys of draws address more steps than this


def check_count(where: str, algorithm: object, name: str, least: int = 1) -> None:
    """Check an integer field and store it as an int: NumPy's small integers would overflow in products."""
    value = getattr(algorithm, name)
    if not isinstance(value, Integral) or not is_int(value, least, MOST):
        remedy = f"must be an integer of at least {least}" + f" and at most {MOST:,}" * (as_float(value) > MOST)
        if is_int(value, least, MOST):
            remedy = f"write the integer {int(value)}"
        raise invalid_argument(f"{where}({name}={{}})", value, remedy)
    _store(algorithm, name, int(value))


def check_number(where: str, algorithm: object, name: str, low: float = 0.0, high: float = math.inf) -> None:
    """Check a field that is a number from `low` to `high`."""
    bounds = f"between {low:g} and {high:g}" if high < math.inf else f"of at least {low:g}"
    value = check_float(f"{where}({name}={{}})", getattr(algorithm, name), low, high, f"must be a number {bounds}")
    _store(algorithm, name, value)


class Stepping(Protocol):
    """An algorithm with a step size."""

    @property
    def step_size(self) -> Any: ...


def check_step_size(where: str, algorithm: Stepping) -> None:
    if not callable(algorithm.step_size):
        remedy = "must be a positive number or a schedule (fs.schedules)"
        _store(algorithm, "step_size", check_positive(f"{where}(step_size={{}})", algorithm.step_size, remedy=remedy))
    elif isinstance(algorithm.step_size, type):
        raise invalid_argument(
            f"{where}(step_size={{}})", algorithm.step_size, "is a class; give a number or a schedule"
        )


def check_word(where: str, algorithm: object, name: str, *words: str | None, remedy: str = "") -> None:
    check_choice(f"{where}({name}={{!r}})", getattr(algorithm, name), words, remedy)


def check_codec(where: str, codec: Codec) -> None:
    if isinstance(codec, type) or missing(codec, Codec):
        raise invalid_argument(
            f"{where}(codec={{}})", codec, "give a codec such as fs.codecs.QSGD(10) or fs.codecs.Identity()"
        )


def _store(algorithm: object, name: str, value: float) -> None:
    """Store a number as an int or a float; a plain one stays as it was written."""
    if type(getattr(algorithm, name)) not in (int, float):
        object.__setattr__(algorithm, name, value)


def check_batch_size(where: str, batch_size: BatchSize) -> None:
    """Check a count, a fraction, or a list of counts; `Scenario` checks the length of the list."""
    if batch_size is None:
        return
    sizes = as_array(batch_size)
    if sizes is None or sizes.ndim > 1 or sizes.dtype.kind == "b" or not np.all((sizes > 0) & (sizes < MOST)):
        given = f"{where}: batch_size={short_str(batch_size)}"
        raise InvalidInput(f"{given}: a positive count, a fraction below 1, or one count per client")
    if sizes.dtype.kind == "f" and (sizes.ndim == 1 or (sizes >= 1 and sizes != np.floor(sizes))):
        raise InvalidInput(
            f"{where}: batch_size={short_str(batch_size)}: a fraction must be below 1, a count an integer"
        )
