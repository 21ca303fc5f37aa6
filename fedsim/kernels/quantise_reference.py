"""QSGD's stochastic rounding in plain NumPy: short, slow, and the oracle of `kernels/quantise.py`.

A row v becomes a norm and whole levels l_j in -s..s, to be read as norm * l_j / s.

- The norm that is sent is a float32: the Euclidean norm *rounded up*, so that no |v_j| exceeds it. The levels
  are relative to this very number, so that E[norm * l_j / s] = v_j whatever float32 could not hold.
- |l_j| = floor(s |v_j| / norm + u_j) with u_j = (w_j + 1/2) / 2**32, w_j being word j of the row's key, step 0.
  The chance of rounding up is the fractional part to within 2**-32, and zero for a whole number.
- Squares are added up in eight columns (coordinate mod 8) over the whole groups of eight, then the columns,
  then the coordinates left over: a fixed order that vector units like.
"""

from __future__ import annotations

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.kernels.bitstream import elias_length, elias_lengths

TINY = np.float32(2.0**-149)  # the least positive float32


def wire_norm(values: Array) -> Array:
    """The Euclidean norms rounded up to float32; inf or NaN where no finite float32 is large enough."""
    n, d = values.shape
    whole = d // 8 * 8
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(values, dtype=np.float64)
        groups = np.concatenate([np.zeros((n, 1, 8)), squares[:, :whole].reshape(n, -1, 8)], axis=1)
        c = np.cumsum(groups, axis=1)[:, -1].T  # cumsum, unlike sum, promises its order
        total = ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]))
        for j in range(whole, d):
            total = total + squares[:, j]
        norm = np.sqrt(total)
        rounded = norm.astype(np.float32)
        rounded = np.where(rounded < norm, np.nextafter(rounded, np.float32(np.inf)), rounded)
    vanished = (rounded == 0) & (values != 0).any(axis=1)  # the squares underflowed
    return np.where(vanished, TINY, rounded)


def relative(values: Array, norm: Array, levels: int) -> Array:
    """s |v| / norm, float64; zero where the norm is zero."""
    wide = norm.astype(np.float64)
    scale = np.divide(float(levels), wide, out=np.zeros_like(wide), where=wide > 0)
    return np.asarray(np.abs(values.astype(np.float64)) * scale[:, None])


def rounded(values: Array, norm: Array, keys: Array, levels: int) -> Array:
    """The signed levels, int64 (rows, d); every norm must be finite."""
    d = values.shape[1]
    u = (rng.words(keys, -(-d // 4))[:, :d].astype(np.float64) + 0.5) * 2.0**-32
    level = np.minimum(np.floor(relative(values, norm, levels) + u), float(levels))
    return np.where(values < 0, -level, level).astype(np.int64)


def restored(norm: Array, level: Array, levels: int) -> Array:
    """What the receiver makes of a norm and its levels, float64."""
    return np.asarray(level * (norm.astype(np.float64) / levels)[..., None] + 0.0)


def elias_bits(level: Array, code: str, form: str) -> int:
    """Exact length of one row's levels in Elias coding, without the norm."""
    size = np.abs(level)
    at = np.flatnonzero(size)
    gaps = np.diff(at, prepend=-1, append=level.size)  # the last one tells the end
    sparse = elias_length(gaps, code).sum() + len(at) + elias_length(size[at], code).sum()
    dense = elias_length(size + 1, code).sum() + len(at)
    return int({"sparse": sparse, "dense": dense, "auto": min(sparse, dense)}[form])


def quantise(values: Array, keys: Array, levels: int, code: str | None, form: str = "auto") -> tuple[Array, Array]:
    """What arrives, (rows, d), and the exact bits of every message, int64 (rows,); -1 where it cannot be sent.

    Without a `code` the levels have a fixed width.
    """
    n, d = values.shape
    norm = wire_norm(values)
    good = np.isfinite(norm)
    out, bits = np.full_like(values, np.nan), np.full(n, -1)
    level = rounded(values[good], norm[good], keys[good], levels)
    out[good] = restored(norm[good], level, levels)
    if code is None:
        bits[good] = 32 + d * (1 + levels.bit_length())
    else:
        bits[good] = [32 + elias_bits(row, code, form) for row in level]
    return out, bits


def expected_elias_bits(values: Array, norm: Array, levels: int, code: str, form: str) -> float:
    """The mean of `elias_bits` of one row (1, d) over the random rounding; form is "sparse" or "dense"."""
    ratio = np.minimum(relative(values, norm, levels)[0], levels)
    low = np.floor(ratio).astype(np.int64)
    up = ratio - low
    there = np.where(low > 0, 1.0, up)  # the chance that a coordinate is not zero
    bits = elias_lengths(levels + 2, code).astype(np.float64)  # bits[0] = 0
    if form == "dense":
        return float(there.sum() + ((1 - up) * bits[low + 1] + up * bits[low + 2]).sum())
    sizes = float(there.sum() + ((1 - up) * bits[low] + up * bits[low + 1]).sum())
    return sizes + _expected_gap_bits(np.append(there, 1.0), code)


def _expected_gap_bits(there: Array, code: str) -> float:
    """A code grows where its number reaches 1, 2, 4, ..., so add up the chances that the gaps do.

    The gap before the j-th place reaches g if that is taken, j >= g, and the g - 1 before it are all zero.
    """
    d, bits = len(there), elias_lengths(len(there), code).astype(np.float64)
    certain = np.concatenate([[0], np.cumsum(there == 1)])
    log_zero = np.concatenate([[0.0], np.cumsum(np.log1p(-np.where(there == 1, 0.0, there)))])
    total, gap = 0.0, 1
    while gap <= d:
        here, start = np.arange(gap - 1, d), np.arange(0, d - gap + 1)  # start:here is to be zero
        empty = np.exp(log_zero[here] - log_zero[start]) * (certain[here] == certain[start])
        total += float((bits[gap] - bits[gap // 2]) * (there[here] * empty).sum())
        gap *= 2
    return total
