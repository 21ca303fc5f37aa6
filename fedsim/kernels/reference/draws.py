"""Keyed random numbers in NumPy: those of `fedsim.rng`, and two functions that write flat columns."""

from __future__ import annotations

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.rng import choice, integers, keys, normal, uniform, words

__all__ = ["choice", "choose_rows", "integers", "keys", "keys_into", "normal", "uniform", "words"]


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    """Choose start[i + 1] - start[i] different numbers below population[i] for each row i, in one flat array."""
    out = np.empty(start[-1], np.int64)
    for i in range(len(key)):
        size = int(start[i + 1] - start[i])
        out[start[i] : start[i + 1]] = rng.choice(key[i : i + 1], population[i], size, step)[0]
    return out


def keys_into(
    seed: np.uint64, stream: np.uint64, replica: Array, client: Array, round: Array, visit: Array, out: Array
) -> int:
    """Write the keys of int64 columns into `out`; a column has 1 or len(out) rows. Return 0 if all numbers fit."""
    out[:] = rng.keys(int(seed), int(stream), replica=replica, client=client, round=round, visit=visit)
    return 0
