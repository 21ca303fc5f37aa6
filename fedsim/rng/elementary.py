"""exp, log, and Box-Muller's radius and direction in NumPy, in a fixed order of operations.

`kernels.cpu.elementary` has the same bits. The results of a libm may differ in the last place between machines.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array

U32, U64 = np.uint32, np.uint64


def fma32(a: Array, b: npt.ArrayLike, c: npt.ArrayLike) -> Array:
    """Return a * b + c of float32 numbers, rounded once, as a fused multiply-add does.

    The product is exact in float64. The sum is rounded to odd there, which makes the second rounding harmless (Boldo
    and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Transactions on Computers 57, 2008).
    """
    product, c = np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + c)
    back = total - product
    lost = (product - (total - back)) + (c - back)
    bits = total.view(np.int64)
    even = (lost != 0) & ((bits & 1) == 0)
    odd = bits + np.where(even, np.where((lost > 0) == (total > 0), 1, -1), 0)
    return odd.view(np.float64).astype(np.float32)


def radius32(word: Array) -> Array:
    """Return sqrt(-2 log u) to 1e-7, for u = (word / 2 + 1/2) / 2**31.

    With u = 2**e (1 + m) it is sqrt(-2 (e log 2 + m) + m**2 P(m)).
    """
    f = np.float32
    x = (word >> U32(1)).astype(np.int32).astype(f) + f(0.5)
    bits = x.view(np.int32) + np.int32(0x3F800000 - 0x3F3504F3)  # so that 1 + m ends up near one
    e = ((bits >> np.int32(23)) - np.int32(127 + 31)).astype(f)
    m = ((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(f) - f(1)
    z = m * m
    c = [f(x) for x in RADIUS32]  # Estrin's order: half as deep as Horner's
    low = fma32(fma32(m, c[3], c[2]), z, fma32(m, c[1], c[0]))
    high = fma32(fma32(m, c[7], c[6]), z, fma32(m, c[5], c[4]))
    near = fma32(fma32(high, z * z, low), z, f(-2) * m)
    return np.asarray(np.sqrt(fma32(e, f(MINUS_2_LN2), near)))


def log64(x: Array) -> Array:
    """Return the natural logarithm of normal positive float64, after fdlibm; NumPy's depends on the CPU."""
    bits = x.view(np.int64) + np.int64((0x3FF00000 - 0x3FE6A09E) << 32)
    k = ((bits >> np.int64(52)) - np.int64(1023)).astype(np.int32).astype(np.float64)
    f = ((bits & np.int64(0x000FFFFFFFFFFFFF)) + np.int64(0x3FE6A09E << 32)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = np.full_like(z, LOG64[0])
    for c in LOG64[1:]:
        r = r * z + c
    r = r * z
    half = 0.5 * f * f
    return np.asarray(k * LN2_HIGH - ((half - (s * (half + r) + k * LN2_LOW)) - f))


def exp(x: Array) -> Array:
    """Return e**x, independent of the libm; x is clipped to where the result is a normal number."""
    if x.dtype == np.float32:
        f = np.float32
        x = np.clip(x, f(-87.0), f(88.0))
        k = (x * f(1.44269504) + f(12582912.0)) - f(12582912.0)
        r = (x - k * f(0.693359375)) - k * f(-2.12194440e-4)
        p = np.full_like(r, f(EXP32[0]))
        for c in EXP32[1:]:
            p = p * r + f(c)
        p = p * r * r + r + f(1)
        return np.asarray(p * ((k.astype(np.int32) + np.int32(127)) << np.int32(23)).view(f))
    x = np.clip(x, -708.0, 709.0)
    k = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = np.full_like(r, EXP64[0])
    for c in EXP64[1:]:
        p = p * r + c
    return np.asarray(p * ((k.astype(np.int64) + np.int64(1023)) << np.int64(52)).view(np.float64))


def sincos32(word: Array) -> tuple[Array, Array]:
    """Return cosine and sine of a uniform angle: two bits are the quadrant, thirty the angle inside it."""
    f = np.float32
    x = (word << U32(2)).view(np.int32).astype(f) * f(np.pi / 4 * 2.0**-31)
    z = x * x
    s = fma32(fma32(fma32(z, f(SIN32[0]), f(SIN32[1])), z, f(SIN32[2])), z * x, x)
    c = fma32(fma32(z, f(COS32[0]), f(COS32[1])), z, f(COS32[2]))
    c = fma32(fma32(c, z, f(-0.5)), z, f(1))
    return rotate(c, s, word >> U32(30))


def sincos64(high: Array, low: Array) -> tuple[Array, Array]:
    """Return cosine and sine of a uniform angle, float64."""
    x = (high << U32(2)).view(np.int32).astype(np.float64) * 2.0**-31
    x = (x + (low >> U32(11)).astype(np.int32).astype(np.float64) * 2.0**-51) * (np.pi / 4)
    z = x * x
    s, c = np.full_like(z, SIN64[0]), np.full_like(z, COS64[0])
    for a, b in zip(SIN64[1:], COS64[1:], strict=True):
        s, c = s * z + a, c * z + b
    return rotate((1.0 - 0.5 * z) + z * z * c, x + x * z * s, high >> U32(30))


def rotate(c: Array, s: Array, quadrant: Array) -> tuple[Array, Array]:
    """Rotate (cosine, sine) by a number of right angles."""
    swap = (quadrant & U32(1)) != 0
    first, second = np.where(swap, s, c), np.where(swap, c, s)
    return (
        np.where((quadrant == 1) | (quadrant == 2), -first, first),
        np.where(quadrant >= 2, -second, second),
    )


MINUS_2_LN2 = -1.3862943611198906
RADIUS32 = (  # minimax for (2 m - 2 log(1 + m)) / m**2 between sqrt(1/2) - 1 and sqrt(2) - 1, lowest power first
    0.9999998211860657, -0.6666783690452576, 0.5000360012054443, -0.3992637097835541, 0.331397145986557,
    -0.29813095927238464, 0.28617823123931885, -0.17535458505153656,
)  # fmt: skip
LOG64 = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip
EXP64 = tuple(1.0 / factorial(k) for k in range(12, -1, -1))
EXP32 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
SIN32 = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS32 = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
SIN64 = (
    1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
    -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01,
)  # fmt: skip
COS64 = (
    -1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
    2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02,
)  # fmt: skip
