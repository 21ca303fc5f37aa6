"""Keyed random numbers on the device: normals and choices of rows.

Keys and the few draws that select clients are computed on the CPU, where their arguments are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.kernels.cpu.draws import choice, integers, keys, keys_into, uniform
from fedsim.kernels.cuda.device import empty, get, put, run

__all__ = [
    "choice", "choose_rows", "choose_rows_on_device", "integers", "keys", "keys_into", "normal", "uniform", "words",
]  # fmt: skip


def words(key: Array, blocks: int, step: int = 0, first: int = 0) -> Array:
    """Return the raw 32-bit words `first*4 ... (first+blocks)*4` of a step, uint32 (rows, 4 * blocks)."""
    out = empty((len(key), 4 * blocks), np.uint32)
    run(
        "words", np.float64, len(key) * blocks,
        np.int64(len(key)), np.int64(blocks), put(key, np.uint32), np.int64(first), np.uint32(step), out,
    )  # fmt: skip
    return get(out)


def normal(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64, call: int = 0) -> Array:
    """Draw standard normals, shape (rows, lanes); see `fedsim.rng.normal`."""
    per = 4 if np.dtype(dtype) == np.float32 else 2
    begin, end = step * lanes, (step + 1) * lanes
    blocks = -(-end // per) - begin // per
    out = empty((len(key), lanes), dtype)
    run(
        "normals", dtype, len(key) * blocks,
        np.int64(len(key)), np.int64(blocks), np.int64(lanes), put(key, np.uint32), np.int64(begin),
        np.uint32(call), out,
    )  # fmt: skip
    return get(out)


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    """Choose start[i + 1] - start[i] different numbers below population[i] for each row i, in one flat array."""
    return get(choose_rows_on_device(key, population, start, step))


def choose_rows_on_device(key: Array, population: Array, start: Array, step: int) -> Any:
    """Return the result of `choose_rows` as an array of the device."""
    total = int(start[-1])
    out, position, value = empty(total, np.int64), empty(2 * total, np.int64), empty(2 * total, np.int64)
    run(
        "choose_rows", np.float64, len(key),
        np.int64(len(key)), put(key, np.uint32), put(population, np.int64), put(start, np.int64),
        np.uint32(step), position, value, out,
    )  # fmt: skip
    return out
