"""Checks of the arguments of all codecs."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array, check_int, invalid_argument
from fedsim.errors import InvalidInput, NonFinite
from fedsim.text import short_repr


def check_dim(d: int) -> int:
    return check_int("d={}", d, 1, "a message holds at least one number, and at most 10**9", 10**9)


def check_bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise invalid_argument("decode({})", data, "a message is bytes, as encode() makes them")
    return bytes(data)


def check_values(values: npt.ArrayLike, rank: int) -> Array:
    """Return `values` as float32 or float64 of this rank."""
    array = as_array(values)
    if array is None or array.ndim != rank or array.shape[-1] == 0 or array.dtype.kind == "b":
        found = short_repr(values, 60) if array is None else f"values of shape {array.shape} and type {array.dtype}"
        raise InvalidInput(f"{found}: a codec takes real numbers (d,), a batch (rows, d)")
    return array.astype(np.float32 if array.dtype.str[1:] == "f4" else np.float64, copy=False)


def refuse(values: Array, bad: Array) -> NoReturn:
    """Raise NonFinite for the first number that cannot be sent; `bad` marks the rows."""
    row = int(np.flatnonzero(bad)[0])
    v, where = np.atleast_2d(values)[row], f"row {row}, " if values.ndim == 2 and len(values) > 1 else ""
    wrong = np.flatnonzero(~np.isfinite(v))
    if len(wrong):
        raise NonFinite(f"{where}coordinate {wrong[0]} is {v[wrong[0]]}: only finite numbers can be sent")
    raise NonFinite(f"{where}numbers up to {np.abs(v).max():.3g} exceed the largest float32 (3.4e38): scale them down")
