"""QSGD's quantiser with levels of fixed width or in Elias codes, and the lengths of its messages.

QSGD is the quantiser of Alistarh, Grubic, Li, Tomioka and Vojnovic (2017). With s levels, v_j becomes
sign(v_j) ||v|| l_j / s, where l_j is s |v_j| / ||v|| rounded up or down at random with the right mean.
`kernels/reference/qsgd.py` defines how the norm is rounded and which random number decides.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import log2, sqrt
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array, check_choice, invalid_argument, is_int
from fedsim.codecs.arguments import check_bytes, check_dim, check_values, refuse
from fedsim.errors import CorruptData, InvalidInput
from fedsim.kernels.reference import qsgd

MOST_LEVELS = 2**20  # the norm is a float32, and Elias lengths are looked up in a table


@dataclass(frozen=True)
class QSGD:
    """The norm, then for every coordinate a sign bit and the absolute level in the fewest bits that hold `levels`."""

    levels: int
    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _check_levels(self.levels))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        norm, level = _rounded(v, key, self.levels)
        width = self.levels.bit_length()
        words = np.abs(level) | (level < 0).astype(np.int64) << width
        return norm.astype("<f4").tobytes() + qsgd.pack(words, np.full(level.size, 1 + width))

    def decode(self, data: bytes, d: int) -> Array:
        data = check_bytes(data)
        d = check_dim(d)
        total, width = -(-self.length(d) // 8), self.levels.bit_length()
        if len(data) != total:
            raise CorruptData(f"a message of {len(data)} bytes: {d} coordinates take {total}")
        words = qsgd.unpack(data[4:], d, 1 + width)
        negative, size = words >> width == 1, words & (1 << width) - 1
        if (negative & (size == 0)).any():
            raise CorruptData("the message holds a negative zero, which is never sent")
        return _restored(_norm(data), np.where(negative, -size, size), self.levels)

    def bits(self, v: Array, key: Array | None = None) -> int:
        return self.length(check_values(v, 1).size)

    def length(self, d: int, dtype: npt.DTypeLike = "float64") -> int:
        return fixed_width_bits(d, self.levels)

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        return _quantised(values, keys, self.levels, None, "auto")

    def omega(self, d: int) -> float:
        d = check_dim(d)
        return min(d / self.levels**2, sqrt(d) / self.levels)


@dataclass(frozen=True)
class Elias:
    """QSGD with Elias codes.

    After the norm, "sparse" holds for every coordinate that is not zero its distance from the previous one, a sign bit
    and the level, and at the end the distance to the place after the last coordinate, which ends the message. "dense"
    holds for every coordinate the level plus one, and a sign bit unless it is zero. "auto" sends the shorter form; the
    norm's sign bit, otherwise unused, marks it.
    """

    levels: int
    _: KW_ONLY
    code: str = "omega"
    form: str = "auto"
    fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _check_levels(self.levels))
        _check_elias(self.code, self.form, ("auto", "sparse", "dense"))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        norm, level = _rounded(v, key, self.levels)
        form = self.form
        if form == "auto":
            sparse, dense = (qsgd.elias_bits(level, self.code, form) for form in ("sparse", "dense"))
            form = "dense" if dense < sparse else "sparse"
        words, widths = qsgd.levels_to_codes(level, self.code, form)
        signed = np.copysign(norm, -1 if form == "dense" else 1)
        return signed.astype("<f4").tobytes() + qsgd.pack(words, widths)

    def decode(self, data: bytes, d: int) -> Array:
        data = check_bytes(data)
        d = check_dim(d)
        longest = 4 + qsgd.most_bytes(d, self.levels, self.code)
        if not 4 <= len(data) <= longest:
            raise CorruptData(f"a message of {len(data)} bytes: {d} coordinates take 4 to {longest}")
        norm = _norm(data)
        form = "dense" if np.signbit(norm) else "sparse"
        if self.form not in ("auto", form):
            raise CorruptData(f"the message is {form}, not {self.form}: decode it with form='auto'")
        level = qsgd.codes_to_levels(data[4:], d, self.levels, self.code, form)
        return _restored(abs(norm), level, self.levels)

    def bits(self, v: Array, key: Array | None = None) -> int:
        _, level = _rounded(v, key, self.levels)
        return 32 + qsgd.elias_bits(level, self.code, self.form)

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        return _quantised(values, keys, self.levels, self.code, self.form)

    def omega(self, d: int) -> float:
        return QSGD(self.levels).omega(d)


def fixed_width_bits(d: int, levels: int) -> int:
    """Return 32 + d * ceil(log2(2 levels + 1)), the length of a QSGD message."""
    return 32 + check_dim(d) * (1 + _check_levels(levels).bit_length())


def elias_bound(d: int, levels: int) -> float:
    """Return the upper bound that papers plot for Elias-coded QSGD, without its terms of lower order."""
    s, d = _check_levels(levels), check_dim(d)
    return (3 + 1.5 * log2(2 * (s**2 + d) / (s * (s + sqrt(d))))) * s * (s + sqrt(d)) + 32


def expected_elias_bits(v: Array, levels: int, *, code: str = "omega", form: str = "sparse") -> float:
    """Return the exact mean of `Elias(levels, code=code, form=form).bits(v, key)` over the rounding.

    form="auto" is refused: the mean of the shorter length is not the shorter of the means.
    """
    _check_elias(code, form, ("sparse", "dense"))
    values, levels = check_values(v, 1)[None], _check_levels(levels)
    return 32 + qsgd.expected_elias_bits(values, _finite_norm(values), levels, code, form)


def _check_levels(levels: object) -> int:
    if not isinstance(levels, Integral) or not is_int(levels, 1, MOST_LEVELS):
        raise invalid_argument("levels={!r}", levels, f"choose an integer from 1 to {MOST_LEVELS}")
    return int(levels)


def _check_elias(code: str, form: str, forms: tuple[str, ...]) -> None:
    check_choice("code={!r}", code, tuple(qsgd.CODES), "choose 'omega' or 'gamma'")
    check_choice("form={!r}", form, forms, f"choose {' or '.join(map(repr, forms))}")


def _keys(keys: Array | None, rows: int) -> Array:
    if keys is None:
        raise InvalidInput("no key: stochastic rounding needs one row of rng.keys(...) for every vector")
    found = as_array(keys)
    table = np.empty(0) if found is None else np.atleast_2d(found)
    if table.shape != (rows, 4) or table.dtype != np.uint32:
        raise InvalidInput(f"keys {table.dtype} {table.shape}: {rows} vectors need uint32 ({rows}, 4)")
    return table


def _rounded(v: npt.ArrayLike, key: Array | None, levels: int) -> tuple[Array, Array]:
    """Return the norm, a float32 of shape (), and the signed levels (d,) of one vector."""
    values, key = check_values(v, 1)[None], _keys(key, 1)
    norm = _finite_norm(values)
    return norm[0], qsgd.rounded(values, norm, key, levels)[0]


def _finite_norm(values: Array) -> Array:
    norm = qsgd.wire_norm(values)
    if not np.isfinite(norm).all():
        refuse(values, ~np.isfinite(norm))
    return norm


def _quantised(
    values: npt.ArrayLike, keys: Array | None, levels: int, code: str | None, form: str
) -> tuple[Array, Array]:
    from fedsim.kernels.cpu.qsgd import quantise

    values = check_values(values, 2)
    arrived, bits = quantise(values, _keys(keys, len(values)), levels, code, form)
    if (bits < 0).any():
        refuse(values, bits < 0)
    return arrived, bits


def _norm(data: bytes) -> Any:
    norm = np.frombuffer(data[:4], "<f4").astype(np.float32)[0]
    if not np.isfinite(norm):
        raise CorruptData(f"the message holds the norm {norm}: a norm is finite")
    return norm


def _restored(norm: Array, level: Array, levels: int) -> Array:
    size = int(np.abs(level).max())
    if size > (levels if norm > 0 else 0) or np.signbit(norm):
        raise CorruptData(f"the message holds the norm {norm} and level {size} of {levels}: they do not agree")
    return qsgd.restored(np.asarray(norm), level, levels)
