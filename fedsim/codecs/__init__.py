"""Codecs: messages as bytes, their decoding and their exact number of bits.

    Identity()      the numbers as they are, in the scenario's dtype; Identity("float32") rounds them
    QSGD(levels)    a float32 norm and d levels of fixed width, 32 + d * ceil(log2(2 levels + 1)) bits
    Elias(levels)   the same norm and levels in Elias codes, which are shorter the more levels are zero

Floats are little-endian; bits run from the most significant of each byte; the padding of the last byte is not counted.
All codecs have the same methods:

    encode(v, key)          the bytes of one vector; `key` is a row of `rng.keys`, for stochastic rounding
    decode(data, d)         the vector; CorruptData if `encode` cannot have made these bytes
    bits(v, key)            the exact length of that message
    quantise(values, keys)  decoded messages (rows, d) in the same dtype and int64 bits (rows,), without making bytes
    omega(d)                the variance factor: E||C(v) - v||^2 <= omega ||v||^2

If `fixed` is true the length does not depend on the values: `length(d, dtype)` returns it.
"""

from fedsim.codecs.identity import Identity
from fedsim.codecs.qsgd import QSGD, Elias, elias_bound, expected_elias_bits, fixed_width_bits

__all__ = ["QSGD", "Elias", "Identity", "elias_bound", "expected_elias_bits", "fixed_width_bits"]
