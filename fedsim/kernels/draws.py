"""The compiled twin of `fedsim.rng`: same names, same arguments, same bits, about a hundred times as fast.

Lanes of the vector units are jobs: the inner loops run over neighbouring rows, are free of branches, and use
nothing but IEEE operations in a fixed order (no fastmath, no fused multiply-add), so a row's bits do not depend
on where in a batch it sits.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

from fedsim.errors import InvalidInput
from fedsim.rng import COS32, COS64, LN2_HIGH, LN2_LOW, LOG32, LOG64, SIN32, SIN64

Array = npt.NDArray[Any]
ROWS = 128  # jobs whose words and normals stay in the first-level cache together
jit = nb.njit(nogil=True, cache=True, error_model="numpy")
inline = nb.njit(nogil=True, cache=True, error_model="numpy", inline="never", forceinline=True)

u32, u64, i32, i64, f32, f64 = np.uint32, np.uint64, np.int32, np.int64, np.float32, np.float64


@intrinsic
def _as_float(typing: Any, word: Any) -> Any:
    """Reinterpret an integer's bits as the float of the same width."""
    to = types.float32 if word.bitwidth == 32 else types.float64

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(to))

    return to(word), build


@intrinsic
def _as_int(typing: Any, x: Any) -> Any:
    """Reinterpret a float's bits as the signed integer of the same width."""
    to = types.int32 if x == types.float32 else types.int64

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(to))

    return to(x), build


# --- Philox ------------------------------------------------------------------------------------


@inline
def _mix(c0, c1, c2, c3, k0, k1):  # one round
    left = u64(0xD2511F53) * u64(c0)
    right = u64(0xCD9E8D57) * u64(c2)
    return u32(right >> u64(32)) ^ c1 ^ k0, u32(right), u32(left >> u64(32)) ^ c3 ^ k1, u32(left)


@inline
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 of one block; written out, because LLVM vectorises straight lines."""
    w0, w1 = u32(0x9E3779B9), u32(0xBB67AE85)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, k0, k1)
    k0, k1 = u32(k0 + w0), u32(k1 + w1)
    return _mix(c0, c1, c2, c3, k0, k1)


# --- Box-Muller ---------------------------------------------------------------------------------


@inline
def _log32(x):
    bits = _as_int(x) + i32(0x3F800000 - 0x3F3504F3)
    e = f32((bits >> i32(23)) - i32(127))
    m = _as_float(i32((bits & i32(0x007FFFFF)) + i32(0x3F3504F3))) - f32(1)
    z = m * m
    y = f32(LOG32[0]) * m + f32(LOG32[1])
    y = y * m + f32(LOG32[2])
    y = y * m + f32(LOG32[3])
    y = y * m + f32(LOG32[4])
    y = y * m + f32(LOG32[5])
    y = y * m + f32(LOG32[6])
    y = y * m + f32(LOG32[7])
    y = y * m + f32(LOG32[8])
    y = y * m * z + e * f32(-2.12194440e-4) - f32(0.5) * z
    return (m + y) + e * f32(0.693359375)


@inline
def _log64(x):
    bits = _as_int(x) + i64((0x3FF00000 - 0x3FE6A09E) << 32)
    k = f64(i32((bits >> i64(52)) - i64(1023)))
    f = _as_float(i64((bits & i64(0x000FFFFFFFFFFFFF)) + i64(0x3FE6A09E << 32))) - 1.0
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
def _pair32(a, b):
    """Two words to two float32 normals."""
    unit = (f32(i32(a >> u32(1))) + f32(0.5)) * f32(2.0**-31)
    radius = f32(np.sqrt(f32(-2.0) * _log32(unit)))
    x = f32(i32(u32(b << u32(2)))) * f32(np.pi / 4 * 2.0**-31)
    z = x * x
    s = ((f32(SIN32[0]) * z + f32(SIN32[1])) * z + f32(SIN32[2])) * z * x + x
    c = ((f32(COS32[0]) * z + f32(COS32[1])) * z + f32(COS32[2])) * z * z - f32(0.5) * z + f32(1)
    q = b >> u32(30)
    swap = (q & u32(1)) != u32(0)
    first = s if swap else c
    second = c if swap else s
    first = -first if (q == u32(1)) | (q == u32(2)) else first
    second = -second if q >= u32(2) else second
    return radius * first, radius * second


@inline
def unit64(high, low):
    """Two words to a float64 in (0, 1)."""
    return f64(i32(high >> u32(1))) * 2.0**-31 + (f64(i32(low >> u32(11))) + 0.5) * 2.0**-52


@inline
def _pair64(a, b, c, d):
    """Four words to two float64 normals."""
    radius = np.sqrt(-2.0 * _log64(unit64(a, b)))
    x = f64(i32(u32(c << u32(2)))) * 2.0**-31
    x = (x + f64(i32(d >> u32(11))) * 2.0**-51) * (np.pi / 4)
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
    sine, cosine = x + x * z * s, (1.0 - 0.5 * z) + z * z * e
    q = c >> u32(30)
    swap = (q & u32(1)) != u32(0)
    first = sine if swap else cosine
    second = cosine if swap else sine
    first = -first if (q == u32(1)) | (q == u32(2)) else first
    second = -second if q >= u32(2) else second
    return radius * first, radius * second
