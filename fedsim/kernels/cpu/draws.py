"""Keyed random numbers, compiled: the functions and bits of `fedsim.rng`, about fifty times as fast.

A lane of the vector units is one Philox block. Blocks of different jobs fill the lanes as well as blocks of one job, so
a few long rows cost the same as many short ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array, Numbers
from fedsim.errors import InvalidInput
from fedsim.kernels.cache import jit
from fedsim.kernels.compiler import inline
from fedsim.kernels.compiler import jit as inner
from fedsim.kernels.cpu.elementary import u32, u64
from fedsim.kernels.cpu.lanes import fill_keys, fill_normals32, fill_normals64, fill_words, philox

LANES = 512  # blocks whose words and normals fit in the first-level cache


@inner
def _gather(key, row, at, blocks, first, block, k):
    """Fill the next lanes, from block `at` of `row` on. Return the number of lanes and the next row and block."""
    n = 0
    while n < block.shape[0] and row < key.shape[0]:
        block[n] = u32(first + at)
        k[0, n], k[1, n], k[2, n], k[3, n] = key[row, 0], key[row, 1], key[row, 2], key[row, 3]
        n += 1
        at += 1
        if at == blocks:
            at, row = 0, row + 1
    return n, row, at


@inner
def _scatter(x, n, per, row, at, blocks, shift, out):
    """Write the lanes' values to their rows, without the first `shift` values of each row."""
    lanes = out.shape[1]
    if shift == 0 and lanes == per * blocks:
        flat = out.reshape(-1)
        begin = row * lanes + at * per
        if per == 4:
            for j in range(n):
                flat[begin + 4 * j], flat[begin + 4 * j + 1] = x[0, j], x[1, j]
                flat[begin + 4 * j + 2], flat[begin + 4 * j + 3] = x[2, j], x[3, j]
        else:
            for j in range(n):
                flat[begin + 2 * j], flat[begin + 2 * j + 1] = x[0, j], x[1, j]
        return
    for j in range(n):
        for i in range(per):
            lane = at * per + i - shift
            if 0 <= lane < lanes:
                out[row, lane] = x[i, j]
        at += 1
        if at == blocks:
            at, row = 0, row + 1


@jit
def normals32(key, begin, call, out):
    """Write normals number `begin` onwards of every row into `out`, float32 (rows, lanes)."""
    block, k = np.empty(LANES, np.uint32), np.empty((4, LANES), np.uint32)
    w, x = np.empty((4, LANES), np.uint32), np.empty((4, LANES), np.float32)
    first = begin // 4
    blocks = (begin + out.shape[1] + 3) // 4 - first
    row, at = 0, 0
    while row < key.shape[0]:
        n, next_row, next_at = _gather(key, row, at, blocks, first, block, k)
        fill_words(block[:n], u32(call), k[0], k[1], k[2], k[3], w[0], w[1], w[2], w[3])
        fill_normals32(w[0, :n], w[1], w[2], w[3], x[0], x[1], x[2], x[3])
        _scatter(x, n, 4, row, at, blocks, begin - first * 4, out)
        row, at = next_row, next_at


@jit
def normals64(key, begin, call, out):
    """Write normals number `begin` onwards of every row into `out`, float64 (rows, lanes)."""
    block, k = np.empty(LANES, np.uint32), np.empty((4, LANES), np.uint32)
    w, x = np.empty((4, LANES), np.uint32), np.empty((2, LANES), np.float64)
    first = begin // 2
    blocks = (begin + out.shape[1] + 1) // 2 - first
    row, at = 0, 0
    while row < key.shape[0]:
        n, next_row, next_at = _gather(key, row, at, blocks, first, block, k)
        fill_words(block[:n], u32(call), k[0], k[1], k[2], k[3], w[0], w[1], w[2], w[3])
        fill_normals64(w[0, :n], w[1], w[2], w[3], x[0], x[1])
        _scatter(x, n, 2, row, at, blocks, begin - first * 2, out)
        row, at = next_row, next_at


@jit
def _words(key, step, first, out):
    for row in range(key.shape[0]):
        for b in range(out.shape[1] // 4):
            block = u64(first + b)
            w = philox(block, u64(step) + (block >> u64(32)), key[row, 2], key[row, 3], key[row, 0], key[row, 1])
            out[row, 4 * b], out[row, 4 * b + 1], out[row, 4 * b + 2], out[row, 4 * b + 3] = w


@inline
def below(high, low, n):
    """Convert two words to an integer in [0, n)."""
    return (u64(high) * u64(n) + (u64(low) * u64(n) >> u64(32))) >> u64(32)


@jit
def choose(k0, k1, k2, k3, step, population, size, place, out):
    """Choose by a shuffle that stops after `size` swaps. `place` is 0, 1, 2, ... before and after."""
    w0, w1, w2, w3 = u32(0), u32(0), u32(0), u32(0)
    for j in range(size):
        if j % 2 == 0:
            w0, w1, w2, w3 = philox(u32(j // 2), step, k2, k3, k0, k1)
            target = j + np.int64(below(w0, w1, population - j))
        else:
            target = j + np.int64(below(w2, w3, population - j))
        place[j], place[target] = place[target], place[j]
        out[j] = place[j]
    for j in range(size):  # only positions below `size` and those of the chosen numbers were changed
        place[out[j]] = out[j]
        place[j] = j


@inline
def _slot(places, place):
    """Return the index of a place in a hash table of places, or the free index for it."""
    i = (place * np.int64(0x9E3779B1)) & (len(places) - 1)
    while places[i] >= 0 and places[i] != place:
        i = (i + 1) & (len(places) - 1)
    return i


@inner
def choose_few(k0, k1, k2, k3, step, population, size, places, values, out):
    """Choose by the same shuffle with a hash table of the changed places, without an array of the population."""
    w0, w1, w2, w3 = u32(0), u32(0), u32(0), u32(0)
    places[:] = -1
    for j in range(size):
        if j % 2 == 0:
            w0, w1, w2, w3 = philox(u32(j // 2), step, k2, k3, k0, k1)
            target = j + np.int64(below(w0, w1, population - j))
        else:
            target = j + np.int64(below(w2, w3, population - j))
        here, there = _slot(places, j), _slot(places, target)
        out[j] = values[there] if places[there] == target else target
        moved = values[here] if places[here] == j else j
        places[there], values[there] = target, moved


@jit
def choose_rows_into(key, population, start, step, out):
    """Choose start[i + 1] - start[i] different numbers below population[i] for each row i, in one flat array."""
    most = population.max() if len(population) else 0
    sparse = most > 64 * len(out)
    size = 1
    if sparse:
        for i in range(key.shape[0]):
            while size < 4 * (start[i + 1] - start[i]):
                size *= 2
    place = np.arange(0 if sparse else most)
    places, values = np.empty(size, np.int64), np.empty(size, np.int64)
    for i in range(key.shape[0]):
        a, b = start[i], start[i + 1]
        k0, k1, k2, k3, n = key[i, 0], key[i, 1], key[i, 2], key[i, 3], population[i]
        if sparse:
            choose_few(k0, k1, k2, k3, u32(step), n, b - a, places, values, out[a:b])
        else:
            choose(k0, k1, k2, k3, u32(step), n, b - a, place, out[a:b])


@inner
def _spread(column, begin, lanes):
    """Copy a tile of a column, or repeat its only number; return the bits high_bits the lowest 32."""
    high_bits = u64(0)
    if len(column) == 1:
        lanes[:] = u32(column[0])
        return u64(column[0]) >> u64(32)
    for j in range(len(lanes)):
        number = u64(column[begin + j])
        lanes[j] = u32(number)
        high_bits |= number >> u64(32)
    return high_bits


@jit
def keys_into(seed, stream, replica, client, round, visit, out):
    """Write keys into `out`; return the bits that do not fit into a key, 0 if all fit."""
    c, w, overflow = np.empty((4, LANES), np.uint32), np.empty((4, LANES), np.uint32), u64(0)
    low, high = u32(seed), u32(seed >> u64(32))
    for begin in range(0, out.shape[0], LANES):
        n = min(LANES, out.shape[0] - begin)
        overflow |= _spread(client, begin, c[0, :n]) | _spread(round, begin, c[1, :n])
        overflow |= _spread(replica, begin, c[2, :n]) | _spread(visit, begin, c[3, :n])
        for j in range(n):
            overflow |= u64(c[3, j] >> u32(24))
            c[3, j] = (c[3, j] << u32(8)) | u32(stream)
        fill_keys(c[0, :n], c[1], c[2], c[3], low, high, w[0], w[1], w[2], w[3])
        for j in range(n):
            for i in range(4):
                out[begin + j, i] = w[i, j]
    return overflow


def keys(
    seed: int, stream: int, *, replica: Numbers = 0, client: Numbers = 0, round: Numbers = 0, visit: Numbers = 0
) -> Array:
    if type(seed) is not int or not 0 <= seed < 2**64:
        rng.check_seed(seed)
    try:
        columns = [_column(c) for c in (replica, client, round, visit)]
    except OverflowError:
        rng.check_address(replica=replica, client=client, round=round, visit=visit)
        raise
    out = np.empty((max(map(len, columns)) if all(map(len, columns)) else 0, 4), np.uint32)
    if keys_into(u64(seed), u64(int(stream)), *columns, out):
        rng.check_address(replica=replica, client=client, round=round, visit=visit)
    return out


def _column(numbers: Numbers) -> Array:
    if type(numbers) is np.ndarray and numbers.dtype == np.int64 and numbers.ndim == 1 and numbers.flags.c_contiguous:
        return numbers
    return np.ascontiguousarray(np.atleast_1d(np.asarray(numbers, np.int64)))


def words(key: Array, blocks: int, step: int = 0, first: int = 0) -> Array:
    out = np.empty((len(key), 4 * blocks), np.uint32)
    _words(key, step, first, out)
    return out


def normal(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64, call: int = 0) -> Array:
    out = np.empty((len(key), lanes), dtype)
    if out.size == 0:  # the kernels need at least one block a row
        return out
    if (step + 1) * lanes >= 2**33:  # the kernels count blocks in 32 bits
        return rng.normal(key, lanes, step, dtype, call)
    (normals32 if out.dtype == np.float32 else normals64)(key, step * lanes, call, out)
    return out


def uniform(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64) -> Array:
    if np.dtype(dtype) == np.float32:
        return rng.unit32(words(key, -(-lanes // 4), step)[:, :lanes])
    w = words(key, -(-lanes // 2), step).reshape(len(key), 2 * -(-lanes // 2), 2)[:, :lanes]
    return rng.unit64(w[..., 0], w[..., 1])


def integers(key: Array, lanes: int, below: npt.ArrayLike, step: int = 0) -> Array:
    w = words(key, -(-lanes // 2), step).reshape(len(key), 2 * -(-lanes // 2), 2)[:, :lanes]
    return rng.scaled(w[..., 0], w[..., 1], below)


def choice(key: Array, population: npt.ArrayLike, size: int, step: int = 0) -> Array:
    n = np.full(len(key), population, np.int64)
    if size > n.min(initial=size):
        raise InvalidInput(f"choice of {size} out of {n.min()}: ask for at most {n.min()}")
    out = np.empty(len(key) * size, np.int64)
    choose_rows_into(key, n, np.arange(len(key) + 1) * size, step, out)
    return out.reshape(len(key), size)


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    out = np.empty(start[-1], np.int64)
    choose_rows_into(key, population, start, step, out)
    return out


__all__ = ["choice", "choose_rows", "integers", "keys", "keys_into", "normal", "uniform", "words"]
