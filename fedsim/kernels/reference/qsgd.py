"""QSGD in NumPy: stochastic rounding, bit streams with the most significant bit first, and Elias codes.

Elias codes of integers (P. Elias, 1975):

- gamma: floor(log2 k) zeros, then k in binary: 2 floor(log2 k) + 1 bits.
- omega: a 0 ends the code; before it is k in binary, before that the length of k minus one in binary, and so on
  down to one: 1 bit for 1, 3 for 2..3, 6 for 4..7, 7 for 8..15, 11 for 16..31.

Both lengths depend on k through floor(log2 k) alone.

A row v becomes a norm and integer levels l_j in -s..s, decoded as norm * l_j / s.

- The norm on the wire is a float32: the Euclidean norm *rounded up*, so that no |v_j| exceeds it. The levels are
  relative to this number, so that E[norm * l_j / s] = v_j in spite of the rounding.
- |l_j| = floor(s |v_j| / norm + u_j) with u_j = (w_j + 1/2) / 2**32, w_j being word j of the row's key, step 0.
  The probability of rounding up is the fractional part to within 2**-32, and zero for an integer.
- Squares are added in eight columns (coordinate mod 8) over the complete groups of eight, then the columns, then the
  remaining coordinates: a fixed order that suits vector units.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.errors import CorruptData

CODES = ("omega", "gamma")


def _omega_length(log2: int) -> int:
    return 1 if log2 == 0 else log2 + 1 + _omega_length(log2.bit_length() - 1)


_LENGTHS = {
    "omega": np.array([_omega_length(m) for m in range(64)]),
    "gamma": np.array([2 * m + 1 for m in range(64)]),
}


def floor_log2(k: Array) -> Array:
    """Return floor(log2 k), exactly for 1 <= k < 2**53."""
    return np.asarray(np.frexp(np.asarray(k, np.float64))[1] - 1, np.int64)


def elias_length(k: Array, code: str) -> Array:
    """Return the bits of the code of each k >= 1."""
    return np.asarray(_LENGTHS[code][floor_log2(k)])


def elias_lengths(largest: int, code: str) -> Array:
    """Return the bits of the codes of 0 (none), 1, 2, ... up to at least `largest`, uint8."""
    return _elias_lengths(max(largest, 255).bit_length(), code)


@lru_cache(maxsize=16)
def _elias_lengths(bit_length: int, code: str) -> Array:
    table = np.repeat(_LENGTHS[code][:bit_length], 2 ** np.arange(bit_length))
    return np.concatenate([[0], table]).astype(np.uint8)


def elias(k: Array, code: str) -> tuple[Array, Array]:
    """Return the codes of integers 1 <= k < 2**40, as binary numbers, and their lengths in bits."""
    k = np.asarray(k, np.int64)
    width = elias_length(k, code)
    if code == "gamma":
        return k, width
    word, used, rest = np.zeros_like(k), np.ones_like(k), k
    while (rest > 1).any():
        more = rest > 1
        word = np.where(more, word | rest << used, word)
        size = floor_log2(rest) + 1
        used, rest = np.where(more, used + size, used), np.where(more, size - 1, rest)
    return word, width


def pack(words: Array, widths: Array) -> bytes:
    """Concatenate the lowest bits of each word; pad the last byte with zeros."""
    ends = np.cumsum(widths)
    total = int(ends[-1]) if len(ends) else 0
    bits = np.zeros(-(-total // 8) * 8, np.uint8)
    for place in range(int(widths.max(initial=0))):  # from the last bit of every word to the first
        long = widths > place
        bits[ends[long] - 1 - place] = words[long] >> place & 1
    return np.packbits(bits).tobytes()


def unpack(data: bytes, count: int, width: int) -> Array:
    """Return `count` numbers of `width` bits; the rest must be zero. The caller has checked the number of bytes."""
    bits = np.unpackbits(np.frombuffer(data, np.uint8))
    if bits[count * width :].any():
        raise CorruptData("the last byte of the message is not padded with zeros: it was altered")
    out = np.zeros(count, np.int64)
    for place in range(width):
        out = out << 1 | bits[place : count * width : width]
    return out


def levels_to_codes(level: Array, code: str, form: str) -> tuple[Array, Array]:
    """Return words and widths for `pack`.

    "sparse": gap, sign and size of every level that is not zero, then the gap to the place after the last one.
    "dense": size + 1 of every level, followed by its sign unless it is zero.
    """
    if form == "dense":
        parts = [elias(np.abs(level) + 1, code), (level < 0, level != 0)]
    else:
        at = np.flatnonzero(level)
        some = level[at]
        parts = [
            elias(np.diff(at, prepend=-1), code),
            (some < 0, np.ones_like(some)),
            elias(np.abs(some), code),
        ]
    words, widths = (np.stack(columns, axis=-1).ravel().astype(np.int64) for columns in zip(*parts, strict=True))
    if form == "sparse":
        end, width = elias(np.array([level.size - at.max(initial=-1)]), code)
        words, widths = np.append(words, end), np.append(widths, width)
    return words, widths


def most_bytes(d: int, levels: int, code: str) -> int:
    """Return an upper bound of a message's bytes: gaps add up to d + 1, at most 1.5 bits for each unit."""
    return (d * (3 + int(elias_lengths(levels + 1, code)[levels + 1])) + 2) // 8 + 1


def codes_to_levels(data: bytes, d: int, levels: int, code: str, form: str) -> Array:
    """Invert `levels_to_codes` and `pack`; raise CorruptData if they cannot have made these bytes."""
    reader = EliasReader(data, code, max(d, levels) + 1)
    level, at = np.zeros(d, np.int64), -1
    if form == "dense":
        for at in range(d):
            size = reader.number() - 1
            level[at] = -size if size and reader.bit() else size
    else:
        while (at := at + reader.number()) < d:
            negative, size = reader.bit(), reader.number()
            level[at] = -size if negative else size
        if at > d:
            raise CorruptData(f"the message holds coordinate {at}: there are {d}, numbered from 0")
    reader.finish()
    return level


class EliasReader:
    """A reader of codes; a number above `limit` or a missing bit raises CorruptData."""

    def __init__(self, data: bytes, code: str, limit: int) -> None:
        self.text = (np.unpackbits(np.frombuffer(data, np.uint8)) + ord("0")).tobytes()
        self.code, self.limit, self.at = code, limit, 0

    def bit(self) -> int:
        return self._take(1)

    def number(self) -> int:
        if self.code == "gamma":
            one = self.text.find(b"1", self.at)
            zeros = (one if one >= 0 else len(self.text)) - self.at
            self.at += zeros
            return self._take(zeros + 1)
        value = 1
        while self.text[self.at : self.at + 1] == b"1":  # the first bit of the next, longer number
            value = self._take(value + 1)
        self._take(1)
        return value

    def finish(self) -> None:
        """Check that only padding is left."""
        rest = self.text[self.at : self.at + 8]
        if len(rest) == 8 or b"1" in rest:
            raise CorruptData("the message continues after its last coordinate: it was altered")

    def _take(self, bits: int) -> int:
        if self.at + bits > len(self.text):
            raise CorruptData("the message ends in the middle of a number: it was cut short or altered")
        # The width is checked first, so that a forged one makes no number of a million digits.
        value = int(self.text[self.at : self.at + bits], 2) if bits <= self.limit.bit_length() else self.limit + 1
        if value > self.limit:
            raise CorruptData(f"the message holds a number above {self.limit}, which cannot occur in it")
        self.at += bits
        return value


TINY = np.float32(2.0**-149)  # the least positive float32


def wire_norm(values: Array) -> Array:
    """Return the Euclidean norms rounded up to float32; inf or NaN if no finite float32 is large enough."""
    n, d = values.shape
    complete = d // 8 * 8
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(values, dtype=np.float64)
        groups = np.concatenate([np.zeros((n, 1, 8)), squares[:, :complete].reshape(n, -1, 8)], axis=1)
        c = np.cumsum(groups, axis=1)[:, -1].T  # cumsum, unlike sum, promises its order
        total = ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]))
        for j in range(complete, d):
            total = total + squares[:, j]
        norm = np.sqrt(total)
        rounded = norm.astype(np.float32)
        rounded = np.where(rounded < norm, np.nextafter(rounded, np.float32(np.inf)), rounded)
    vanished = (rounded == 0) & (values != 0).any(axis=1)  # the squares underflowed
    return np.where(vanished, TINY, rounded)


def relative(values: Array, norm: Array, levels: int) -> Array:
    """Return s |v| / norm, float64; zero where the norm is zero."""
    norm64 = norm.astype(np.float64)
    scale = np.divide(float(levels), norm64, out=np.zeros_like(norm64), where=norm64 > 0)
    return np.asarray(np.abs(values.astype(np.float64)) * scale[:, None])


def rounded(values: Array, norm: Array, keys: Array, levels: int) -> Array:
    """Return the signed levels, int64 (rows, d); every norm must be finite."""
    d = values.shape[1]
    u = (rng.words(keys, -(-d // 4))[:, :d].astype(np.float64) + 0.5) * 2.0**-32
    level = np.minimum(np.floor(relative(values, norm, levels) + u), float(levels))
    return np.where(values < 0, -level, level).astype(np.int64)


def restored(norm: Array, level: Array, levels: int) -> Array:
    """Return the decoded numbers of a norm and its levels, float64."""
    return np.asarray(level * (norm.astype(np.float64) / levels)[..., None] + 0.0)


def elias_bits(level: Array, code: str, form: str) -> int:
    """Return the exact length of one row's levels in Elias coding, without the norm."""
    size = np.abs(level)
    at = np.flatnonzero(size)
    gaps = np.diff(at, prepend=-1, append=level.size)  # the last one ends the message
    sparse = elias_length(gaps, code).sum() + len(at) + elias_length(size[at], code).sum()
    dense = elias_length(size + 1, code).sum() + len(at)
    return int({"sparse": sparse, "dense": dense, "auto": min(sparse, dense)}[form])


def quantise(values: Array, keys: Array, levels: int, code: str | None, form: str = "auto") -> tuple[Array, Array]:
    """Return decoded messages (rows, d) and the exact bits of each, int64 (rows,); -1 where a row cannot be sent.

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
    """Return the mean of `elias_bits` of one row (1, d) over the random rounding; form is "sparse" or "dense"."""
    ratio = np.minimum(relative(values, norm, levels)[0], levels)
    low = np.floor(ratio).astype(np.int64)
    up = ratio - low
    nonzero = np.where(low > 0, 1.0, up)  # the probability that a coordinate is not zero
    bits = elias_lengths(levels + 2, code).astype(np.float64)  # bits[0] = 0
    if form == "dense":
        return float(nonzero.sum() + ((1 - up) * bits[low + 1] + up * bits[low + 2]).sum())
    sizes = float(nonzero.sum() + ((1 - up) * bits[low] + up * bits[low + 1]).sum())
    return sizes + _expected_gap_bits(np.append(nonzero, 1.0), code)


def _expected_gap_bits(nonzero: Array, code: str) -> float:
    """Return the mean bits of the gaps: codes get longer at 1, 2, 4, ..., so sum the probabilities of reaching these.

    The gap before the j-th place reaches g if that place is not zero, j >= g, and the g - 1 before it are all zero.
    """
    d, bits = len(nonzero), elias_lengths(len(nonzero), code).astype(np.float64)
    certain = np.concatenate([[0], np.cumsum(nonzero == 1)])
    log_zero = np.concatenate([[0.0], np.cumsum(np.log1p(-np.where(nonzero == 1, 0.0, nonzero)))])
    total, gap = 0.0, 1
    while gap <= d:
        here, start = np.arange(gap - 1, d), np.arange(0, d - gap + 1)  # start:here must be zero
        empty = np.exp(log_zero[here] - log_zero[start]) * (certain[here] == certain[start])
        total += float((bits[gap] - bits[gap // 2]) * (nonzero[here] * empty).sum())
        gap *= 2
    return total
