"""Philox and Box-Muller over lanes: loops that LLVM turns into vector instructions.

A lane is one Philox block. The loops have no branches and their arrays do not overlap, so LLVM vectorises them.
`fill_blocks` draws the normals of a few steps of a block of jobs into rows that fit in the first-level cache.
"""

from __future__ import annotations

from fedsim.arrays import Array
from fedsim.kernels.compiler import inline
from fedsim.kernels.compiler import jit as inner
from fedsim.kernels.cpu.elementary import direction32, direction64, radius32, radius64, u32, u64
from fedsim.kernels.intrinsics import overload

LOW = u64(0xFFFFFFFF)


@inline
def _mix(c0, c1, c2, c3, k0, k1):
    """Return one round, in 64-bit lanes. Only the low halves are read, so the high halves may hold anything."""
    left = u64(0xD2511F53) * (c0 & LOW)
    right = u64(0xCD9E8D57) * (c2 & LOW)
    return (right >> u64(32)) ^ c1 ^ k0, right, (left >> u64(32)) ^ c3 ^ k1, left


@inline
def philox(c0, c1, c2, c3, k0, k1):
    """Return Philox4x32-10 of one block, unrolled so that LLVM vectorises it."""
    c0, c1, c2, c3, p, q = u64(c0), u64(c1), u64(c2), u64(c3), u64(k0), u64(k1)
    a, b = u64(0x9E3779B9), u64(0xBB67AE85)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    return u32(c0), u32(c1), u32(c2), u32(c3)


@inline
def philox_twice(c0, d0, c1, c2, c3, k0, k1):
    """Return blocks number c0 and d0 of one key: they share its schedule and overlap in the pipeline."""
    d0, d1, d2, d3 = u64(d0), u64(c1), u64(c2), u64(c3)
    c0, c1, c2, c3, p, q = u64(c0), u64(c1), u64(c2), u64(c3), u64(k0), u64(k1)
    a, b = u64(0x9E3779B9), u64(0xBB67AE85)
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    p, q = p + a, q + b
    c0, c1, c2, c3 = _mix(c0, c1, c2, c3, p, q)
    d0, d1, d2, d3 = _mix(d0, d1, d2, d3, p, q)
    return u32(c0), u32(c1), u32(c2), u32(c3), u32(d0), u32(d1), u32(d2), u32(d3)


@inner
def fill_words(block, step, k0, k1, k2, k3, w0, w1, w2, w3):
    """Compute the words of the blocks `block` under the keys k0..k3, lane by lane."""
    for j in range(block.shape[0]):
        a, b, c, d = philox(block[j], step, k2[j], k3[j], k0[j], k1[j])
        w0[j], w1[j], w2[j], w3[j] = a, b, c, d


@inner
def fill_keys(c0, c1, c2, c3, k0, k1, w0, w1, w2, w3):
    """Compute the words of counters that differ from lane to lane, under one key."""
    for j in range(c0.shape[0]):
        a, b, c, d = philox(c0[j], c1[j], c2[j], c3[j], k0, k1)
        w0[j], w1[j], w2[j], w3[j] = a, b, c, d


@inner
def fill_words_twice(first, second, k0, k1, k2, k3, w0, w1, w2, w3, v0, v1, v2, v3):
    """Compute the words of two blocks, the same for all lanes, under the keys k0..k3."""
    for j in range(k0.shape[0]):
        a, b, c, d, e, f, g, h = philox_twice(first, second, u32(0), k2[j], k3[j], k0[j], k1[j])
        w0[j], w1[j], w2[j], w3[j] = a, b, c, d
        v0[j], v1[j], v2[j], v3[j] = e, f, g, h


@inner
def fill_pairs32(a, b, x, y):
    """Convert two words to two normals, lane by lane."""
    for j in range(a.shape[0]):
        r = radius32(a[j])
        cosine, sine = direction32(b[j])
        x[j], y[j] = r * cosine, r * sine


@inner
def fill_normals32(a, b, c, d, x, y, z, w):
    """Convert four words to four normals, lane by lane."""
    fill_pairs32(a, b[: len(a)], x, y)
    fill_pairs32(c[: len(a)], d, z, w)


@inner
def fill_normals64(a, b, c, d, x, y):
    """Convert four words to two normals, lane by lane; divisions and multiplications overlap."""
    for j in range(a.shape[0]):
        r = radius64(a[j], b[j])
        cosine, sine = direction64(c[j], d[j])
        x[j], y[j] = r * cosine, r * sine


GROUP = 4  # steps whose noise is drawn together: 4 d normals fill Philox blocks for every d


def fill_blocks(w: Array, first: int, k: Array, x: Array) -> None:
    """Draw GROUP * d normals of every lane into the rows of `x`; `overload` dispatches on its dtype."""
    raise NotImplementedError


@inner
def fill_blocks_32(w, first, k, x):
    """Draw the normals of `fill_blocks` in float32."""
    blocks = x.shape[0] // 4
    for b in range(0, blocks, 2):
        other = min(b + 1, blocks - 1)  # the last of an odd number is drawn twice
        fill_words_twice(
            u32(first + b), u32(first + other), k[0], k[1], k[2], k[3], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
        )
        fill_normals32(w[0], w[1], w[2], w[3], x[4 * b], x[4 * b + 1], x[4 * b + 2], x[4 * b + 3])
        at = 4 * other
        fill_normals32(w[4], w[5], w[6], w[7], x[at], x[at + 1], x[at + 2], x[at + 3])


@inner
def fill_blocks_64(w, first, k, x):
    """Draw the normals of `fill_blocks` in float64."""
    blocks = x.shape[0] // 2
    for b in range(0, blocks, 2):
        other = min(b + 1, blocks - 1)
        fill_words_twice(
            u32(first + b), u32(first + other), k[0], k[1], k[2], k[3], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
        )
        fill_normals64(w[0], w[1], w[2], w[3], x[2 * b], x[2 * b + 1])
        fill_normals64(w[4], w[5], w[6], w[7], x[2 * other], x[2 * other + 1])


@overload(fill_blocks)
def _fill_blocks(w, first, k, x):
    if x.dtype.bitwidth == 32:
        return lambda w, first, k, x: fill_blocks_32(w, first, k, x)
    return lambda w, first, k, x: fill_blocks_64(w, first, k, x)
