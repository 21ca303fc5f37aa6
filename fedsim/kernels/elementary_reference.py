"""The exponential in plain NumPy, in the order of operations of `kernels/elementary.py`, which is held to its bits."""

from __future__ import annotations

from math import factorial

import numpy as np

from fedsim import rng
from fedsim.arrays import Array

EXP64 = tuple(1.0 / factorial(k) for k in range(12, -1, -1))
EXP32 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exp(x: Array) -> Array:
    """e**x, our own so that no libm decides the last bit; clipped to where the result is a normal number."""
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
    r = (x - k * rng.boxmuller.LN2_HIGH) - k * rng.boxmuller.LN2_LOW
    p = np.full_like(r, EXP64[0])
    for c in EXP64[1:]:
        p = p * r + c
    return np.asarray(p * ((k.astype(np.int64) + np.int64(1023)) << np.int64(52)).view(np.float64))
