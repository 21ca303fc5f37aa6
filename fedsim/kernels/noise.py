"""Normals for a block of jobs, a few steps at a time, into rows that stay in the first-level cache."""

from __future__ import annotations

from fedsim.arrays import Array
from fedsim.kernels.elementary import jit, u32
from fedsim.kernels.lanes import fill_normals32, fill_normals64, fill_words_twice
from fedsim.kernels.llvm import overload

GROUP = 4  # steps whose noise is made together: 4 d normals are whole Philox blocks for every d


def fill_blocks(w: Array, first: int, k: Array, x: Array) -> None:
    """GROUP * d normals of every lane into the rows of `x` (dispatched on its dtype by `overload`)."""
    raise NotImplementedError


@jit
def fill_blocks_32(w, first, k, x):
    blocks = x.shape[0] // 4
    for b in range(0, blocks, 2):
        other = min(b + 1, blocks - 1)  # an odd one out is made twice
        fill_words_twice(
            u32(first + b), u32(first + other), k[0], k[1], k[2], k[3], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
        )
        fill_normals32(w[0], w[1], w[2], w[3], x[4 * b], x[4 * b + 1], x[4 * b + 2], x[4 * b + 3])
        at = 4 * other
        fill_normals32(w[4], w[5], w[6], w[7], x[at], x[at + 1], x[at + 2], x[at + 3])


@jit
def fill_blocks_64(w, first, k, x):
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
