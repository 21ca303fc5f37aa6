"""From words to uniforms, and to Box-Muller's radius and direction: NumPy, in a fixed order of operations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array

U32, U64 = np.uint32, np.uint64


def unit32(word: Array) -> Array:
    """One word to a float32 in (0, 1) with 23 bits and a half, exactly."""
    return np.asarray(((word >> U32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23))


def scaled(high: Array, low: Array, below: npt.ArrayLike) -> Array:
    """Two words to a whole number in [0, below)."""
    n = np.asarray(below, U64)
    return ((high * n + (low * n >> U64(32))) >> U64(32)).astype(np.int64)


def unit64(high: Array, low: Array) -> Array:
    """Two words to a float64 in (0, 1) with 52 bits and a half, exactly."""
    coarse = (high >> U32(1)).astype(np.int32).astype(np.float64) * 2.0**-31
    return np.asarray(coarse + ((low >> U32(11)).astype(np.int32).astype(np.float64) + 0.5) * 2.0**-52)


def radius32(word: Array) -> Array:
    f = np.float32
    unit = ((word >> U32(1)).astype(np.int32).astype(f) + f(0.5)) * f(2.0**-31)
    return np.sqrt(f(-2.0) * log32(unit))


def log32(x: Array) -> Array:
    """Natural logarithm of float32 in (0, 1], polynomial of the Cephes library."""
    f = np.float32
    bits = x.view(np.int32) + np.int32(0x3F800000 - 0x3F3504F3)  # so that the mantissa ends up near one
    e = ((bits >> np.int32(23)) - np.int32(127)).astype(f)
    m = ((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(f) - f(1)
    z = m * m
    q = z * z
    c = [f(x) for x in LOG32]
    near = (c[8] + c[7] * m) + (c[6] + c[5] * m) * z  # Estrin's order: half as deep as Horner's, so nobody waits
    far = (c[4] + c[3] * m) + (c[2] + c[1] * m) * z
    y = (near + q * (far + q * c[0])) * (m * z) + (e * f(-2.12194440e-4) - f(0.5) * z)
    return np.asarray((m + y) + e * f(0.693359375))


def log64(x: Array) -> Array:
    """Natural logarithm of float64 in (0, 1), after fdlibm."""
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


def sincos32(word: Array) -> tuple[Array, Array]:
    """Cosine and sine of a uniform angle: two bits name the quadrant, thirty the angle inside it."""
    f = np.float32
    x = (word << U32(2)).view(np.int32).astype(f) * f(np.pi / 4 * 2.0**-31)
    z = x * x
    s = ((f(SIN32[0]) * z + f(SIN32[1])) * z + f(SIN32[2])) * z * x + x
    c = ((f(COS32[0]) * z + f(COS32[1])) * z + f(COS32[2])) * z * z - f(0.5) * z + f(1)
    return rotate(c, s, word >> U32(30))


def sincos64(high: Array, low: Array) -> tuple[Array, Array]:
    x = (high << U32(2)).view(np.int32).astype(np.float64) * 2.0**-31
    x = (x + (low >> U32(11)).astype(np.int32).astype(np.float64) * 2.0**-51) * (np.pi / 4)
    z = x * x
    s, c = np.full_like(z, SIN64[0]), np.full_like(z, COS64[0])
    for a, b in zip(SIN64[1:], COS64[1:], strict=True):
        s, c = s * z + a, c * z + b
    return rotate((1.0 - 0.5 * z) + z * z * c, x + x * z * s, high >> U32(30))


def rotate(c: Array, s: Array, quadrant: Array) -> tuple[Array, Array]:
    swap = (quadrant & U32(1)) != 0
    first, second = np.where(swap, s, c), np.where(swap, c, s)
    return (
        np.where((quadrant == 1) | (quadrant == 2), -first, first),
        np.where(quadrant >= 2, -second, second),
    )


LOG32 = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
LOG64 = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip
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
