"""What goes on the wire: real bytes, decoded for real, and their exact number of bits.

    Identity()      the numbers as they are, in the scenario's dtype; Identity("float32") really rounds
    QSGD(levels)    a float32 norm and d levels of fixed width, 32 + d * ceil(log2(2 levels + 1)) bits
    Elias(levels)   the same norm and levels in Elias's codes: the shorter, the more levels are zero

QSGD is the quantiser of Alistarh, Grubic, Li, Tomioka and Vojnovic (2017): with s levels, v_j becomes
sign(v_j) ||v|| l_j / s, where l_j is s |v_j| / ||v|| rounded up or down at random so that the mean is v_j.
`kernels/quantise_reference.py` says how the norm is rounded and which random number decides.

Floats are little-endian; bits run from the most significant of each byte; the filling of the last byte is not
counted. All codecs have the same methods:

    encode(v, key)          the bytes of one vector; `key` is a row of `rng.keys`, needed where rounding is random
    decode(data, d)         the vector again, or CorruptData if `encode` cannot have made these bytes
    bits(v, key)            the exact length of that message
    quantise(values, keys)  what arrives of a batch (rows, d), in its dtype, and the bits, int64 (rows,), bytes unmade
    omega(d)                the variance factor: E||C(v) - v||^2 <= omega ||v||^2

If `fixed`, the length does not depend on the values, and `length(d, dtype)` tells it beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, sqrt
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from fedsim.errors import CorruptData, InvalidInput, NonFinite
from fedsim.kernels import bitstream
from fedsim.kernels import quantise_reference as reference

Array = npt.NDArray[Any]
MOST_LEVELS = 2**20  # the norm is a float32, and Elias lengths are looked up in a table
LARGEST = float(np.finfo(np.float32).max)


class Codec(Protocol):
    """What the rest of fedsim asks of a codec."""

    fixed: ClassVar[bool]

    def encode(self, v: Array, key: Array | None = None) -> bytes: ...
    def decode(self, data: bytes, d: int) -> Array: ...
    def bits(self, v: Array, key: Array | None = None) -> int: ...
    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]: ...
    def omega(self, d: int) -> float: ...


@dataclass(frozen=True)
class Identity:
    """The numbers themselves in `dtype`: None sends what the vector has, "float32" rounds to the nearest."""

    dtype: str | None = None
    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.dtype not in (None, "float32", "float64"):
            raise InvalidInput(f"Identity(dtype={self.dtype!r}): choose None, 'float32' or 'float64'")

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        sent = self._sent(_one(v))
        return sent.astype(sent.dtype.newbyteorder("<")).tobytes()

    def decode(self, data: bytes, d: int) -> Array:
        dtypes = [np.dtype(name) for name in ("float32", "float64") if self.dtype in (None, name)]
        for dtype in dtypes:
            if len(data) == _positive(d) * dtype.itemsize:
                v = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
                if not np.isfinite(v).all():
                    raise CorruptData("the message holds a NaN or an infinity, which are never sent")
                return v
        sizes = " or ".join(str(d * dtype.itemsize) for dtype in dtypes)
        raise CorruptData(f"a message of {len(data)} bytes: {d} numbers take {sizes}")

    def bits(self, v: Array, key: Array | None = None) -> int:
        sent = self._sent(_one(v))
        return 8 * sent.nbytes

    def length(self, d: int, dtype: npt.DTypeLike = "float64") -> int:
        return d * 8 * np.dtype(self.dtype or dtype).itemsize

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        values = _rows(values)
        sent = self._sent(values)
        return sent.astype(values.dtype, copy=False), np.full(len(values), 8 * sent.itemsize * values.shape[1])

    def omega(self, d: int) -> float:
        """Zero, but for "float32", which has a relative error of at most 2**-24 (and none on float32 vectors)."""
        return 2.0**-48 if self.dtype == "float32" else 0.0

    def _sent(self, values: Array) -> Array:
        with np.errstate(over="ignore"):
            sent = values.astype(self.dtype or values.dtype, copy=False)
        if not np.isfinite(sent).all():
            _refuse(values, ~np.isfinite(sent).all(axis=-1))
        return sent


@dataclass(frozen=True)
class QSGD:
    """Norm, then for every coordinate one sign bit and the absolute level in as few bits as hold `levels`."""

    levels: int
    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_levels(self.levels)

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        norm, level = _rounded(v, key, self.levels)
        words = np.abs(level) | (level < 0).astype(np.int64) << self.levels.bit_length()
        return norm.astype("<f4").tobytes() + bitstream.pack(words, np.full(level.size, self._width), fill=0)

    def decode(self, data: bytes, d: int) -> Array:
        total = 4 + -(-_positive(d) * self._width // 8)
        if len(data) != total:
            raise CorruptData(f"a message of {len(data)} bytes: {d} coordinates of {self._width} bits take {total}")
        words, filling = bitstream.unpack(data[4:], d, self._width)
        negative, size = words >> self.levels.bit_length() == 1, words & (1 << self.levels.bit_length()) - 1
        if filling.any() or (negative & (size == 0)).any():
            raise CorruptData("the message holds a negative zero or a filled-up last byte, which are never sent")
        return _restored(_norm(data), np.where(negative, -size, size), self.levels)

    def bits(self, v: Array, key: Array | None = None) -> int:
        return self.length(_one(v).size)

    def length(self, d: int, dtype: npt.DTypeLike = "float64") -> int:
        return fixed_width_bits(d, self.levels)

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        return _quantised(values, keys, self.levels, None, "auto")

    def omega(self, d: int) -> float:
        return min(d / self.levels**2, sqrt(d) / self.levels)

    @property
    def _width(self) -> int:
        return 1 + self.levels.bit_length()  # = ceil(log2(2 levels + 1))


@dataclass(frozen=True)
class Elias:
    """QSGD with Elias's codes.

    After the norm, "sparse" holds for every coordinate that is not zero its distance from the previous one, a sign
    bit and the level; "dense" holds for every coordinate the level plus one, and a sign bit unless it is zero.
    "auto" takes the shorter. There is no header: which form follows is told by the norm's sign bit, which a norm
    does not need (set for dense), and the filling of the last byte cannot be mistaken for a code.
    """

    levels: int
    code: str = "omega"
    form: str = "auto"
    fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_levels(self.levels)
        _check_elias(self.code, self.form, ("auto", "sparse", "dense"))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        norm, level = _rounded(v, key, self.levels)
        dense = self._dense(level)
        size, sign = np.abs(level), (level < 0).astype(np.int64)
        at = np.arange(level.size) if dense else np.flatnonzero(level)
        parts = [bitstream.elias(np.diff(at, prepend=-1), self.code)] if not dense else []
        parts += [(sign[at], (size[at] > 0).astype(np.int64)), bitstream.elias(size[at] + dense, self.code)]
        if dense:
            parts.reverse()
        words, widths = (np.stack(columns, axis=-1).ravel() for columns in zip(*parts, strict=True))
        head = np.copysign(norm, -1 if dense else 1).astype("<f4").tobytes()
        return head + bitstream.pack(words, widths, bitstream.FILL[self.code])

    def decode(self, data: bytes, d: int) -> Array:
        longest = 8 + _positive(d) * (int(bitstream.elias_lengths(self.levels + 1, self.code)[self.levels + 1]) + 3) // 8
        if not 4 <= len(data) <= longest:
            raise CorruptData(f"a message of {len(data)} bytes: {d} coordinates take 4 to {longest}")
        dense = data[3] >= 128
        if self.form == ("sparse" if dense else "dense"):
            raise CorruptData(f"the message is not in the {self.form} form: decode it with form='auto'")
        reader = bitstream.EliasReader(data[4:], self.code, max(d, self.levels + 1))
        level, at = np.zeros(d, np.int64), -1
        while at < d - 1 if dense else not reader.at_end():
            at += 1 if dense else reader.number()
            if at >= d:
                raise CorruptData(f"the message holds coordinate {at}: there are {d}")
            if dense:
                level[at] = reader.number() - 1
                level[at] *= 1 - 2 * reader.bit() if level[at] else 1
            else:
                level[at] = (1 - 2 * reader.bit()) * reader.number()
        if not reader.at_end():
            raise CorruptData(f"the message goes on after its {d} coordinates")
        return _restored(abs(_norm(data)), level, self.levels)

    def bits(self, v: Array, key: Array | None = None) -> int:
        _, level = _rounded(v, key, self.levels)
        return 32 + reference.elias_bits(level, self.code, self.form)

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        return _quantised(values, keys, self.levels, self.code, self.form)

    def omega(self, d: int) -> float:
        return min(d / self.levels**2, sqrt(d) / self.levels)

    def _dense(self, level: Array) -> bool:
        if self.form != "auto":
            return self.form == "dense"
        return reference.elias_bits(level, self.code, "dense") < reference.elias_bits(level, self.code, "sparse")
