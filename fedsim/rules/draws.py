"""Keyed random numbers, one at a time: the addresses and the bits of `fedsim.rng`.

Integers wrap at 64 bits in machine code and do not in Python. Masks make both agree: + - * << & | ^ are the same modulo
2**64, and `(x >> 32) & MASK` reads bits below 64 only. Only here may a Python integer exceed 63 bits.
"""

from __future__ import annotations

from math import factorial, sqrt
from typing import NamedTuple

import numpy as np

from fedsim.rng.elementary import COS64, LN2_HIGH, LN2_LOW, LOG64, SIN64

MASK = 0xFFFFFFFF
EXP64 = tuple(1.0 / factorial(k) for k in range(12, -1, -1))
ROUND_EVEN = 6755399441055744.0  # 1.5 * 2**52: adding and subtracting it rounds to an integer
QUARTER_PI = 0.7853981633974483
TO_MINUS_31, TO_MINUS_51, TO_MINUS_52 = 2.0**-31, 2.0**-51, 2.0**-52

NO_SLOWDOWN, LOGNORMAL, PARETO, BIMODAL = 0, 1, 2, 3  # laws of a factor on compute time


class Key(NamedTuple):
    """The four 32-bit words of a Philox key."""

    w0: int
    w1: int
    w2: int
    w3: int


def philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> Key:
    """Return the four words of a counter under a key: Philox4x32-10."""
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = ((p1 >> 32) ^ c1 ^ k0) & MASK, p1 & MASK
        c2, c3 = ((p0 >> 32) ^ c3 ^ k1) & MASK, p0 & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return Key(c0, c1, c2, c3)


def key_of(
    seed_low: int, seed_high: int, stream: int, replica: int, client: int, round: int, visit: int
) -> Key:  # fmt: skip
    """Return the key of an address, `rng.keys`; the seed's two words come apart, so that both fit 63 bits."""
    return philox(client, round, replica, (visit << 8) | stream, seed_low, seed_high)


def words(key: Key, block: int, step: int) -> Key:
    """Return the four words of a block under a key, `rng.words`."""
    return philox(block, step, key.w2, key.w3, key.w0, key.w1)


def unit(high: int, low: int) -> float:
    """Return a float64 in (0, 1) from two words."""
    return float(high >> 1) * TO_MINUS_31 + (float(low >> 11) + 0.5) * TO_MINUS_52


def uniform(key: Key, step: int) -> float:
    """Return the first uniform of a step: `rng.uniform(key, 1, step)`."""
    w = words(key, 0, step)
    return unit(w.w0, w.w1)


def uniform_at(key: Key, lane: int, step: int) -> float:
    """Return the uniform of a lane: `rng.uniform(key, lane + 1, step)[lane]`."""
    w = words(key, lane >> 1, step)
    return unit(w.w0, w.w1) if lane & 1 == 0 else unit(w.w2, w.w3)


def index_below(key: Key, lane: int, step: int, below: int) -> int:
    """Return an integer in [0, below), below < 2**31: `rng.integers(key, lane + 1, below, step)[lane]`."""
    w = words(key, lane >> 1, step)
    high, low = (w.w0, w.w1) if lane & 1 == 0 else (w.w2, w.w3)
    return (high * below + ((low * below) >> 32)) >> 32


def candidate(seed_low: int, seed_high: int, stream: int, replica: int, number: int, left: int) -> int:
    """Return a place among the idle asynchronous clients that are left, for draw `number` of a free place."""
    return index_below(key_of(seed_low, seed_high, stream, replica, 0, number, 0), 0, left, left)


def normal(key: Key) -> float:
    """Return the first standard normal: `rng.normal(key, 1)`."""
    w = words(key, 0, 0)
    return sqrt(-2.0 * log(unit(w.w0, w.w1))) * cosine(w.w2, w.w3)


def exponential(u: float) -> float:
    """Return a unit exponential from a uniform in (0, 1)."""
    return -log(u)


def slowdown(law: int, a: float, b: float, drawn: float) -> float:
    """Return the factor on a visit's compute time, from a standard normal for LOGNORMAL, else from a uniform."""
    if law == LOGNORMAL:
        return exp(a * drawn)
    if law == PARETO:
        return exp(exponential(drawn) / a)
    if law == BIMODAL:
        return b if drawn < a else 1.0
    return 1.0


def log(x: float) -> float:
    """Return the natural logarithm of a number in (0, 1), after fdlibm."""
    bits = int(np.float64(x).view(np.int64)) + 0x00095F6200000000  # so that the mantissa lies in [sqrt(1/2), sqrt(2))
    k = float((bits >> 52) - 1023)
    f = float(np.int64((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E00000000).view(np.float64)) - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = LOG64[0] * z + LOG64[1]
    r = r * z + LOG64[2]
    r = r * z + LOG64[3]
    r = r * z + LOG64[4]
    r = r * z + LOG64[5]
    r = r * z + LOG64[6]
    r = r * z
    half = 0.5 * f * f
    return k * LN2_HIGH - ((half - (s * (half + r) + k * LN2_LOW)) - f)


def exp(x: float) -> float:
    """Return e**x, with x clipped to where the result is a normal number; nan stays nan."""
    if x != x:
        return x
    clipped = x if x > -708.0 else -708.0
    clipped = clipped if clipped < 709.0 else 709.0
    k = (clipped * 1.4426950408889634 + ROUND_EVEN) - ROUND_EVEN
    r = (clipped - k * LN2_HIGH) - k * LN2_LOW
    p = EXP64[0] * r + EXP64[1]
    p = p * r + EXP64[2]
    p = p * r + EXP64[3]
    p = p * r + EXP64[4]
    p = p * r + EXP64[5]
    p = p * r + EXP64[6]
    p = p * r + EXP64[7]
    p = p * r + EXP64[8]
    p = p * r + EXP64[9]
    p = p * r + EXP64[10]
    p = p * r + EXP64[11]
    p = p * r + EXP64[12]
    return p * float(np.int64((int(k) + 1023) << 52).view(np.float64))


def cosine(high: int, low: int) -> float:
    """Return the cosine of a uniform angle: two bits name the quadrant, the others the angle inside it."""
    shifted = (high << 2) & MASK
    signed = shifted - 0x100000000 if shifted >= 0x80000000 else shifted
    x = (float(signed) * TO_MINUS_31 + float(low >> 11) * TO_MINUS_51) * QUARTER_PI
    z = x * x
    quadrant = high >> 30
    if quadrant & 1 == 1:
        s = SIN64[0] * z + SIN64[1]
        s = s * z + SIN64[2]
        s = s * z + SIN64[3]
        s = s * z + SIN64[4]
        s = s * z + SIN64[5]
        first = x + x * z * s
    else:
        c = COS64[0] * z + COS64[1]
        c = c * z + COS64[2]
        c = c * z + COS64[3]
        c = c * z + COS64[4]
        c = c * z + COS64[5]
        first = (1.0 - 0.5 * z) + z * z * c
    return -first if quadrant == 1 or quadrant == 2 else first
