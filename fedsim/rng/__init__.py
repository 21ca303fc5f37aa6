"""Random numbers as a pure function of an address; there is no state and no "next" number.

The address of a draw is `(seed, stream, replica, client, round, visit, step, lane)`. Two applications of
Philox4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011) turn it into bits:

1. `keys` encrypts (client, round, replica, stream and visit) under the seed. Philox is a bijection of its
   counter, so different jobs of one seed *cannot* share a key.
2. The four words of the key then encrypt (block, step), four words at a time.

This is the NumPy reference. `kernels.cpu.draws` has the same bits, compiled; `elementary` defines logarithm, sine and
cosine for both.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Numbers
from fedsim.checks import as_array, check_allocation, check_int, is_int
from fedsim.errors import InvalidInput
from fedsim.rng.elementary import log64, radius32, sincos32, sincos64
from fedsim.text import short_repr, short_str

__all__ = ["Draws", "Stream", "choice", "integers", "keys", "normal", "uniform"]

U32, U64 = np.uint32, np.uint64


class Stream(IntEnum):
    """The purpose of a draw. Streams never overlap, so a new draw in one does not change the others' bits."""

    NOISE = 1  # private noise of a client
    SHARED = 2  # noise shared by all clients of a replica
    BATCH = 3  # rows of a minibatch
    SELECT = 4  # selected clients
    SERVER = 5  # noise of the server
    COMPUTE = 6  # slow-down of a device in a round
    DROPOUT = 7  # whether and when a device drops out
    TIE = 8  # order of events at the same instant
    CODEC = 9  # stochastic rounding on the wire
    AVAILABILITY = 10  # when a device is online
    DATA = 11  # data that depends on the model, and synthetic data sets
    USER = 12  # for code outside the package
    COIN = 13  # acceptance of a proposal
    START = 14  # initial point of a replica
    MATCHING = 15  # neighbours that exchange models in a round of gossip
    RESAMPLE = 31  # bootstrap intervals of finished results


# --- Philox4x32-10 -------------------------------------------------------------------------------

_MUL = (U64(0xD2511F53), U64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = U64(0xFFFFFFFF)


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any]) -> tuple[Array, Array, Array, Array]:
    """Return ten rounds of Philox4x32 on broadcast arrays of 32-bit words."""
    c0, c1, c2, c3 = (np.asarray(c, U64) for c in counter)
    k0, k1 = (np.asarray(k, U64) for k in key)
    for i in range(10):
        left, right = _MUL[0] * c0, _MUL[1] * c2
        step0, step1 = U64(i * _WEYL[0] & 0xFFFFFFFF), U64(i * _WEYL[1] & 0xFFFFFFFF)
        c0, c1, c2, c3 = (
            (right >> U64(32)) ^ c1 ^ ((k0 + step0) & _LOW),
            right & _LOW,
            (left >> U64(32)) ^ c3 ^ ((k1 + step1) & _LOW),
            left & _LOW,
        )
    return c0.astype(U32), c1.astype(U32), c2.astype(U32), c3.astype(U32)


def check_seed(seed: int) -> int:
    """Return the seed as an int, or raise InvalidInput."""
    if not is_int(seed) or int(seed) >= 2**64:
        raise InvalidInput(f"seed={short_repr(seed)}: a seed is an integer from 0 to 2**64 - 1")
    return int(seed)


def check_address(**columns: object) -> None:
    """Refuse numbers that do not fit into a key: their high bits would be lost."""
    for name, value in columns.items():
        numbers, bits = as_array(value), 24 if name == "visit" else 32
        if numbers is None or (numbers.dtype.kind == "f" and not (numbers == np.floor(numbers)).all()):
            raise InvalidInput(f"{name}={short_repr(value)}: give integers from 0 to 2**{bits} - 1")
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < 2**bits):
            worst = numbers.min() if numbers.min() < 0 else numbers.max()
            raise InvalidInput(f"{name}={worst}: keys hold 0 to 2**{bits} - 1; number {name}s in this range")


def keys(
    seed: int, stream: int, *, replica: Numbers = 0, client: Numbers = 0, round: Numbers = 0, visit: Numbers = 0
) -> Array:
    """Return one Philox key per broadcast row of (replica, client, round, visit), uint32 (rows, 4)."""
    seed = check_seed(seed)
    check_address(replica=replica, client=client, round=round, visit=visit)
    stream = check_int("stream={}", stream, 0, "choose one of rng.Stream, or a number below 256", 255)
    try:
        np.broadcast_shapes(*(np.shape(column) for column in (replica, client, round, visit)))
    except ValueError:
        raise InvalidInput(
            "replica, client, round and visit have columns of different lengths; give one row each"
        ) from None
    replica, client, round = (np.asarray(as_array(column), U64) for column in (replica, client, round))
    purpose = np.asarray(as_array(visit), U64) << U64(8) | U64(stream)
    words = philox((client, round, replica, purpose), (seed & 0xFFFFFFFF, seed >> 32))
    return np.stack([np.atleast_1d(w) for w in np.broadcast_arrays(*words)], axis=-1)


def _checked(key: Array, lanes: int, step: int, dtype: npt.DTypeLike = np.float64) -> tuple[int, int, bool]:
    """Return `lanes` and `step` as ints and whether `dtype` is float32, or raise InvalidInput."""
    if type(key) is not np.ndarray or key.ndim != 2 or key.shape[1] != 4 or key.dtype != U32:
        raise InvalidInput(f"key={short_repr(key)}: use rng.keys(...), uint32 (rows, 4)")
    lanes = check_int("lanes={}", lanes, 0, most=2**40)
    check_allocation(f"{len(key):,} rows of {lanes:,} numbers", 8.0 * len(key) * lanes, "draw fewer at a time")
    if not (dtype is np.float64 or dtype is np.float32 or short_str(dtype) in ("float32", "float64")):
        raise InvalidInput(f"dtype={short_repr(dtype)}: choose 'float32' or 'float64'")
    return lanes, check_int("step={}", step, 0, most=2**63 - 1), np.dtype(dtype) == np.float32


def words(key: Array, blocks: int, step: int = 0, first: int = 0) -> Array:
    """Return the raw 32-bit words `first*4 ... (first+blocks)*4` of a step, uint32 (rows, 4 * blocks)."""
    block = np.arange(first, first + blocks, dtype=U64)
    high = (block >> U64(32)) + U64(step)
    k = key[:, None, :]
    out = philox((block & _LOW, high, k[..., 2], k[..., 3]), (k[..., 0], k[..., 1]))
    return np.stack(out, axis=-1).reshape(len(key), 4 * blocks)


# --- Uniforms, normals, integers ------------------------------------------------------------------


def unit32(word: Array) -> Array:
    """Convert a word to a float32 in (0, 1), exactly (k + 1/2) / 2**23."""
    return np.asarray(((word >> U32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23))


def scaled(high: Array, low: Array, below: npt.ArrayLike) -> Array:
    """Convert two words to an integer in [0, below)."""
    n = np.asarray(below, U64)
    return ((high * n + (low * n >> U64(32))) >> U64(32)).astype(np.int64)


def unit64(high: Array, low: Array) -> Array:
    """Convert two words to a float64 in (0, 1), exactly (k + 1/2) / 2**52."""
    coarse = (high >> U32(1)).astype(np.int32).astype(np.float64) * 2.0**-31
    return np.asarray(coarse + ((low >> U32(11)).astype(np.int32).astype(np.float64) + 0.5) * 2.0**-52)


def uniform(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64) -> Array:
    """Draw uniforms strictly inside (0, 1), shape (rows, lanes)."""
    lanes, step, single = _checked(key, lanes, step, dtype)
    if single:
        return unit32(words(key, -(-lanes // 4), step)[:, :lanes])
    w = words(key, -(-lanes // 2), step).reshape(len(key), 2 * -(-lanes // 2), 2)[:, :lanes]
    return unit64(w[..., 0], w[..., 1])


def normal(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64, call: int = 0) -> Array:
    """Draw standard normals, shape (rows, lanes).

    Box-Muller makes four float32 or two float64 normals of a block of four words. Numbers of normals continue from step
    to step (number = step * lanes + lane), so that no word of a block is lost between steps. Calls with different
    numbers of lanes under one key need different values of `call`.
    """
    lanes, step, single = _checked(key, lanes, step, dtype)
    if type(call) is not int or not 0 <= call < 2**32:
        call = check_int("call={}", call, 0, most=2**32 - 1)
    per = 4 if single else 2
    begin, end = step * lanes, (step + 1) * lanes
    first = begin // per
    blocks = -(-end // per) - first
    w = words(key, blocks, call, first).reshape(len(key), blocks, 4)
    if per == 4:
        radius = radius32(w[..., 0::2])
        cosine, sine = sincos32(w[..., 1::2])
    else:
        radius = np.sqrt(-2.0 * log64(unit64(w[..., 0], w[..., 1])))[..., None]
        cosine, sine = (part[..., None] for part in sincos64(w[..., 2], w[..., 3]))
    pairs = np.stack([radius * cosine, radius * sine], axis=-1)  # (rows, blocks, pairs, 2)
    return pairs.reshape(len(key), blocks * per)[:, begin - first * per : end - first * per]


def integers(key: Array, lanes: int, below: npt.ArrayLike, step: int = 0) -> Array:
    """Draw integers in [0, below), int64 (rows, lanes); `below` < 2**32 broadcasts to that shape.

    64 random bits are scaled down, so that probabilities differ by at most below / 2**64 relatively.
    """
    lanes, step, _ = _checked(key, lanes, step)
    bounds = as_array(below)
    if bounds is None or (bounds.size and not (bounds.min() >= 1 and bounds.max() < 2**32)):
        raise InvalidInput(f"integers below {short_repr(below)}: give integers from 1 to 2**32 - 1")
    try:
        np.broadcast_to(bounds, (len(key), lanes))
    except ValueError:
        raise InvalidInput(f"integers below an array {bounds.shape}: there are {len(key)} rows of {lanes}") from None
    w = words(key, -(-lanes // 2), step).reshape(len(key), 2 * -(-lanes // 2), 2)[:, :lanes]
    return scaled(w[..., 0], w[..., 1], below)


def choice(key: Array, population: npt.ArrayLike, size: int, step: int = 0) -> Array:
    """Draw `size` different numbers of range(population) in random order, int64 (rows, size).

    This is a Fisher-Yates shuffle that stops after `size` swaps. Only the swaps are stored: position p holds the value
    that the latest earlier swap with p moved there, or p itself.
    """
    size, step, _ = _checked(key, size, step)
    found = as_array(population)
    if found is None or found.shape not in ((), (1,), (len(key),)) or not np.all((found >= 0) & (found < 2**32)):
        raise InvalidInput(f"choice out of {short_repr(population)}: give an integer below 2**32, or one per row")
    n = np.broadcast_to(found.astype(np.int64), (len(key),))
    if size > n.min(initial=size):
        raise InvalidInput(f"choice of {size} out of {n.min()}: ask for at most {n.min()}")
    place = np.arange(size)
    target = integers(key, size, n[:, None] - place, step) + place if size else np.zeros((len(key), 0), int)
    chosen = target.copy()
    moved = np.zeros_like(target)  # what swap j left at position target[:, j]
    for j in range(size):
        here = np.full(len(key), j)
        for i in range(j):
            here = np.where(target[:, i] == j, moved[:, i], here)
            chosen[:, j] = np.where(target[:, i] == target[:, j], moved[:, i], chosen[:, j])
        moved[:, j] = here
    return chosen


@dataclass
class Draws:
    """The `rng` argument of policies, devices and servers: one row of draws per key.

    It counts its calls, so two calls differ. It is created for every (replica, round), so the draws of a function
    depend on its own body only. `source` is this module or `kernels.cpu.draws`.
    """

    key: Array  # uint32 (rows, 4)
    single: bool = False  # drop the axis of rows: there is one row
    source: Any = None
    calls: int = field(default=0, init=False)

    def uniform(self, lanes: int | None = None) -> Any:
        """Draw uniforms in (0, 1): (rows,), or (rows, lanes)."""
        return self._shape(self._source.uniform(self.key, _lanes(lanes), self._next()), lanes)

    def normal(self, lanes: int | None = None, dtype: npt.DTypeLike = np.float64) -> Any:
        """Draw standard normals: (rows,), or (rows, lanes)."""
        return self._shape(self._source.normal(self.key, _lanes(lanes), 0, dtype, self._next()), lanes)

    def integers(self, below: npt.ArrayLike, lanes: int | None = None) -> Any:
        """Draw integers in [0, below): (rows,), or (rows, lanes)."""
        return self._shape(self._source.integers(self.key, _lanes(lanes), below, self._next()), lanes)

    def choice(self, population: int, size: int) -> Any:
        """Draw `size` different numbers of range(population): (rows, size)."""
        return self._shape(self._source.choice(self.key, population, size, self._next()), size)

    @property
    def _source(self) -> Any:
        return self.source or _THIS

    def _next(self) -> int:
        self.calls += 1
        return self.calls - 1

    def _shape(self, drawn: Array, lanes: int | None) -> Any:
        if lanes is None:
            drawn = drawn[:, 0]
        return drawn[0] if self.single else drawn


def _lanes(lanes: int | None) -> int:
    return 1 if lanes is None else lanes


_THIS = sys.modules[__name__]
