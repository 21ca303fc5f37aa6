"""Rows out of a table of data, as the numbers that a model sees: gathered and converted in one go."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.elementary import jit

KEPT = 2**22  # bytes of a buffer that a thread keeps
STRIP = 16  # rows copied at once, before they are converted
_own = threading.local()


@jit
def _convert(x, rows, scale, shift, strip, out):
    for begin in range(0, len(rows), len(strip)):
        end = min(begin + len(strip), len(rows))
        for r in range(begin, end):  # copied first, nothing else: many rows are then on their way from memory at once
            source, held = x[rows[r]], strip[r - begin]
            for i in range(len(scale)):
                held[i] = source[i]
        for r in range(begin, end):
            held, row = strip[r - begin], out[r]
            for i in range(len(scale)):
                row[i] = held[i]  # into the precision of the run first: a product of mixed types would be a double
            for i in range(len(scale)):
                row[i] = row[i] * scale[i] + shift[i]


@jit
def fetch(x, y, first, rows, begin, n, scale, shift, out, labels):
    """n of a client's rows and labels, from rows[begin] on or, where none are chosen, from its row `begin` on.

    They become numbers of the precision of `out` and are scaled then, as by `gather`; an empty scale: as they are.
    """
    for r in range(n):
        at = first + (rows[begin + r] if len(rows) else begin + r)
        labels[r] = y[at]
        source, row = x[at], out[r]
        for i in range(x.shape[1]):
            row[i] = source[i]
        for i in range(len(scale)):
            row[i] = row[i] * scale[i] + shift[i]


def gather(x: Array, rows: Array, dtype: np.dtype[Any], scale: Array | None, shift: Array | None) -> Array:
    """scale * x[rows] + shift, column by column; without a scale the rows themselves.

    It stands in a buffer of the thread's own and holds until the next call: fresh memory would cost as much again.
    """
    if scale is None or shift is None:
        return np.asarray(x[rows], dtype)
    out = _buffer(len(rows), x.shape[1], dtype)
    strip = np.empty((STRIP, x.shape[1]), x.dtype)
    _convert(x, rows, scale.astype(dtype, copy=False), shift.astype(dtype, copy=False), strip, out)
    return out


def _buffer(rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
    size = rows * columns * dtype.itemsize
    if size > KEPT:
        return np.empty((rows, columns), dtype)
    if "bytes" not in vars(_own) or len(_own.bytes) < size:
        _own.bytes = np.empty(size, np.uint8)
    return np.asarray(_own.bytes[:size].view(dtype).reshape(rows, columns))
