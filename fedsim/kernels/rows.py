"""Rows out of a table of data, as the numbers that a model sees: gathered and converted in one go."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.elementary import jit


@jit
def _convert(x, rows, scale, shift, out):
    for r in range(len(rows)):
        source, row = x[rows[r]], out[r]
        for i in range(len(scale)):
            row[i] = source[i]  # into the precision of the run first: a product of mixed types would be a double
        for i in range(len(scale)):
            row[i] = row[i] * scale[i] + shift[i]


def gather(x: Array, rows: Array, dtype: np.dtype[Any], scale: Array | None, shift: Array | None) -> Array:
    """scale * x[rows] + shift, column by column; without a scale the rows themselves."""
    if scale is None or shift is None:
        return np.asarray(x[rows], dtype)
    out = np.empty((len(rows), x.shape[1]), dtype)
    _convert(x, rows, scale.astype(dtype, copy=False), shift.astype(dtype, copy=False), out)
    return out
