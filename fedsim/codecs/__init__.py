"""What goes on the wire: real bytes, decoded for real, and their exact number of bits.

    Identity()      the numbers as they are, in the scenario's dtype; Identity("float32") really rounds
    QSGD(levels)    a float32 norm and d levels of fixed width, 32 + d * ceil(log2(2 levels + 1)) bits
    Elias(levels)   the same norm and levels in Elias's codes: the shorter, the more levels are zero

QSGD is the quantiser of Alistarh, Grubic, Li, Tomioka and Vojnovic (2017): with s levels, v_j becomes
sign(v_j) ||v|| l_j / s, where l_j is s |v_j| / ||v|| rounded up or down at random so that the mean is v_j.
`kernels/quantise_reference.py` says how the norm is rounded and which random number decides.

Floats are little-endian; bits run from the most significant of each byte; the filling of the last byte is not
counted. All codecs have the same methods:

    encode(v, key)          the bytes of one vector; `key` is a row of `rng.keys`, for rounding at random
    decode(data, d)         the vector again, or CorruptData if `encode` cannot have made these bytes
    bits(v, key)            the exact length of that message
    quantise(values, keys)  what arrives of (rows, d), in the same dtype, and int64 bits (rows,): no bytes made
    omega(d)                the variance factor: E||C(v) - v||^2 <= omega ||v||^2

If `fixed`, the length does not depend on the values, and `length(d, dtype)` tells it beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, sqrt
from numbers import Integral
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array, check_choice, check_int, invalid_argument, is_int
from fedsim.errors import CorruptData, InvalidInput, NonFinite
from fedsim.kernels.reference import qsgd
from fedsim.kernels.reference import qsgd as reference
from fedsim.text import short_repr

MOST_LEVELS = 2**20  # the norm is a float32, and Elias lengths are looked up in a table


@dataclass(frozen=True)
class Identity:
    """The numbers themselves in `dtype`: None sends what the vector has, "float32" rounds to the nearest."""

    dtype: str | None = None
    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("Identity(dtype={!r})", self.dtype, (None, "float32", "float64"))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        sent = self._sent(_real(v, 1))
        return sent.astype(sent.dtype.newbyteorder("<")).tobytes()

    def decode(self, data: bytes, d: int) -> Array:
        data, d = _bytes(data), _positive(d)
        dtypes = [np.dtype(name) for name in ("float32", "float64") if self.dtype in (None, name)]
        for dtype in dtypes:
            if len(data) == d * dtype.itemsize:
                v = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
                if not np.isfinite(v).all():
                    raise CorruptData("the message holds a NaN or an infinity, which are never sent")
                return v
        sizes = " or ".join(str(d * dtype.itemsize) for dtype in dtypes)
        raise CorruptData(f"a message of {len(data)} bytes: {d} numbers take {sizes}")

    def bits(self, v: Array, key: Array | None = None) -> int:
        return 8 * self._sent(_real(v, 1)).nbytes

    def length(self, d: int, dtype: npt.DTypeLike = "float64") -> int:
        return d * 8 * np.dtype(self.dtype or dtype).itemsize

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        values = _real(values, 2)
        sent = self._sent(values)
        return sent.astype(values.dtype, copy=False), np.full(len(values), 8 * sent.itemsize * values.shape[1])

    def omega(self, d: int) -> float:
        """Zero, but for "float32": a relative error of at most 2**-24, squared."""
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
        object.__setattr__(self, "levels", _whole(self.levels))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        norm, level = _rounded(v, key, self.levels)
        width = self.levels.bit_length()
        words = np.abs(level) | (level < 0).astype(np.int64) << width
        return norm.astype("<f4").tobytes() + qsgd.pack(words, np.full(level.size, 1 + width))

    def decode(self, data: bytes, d: int) -> Array:
        data = _bytes(data)
        d = _positive(d)
        total, width = -(-self.length(d) // 8), self.levels.bit_length()
        if len(data) != total:
            raise CorruptData(f"a message of {len(data)} bytes: {d} coordinates take {total}")
        words = qsgd.unpack(data[4:], d, 1 + width)
        negative, size = words >> width == 1, words & (1 << width) - 1
        if (negative & (size == 0)).any():
            raise CorruptData("the message holds a negative zero, which is never sent")
        return _restored(_norm(data), np.where(negative, -size, size), self.levels)

    def bits(self, v: Array, key: Array | None = None) -> int:
        return self.length(_real(v, 1).size)

    def length(self, d: int, dtype: npt.DTypeLike = "float64") -> int:
        return fixed_width_bits(d, self.levels)

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        return _quantised(values, keys, self.levels, None, "auto")

    def omega(self, d: int) -> float:
        d = _positive(d)
        return min(d / self.levels**2, sqrt(d) / self.levels)


@dataclass(frozen=True)
class Elias:
    """QSGD with Elias's codes.

    After the norm, "sparse" holds for every coordinate that is not zero its distance from the previous one, a
    sign bit and the level, and at the end the distance to the place after the last coordinate, without which
    nobody could tell where to stop; "dense" holds for every coordinate the level plus one, and a sign bit
    unless it is zero. "auto" takes the shorter, and the norm's sign bit, idle otherwise, tells which.
    """

    levels: int
    code: str = "omega"
    form: str = "auto"
    fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _whole(self.levels))
        _check_elias(self.code, self.form, ("auto", "sparse", "dense"))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        norm, level = _rounded(v, key, self.levels)
        form = self.form
        if form == "auto":
            sparse, dense = (reference.elias_bits(level, self.code, form) for form in ("sparse", "dense"))
            form = "dense" if dense < sparse else "sparse"
        words, widths = qsgd.levels_to_codes(level, self.code, form)
        signed = np.copysign(norm, -1 if form == "dense" else 1)
        return signed.astype("<f4").tobytes() + qsgd.pack(words, widths)

    def decode(self, data: bytes, d: int) -> Array:
        data = _bytes(data)
        d = _positive(d)
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
        return 32 + reference.elias_bits(level, self.code, self.form)

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        return _quantised(values, keys, self.levels, self.code, self.form)

    def omega(self, d: int) -> float:
        return QSGD(self.levels).omega(d)


# --- Lengths on paper ------------------------------------------------------------------------------


def fixed_width_bits(d: int, levels: int) -> int:
    """32 + d * ceil(log2(2 levels + 1)): what QSGD really sends, a sign bit and the level as it is."""
    return 32 + _positive(d) * (1 + _whole(levels).bit_length())


def elias_bound(d: int, levels: int) -> float:
    """The upper bound that papers plot for Elias-coded QSGD, without its terms of lower order."""
    s, d = _whole(levels), _positive(d)
    return (3 + 1.5 * log2(2 * (s**2 + d) / (s * (s + sqrt(d))))) * s * (s + sqrt(d)) + 32


def expected_elias_bits(v: Array, levels: int, *, code: str = "omega", form: str = "sparse") -> float:
    """The mean of `Elias(levels, code, form).bits(v, key)` over the random rounding, exactly.

    There is none for form="auto", where the mean of the shorter length is not the shorter of the means.
    """
    _check_elias(code, form, ("sparse", "dense"))
    values, levels = _real(v, 1)[None], _whole(levels)
    return 32 + reference.expected_elias_bits(values, _finite_norm(values), levels, code, form)


# --- What comes in ---------------------------------------------------------------------------------


def _whole(levels: object) -> int:
    if not isinstance(levels, Integral) or not is_int(levels, 1, MOST_LEVELS):
        raise invalid_argument("levels={!r}", levels, f"choose an integer from 1 to {MOST_LEVELS}")
    return int(levels)


def _check_elias(code: str, form: str, forms: tuple[str, ...]) -> None:
    check_choice("code={!r}", code, tuple(qsgd.CODES), "choose 'omega' or 'gamma'")
    check_choice("form={!r}", form, forms, f"choose {' or '.join(map(repr, forms))}")


def _positive(d: int) -> int:
    return check_int("d={}", d, 1, "a message holds at least one number, and at most 10**9", 10**9)


def _bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise invalid_argument("decode({})", data, "a message is bytes, as encode() makes them")
    return bytes(data)


def _real(values: npt.ArrayLike, rank: int) -> Array:
    array = as_array(values)
    if array is None or array.ndim != rank or array.shape[-1] == 0 or array.dtype.kind == "b":
        found = short_repr(values, 60) if array is None else f"values of shape {array.shape} and type {array.dtype}"
        raise InvalidInput(f"{found}: a codec takes real numbers (d,), a batch (rows, d)")
    return array.astype(np.float32 if array.dtype.str[1:] == "f4" else np.float64, copy=False)


def _keys(keys: Array | None, rows: int) -> Array:
    if keys is None:
        raise InvalidInput("no key: stochastic rounding needs one row of rng.keys(...) for every vector")
    found = as_array(keys)
    table = np.empty(0) if found is None else np.atleast_2d(found)
    if table.shape != (rows, 4) or table.dtype != np.uint32:
        raise InvalidInput(f"keys {table.dtype} {table.shape}: {rows} vectors need uint32 ({rows}, 4)")
    return table


def _rounded(v: npt.ArrayLike, key: Array | None, levels: int) -> tuple[Array, Array]:
    """The norm, a float32 of shape (), and the signed levels (d,) of one vector."""
    values, key = _real(v, 1)[None], _keys(key, 1)
    norm = _finite_norm(values)
    return norm[0], reference.rounded(values, norm, key, levels)[0]


def _finite_norm(values: Array) -> Array:
    norm = reference.wire_norm(values)
    if not np.isfinite(norm).all():
        _refuse(values, ~np.isfinite(norm))
    return norm


def _quantised(
    values: npt.ArrayLike, keys: Array | None, levels: int, code: str | None, form: str
) -> tuple[Array, Array]:
    from fedsim.kernels.cpu.qsgd import quantise

    values = _real(values, 2)
    arrived, bits = quantise(values, _keys(keys, len(values)), levels, code, form)
    if (bits < 0).any():
        _refuse(values, bits < 0)
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
    return reference.restored(np.asarray(norm), level, levels)


def _refuse(values: Array, bad: Array) -> NoReturn:
    """Say which number cannot be sent; `bad` marks the rows."""
    row = int(np.flatnonzero(bad)[0])
    v, where = np.atleast_2d(values)[row], f"row {row}, " if values.ndim == 2 and len(values) > 1 else ""
    wrong = np.flatnonzero(~np.isfinite(v))
    if len(wrong):
        raise NonFinite(f"{where}coordinate {wrong[0]} is {v[wrong[0]]}: only finite numbers can be sent")
    raise NonFinite(f"{where}numbers up to {np.abs(v).max():.3g} leave float32 (3.4e38): scale them down")
