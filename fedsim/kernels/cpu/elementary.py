"""exp, log, softmax and Box-Muller, compiled, in the order of operations of `fedsim.rng.elementary`.

There is no fastmath, and multiply-adds are fused only by `fma`: every operation is an IEEE one in a fixed order. So a
value depends neither on its place in a vector nor on the machine's libm, and the NumPy reference has the same bits.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cache import jit
from fedsim.kernels.compiler import inline
from fedsim.kernels.intrinsics import as_float, as_int, fma
from fedsim.rng.elementary import (
    COS32,
    COS64,
    EXP32,
    EXP64,
    LN2_HIGH,
    LN2_LOW,
    LOG64,
    MINUS_2_LN2,
    RADIUS32,
    SIN32,
    SIN64,
)

u32, u64, i32, i64, f32, f64 = np.uint32, np.uint64, np.int32, np.int64, np.float32, np.float64


@inline
def log64(x):
    """Return the natural logarithm of a normal positive number."""
    bits = as_int(x) + i64((0x3FF00000 - 0x3FE6A09E) << 32)
    k = f64(i32(i32(u64(bits) >> u64(52)) - i32(1023)))  # logical shift: AVX2 has no arithmetic one
    f = as_float(i64((bits & i64(0x000FFFFFFFFFFFFF)) + i64(0x3FE6A09E << 32))) - 1.0
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


@inline
def exp64(x):
    """Return e**x with x clipped to where the result is a normal number."""
    x = min(max(x, -708.0), 709.0)
    k = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0  # rounds to the nearest integer
    r = (x - k * LN2_HIGH) - k * LN2_LOW
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
    return p * as_float(i64((i64(i32(k)) + i64(1023)) << i64(52)))


@inline
def exp32(x):
    """Return e**x in float32, clipped likewise."""
    x = min(max(x, f32(-87.0)), f32(88.0))
    k = (x * f32(1.44269504) + f32(12582912.0)) - f32(12582912.0)
    r = (x - k * f32(0.693359375)) - k * f32(-2.12194440e-4)
    p = f32(EXP32[0]) * r + f32(EXP32[1])
    p = p * r + f32(EXP32[2])
    p = p * r + f32(EXP32[3])
    p = p * r + f32(EXP32[4])
    p = p * r + f32(EXP32[5])
    p = p * r * r + r + f32(1)
    return p * as_float(i32((i32(k) + i32(127)) << i32(23)))


@inline
def rotated32(c, s, word):
    """Rotate (cosine, sine) by the number of right angles in the word's two highest bits; signs are flipped as bits."""
    swap = (word & u32(0x40000000)) != u32(0)
    first = s if swap else c
    second = c if swap else s
    first = as_float(i32(as_int(first) ^ i32(u32(word ^ u32(word << u32(1))) & u32(0x80000000))))
    second = as_float(i32(as_int(second) ^ i32(word & u32(0x80000000))))
    return first, second


@inline
def rotated64(c, s, word):
    """Rotate as `rotated32` does, in float64."""
    swap = (word & u32(0x40000000)) != u32(0)
    first = s if swap else c
    second = c if swap else s
    first = as_float(as_int(first) ^ i64(u64(u32(word ^ u32(word << u32(1))) & u32(0x80000000)) << u64(32)))
    second = as_float(as_int(second) ^ i64(u64(word & u32(0x80000000)) << u64(32)))
    return first, second


@inline
def radius32(word):
    """Return Box-Muller's radius, float32: sqrt(-2 log u) with u = (word / 2 + 1/2) / 2**31."""
    bits = i32(as_int(f32(i32(word >> u32(1))) + f32(0.5)) + i32(0x3F800000 - 0x3F3504F3))
    e = f32(i32(i32(bits >> i32(23)) - i32(127 + 31)))
    m = as_float(i32((bits & i32(0x007FFFFF)) + i32(0x3F3504F3))) - f32(1)
    z = m * m
    low = fma(fma(f32(RADIUS32[3]), m, f32(RADIUS32[2])), z, fma(f32(RADIUS32[1]), m, f32(RADIUS32[0])))
    high = fma(fma(f32(RADIUS32[7]), m, f32(RADIUS32[6])), z, fma(f32(RADIUS32[5]), m, f32(RADIUS32[4])))
    near = fma(fma(high, z * z, low), z, f32(-2) * m)
    return f32(np.sqrt(fma(e, f32(MINUS_2_LN2), near)))


@inline
def direction32(word):
    """Return a uniform point on the unit circle, float32."""
    x = f32(i32(u32(word << u32(2)))) * f32(np.pi / 4 * 2.0**-31)
    z = x * x
    s = fma(fma(fma(f32(SIN32[0]), z, f32(SIN32[1])), z, f32(SIN32[2])), z * x, x)
    c = fma(fma(f32(COS32[0]), z, f32(COS32[1])), z, f32(COS32[2]))
    return rotated32(fma(fma(c, z, f32(-0.5)), z, f32(1)), s, word)


@inline
def unit64(high, low):
    """Convert two words to a float64 in (0, 1)."""
    return f64(i32(high >> u32(1))) * 2.0**-31 + (f64(i32(low >> u32(11))) + 0.5) * 2.0**-52


@inline
def radius64(high, low):
    """Return Box-Muller's radius, float64."""
    return np.sqrt(-2.0 * log64(unit64(high, low)))


@inline
def direction64(high, low):
    """Return a uniform point on the unit circle, float64."""
    x = f64(i32(u32(high << u32(2)))) * 2.0**-31
    x = (x + f64(i32(low >> u32(11))) * 2.0**-51) * (np.pi / 4)
    z = x * x
    s = SIN64[0] * z + SIN64[1]
    s = s * z + SIN64[2]
    s = s * z + SIN64[3]
    s = s * z + SIN64[4]
    s = s * z + SIN64[5]
    e = COS64[0] * z + COS64[1]
    e = e * z + COS64[2]
    e = e * z + COS64[3]
    e = e * z + COS64[4]
    e = e * z + COS64[5]
    return rotated64((1.0 - 0.5 * z) + z * z * e, x + x * z * s, high)


@jit
def _exp64(z):
    for i in range(z.shape[0]):
        z[i] = exp64(z[i])


@jit
def _exp32(z):
    for i in range(z.shape[0]):
        z[i] = exp32(z[i])


@jit
def softmax_rows(z):
    """Convert every row of scores `z` to probabilities, in place. All exponentials are one loop."""
    for r in range(z.shape[0]):
        row = z[r]
        top = row[0]
        for k in range(1, row.shape[0]):
            top = max(top, row[k])
        for k in range(row.shape[0]):
            row[k] -= top
    flat = z.reshape(-1)
    if z.itemsize == 4:
        _exp32(flat.view(np.float32))
    else:
        _exp64(flat.view(np.float64))
    for r in range(z.shape[0]):
        row = z[r]
        total = row[0]
        for k in range(1, row.shape[0]):
            total += row[k]
        for k in range(row.shape[0]):
            row[k] /= total


@jit
def residuals(z, bias, y, total):
    """Convert scores to probabilities minus the one-hot labels, in place; add their sum over rows to `total`."""
    for r in range(z.shape[0]):
        for k in range(len(bias)):
            z[r, k] += bias[k]
    softmax_rows(z)
    for r in range(z.shape[0]):
        z[r, y[r]] -= z.dtype.type(1)
        for k in range(len(total)):
            total[k] += z[r, k]
