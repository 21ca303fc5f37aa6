# mypy: allow-untyped-defs, disable-error-code="import-untyped,attr-defined,untyped-decorator"
"""The gradients that QLSD's clients compress, compiled: minibatches are drawn and summed up in one pass.

Jobs are visited client by client, so that a client's rows are fetched once and its jobs' random words fill the
lanes of the vector units together. What a job yields does not depend on the jobs beside it.

    rows      (clients,) rows of a minibatch; None: all of the client's
    key       uint32 (jobs, 4) keys of the minibatches; None without them
    control   (jobs, d): the gradient of the same rows at this point is subtracted; None: it is not
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedsim.kernels.draws import below, philox
from fedsim.kernels.elementary import exp32, exp64, f32, inline, jit, u32

Array = npt.NDArray[Any]
LANES = 64  # jobs of a client whose random words are made together,
WORDS = 8192  # as long as these stay in the first-level cache;
SPAN = 16  # a loop over lanes has no remainder
TILE = 64  # rows whose linear predictors are held at once


# --- Minibatches -----------------------------------------------------------------------------------


@inline
def _group(client, order, begin, lanes):
    """Where the jobs of order[begin]'s client end, or `lanes` of them."""
    c, end = client[order[begin]], begin
    while end < len(order) and end - begin < lanes and client[order[end]] == c:
        end += 1
    return end


@jit
def _words(key, order, begin, end, blocks, lane, words):
    """Random words of the first `blocks` blocks of jobs: words[4 b + i, j] is word i of block b of the j-th."""
    for j in range(end - begin):
        job = order[begin + j]
        lane[0, j], lane[1, j], lane[2, j], lane[3, j] = key[job, 0], key[job, 1], key[job, 2], key[job, 3]
    n = (end - begin + SPAN - 1) // SPAN * SPAN  # what the last lanes hold does not matter, that they are whole does
    for b in range(blocks):
        for j in range(n):
            w0, w1, w2, w3 = philox(u32(b), u32(0), lane[2, j], lane[3, j], lane[0, j], lane[1, j])
            words[4 * b, j], words[4 * b + 1, j], words[4 * b + 2, j], words[4 * b + 3, j] = w0, w1, w2, w3


@inline
def _choose(words, j, population, size, place, out):
    """The same choice as `draws.choose`, from words that are there. `place` is 0, 1, 2, ... before and after."""
    for r in range(size):
        target = r + np.int64(below(words[2 * r, j], words[2 * r + 1, j], population - r))
        drawn = place[target]
        place[target] = place[r]
        place[r] = drawn
        out[r] = drawn
    for r in range(size):
        place[out[r]] = out[r]
        place[r] = r


@jit
def _largest(client, offsets, rows):
    """The largest minibatch and the largest client of a batch."""
    most, largest = 0, 0
    for c in client:
        most = max(most, rows[c])
        largest = max(largest, offsets[c + 1] - offsets[c])
    return most, largest


# --- Gaussian means --------------------------------------------------------------------------------


@inline
def _add_rows(x, first, chosen, size, total):
    """Rows one after the other; four at a time, so that the total is fetched and stored less often."""
    d, whole = len(total), size // 4 * 4
    for i in range(d):
        total[i] = 0
    for r in range(0, whole, 4):
        a, b, c, e = first + chosen[r], first + chosen[r + 1], first + chosen[r + 2], first + chosen[r + 3]
        for i in range(d):
            total[i] = total[i] + x[a, i] + x[b, i] + x[c, i] + x[e, i]
    for r in range(whole, size):
        a = first + chosen[r]
        for i in range(d):
            total[i] += x[a, i]


@inline
def _precise(precision, c, scale, total, out, job):
    """out[job] = scale P_c total; which kind of P it is, the compiler knows."""
    d, at = len(total), c if len(precision) > 1 else 0
    if precision.ndim == 2:
        for i in range(d):
            out[job, i] = scale * (precision[at, i] * total[i])
    else:
        for i in range(d):
            out[job, i] = 0
        for k in range(d):  # P is symmetric: its rows are its columns
            t = total[k]
            for i in range(d):
                out[job, i] += precision[at, k, i] * t
        for i in range(d):
            out[job, i] *= scale


@jit
def _gaussian(theta, x, offsets, precision, client, order, rows, key, out):
    jobs, d = theta.shape
    cast = theta.dtype.type
    most, largest = _largest(client, offsets, rows)
    lanes = max(SPAN, min(LANES, WORDS // (2 * most + 2) // SPAN * SPAN))
    lane, words = np.zeros((4, lanes), np.uint32), np.empty((2 * most + 2, lanes), np.uint32)
    place, chosen, total = np.arange(largest), np.empty(most, np.int64), np.empty(d, theta.dtype)
    begin = 0
    while begin < jobs:
        end = _group(client, order, begin, lanes)
        c = client[order[begin]]
        first, n, m = offsets[c], offsets[c + 1] - offsets[c], rows[c]
        count, scale = cast(m), cast(n / m)
        _words(key, order, begin, end, (m + 1) // 2, lane, words)
        for j in range(end - begin):
            job = order[begin + j]
            _choose(words, j, n, m, place, chosen)
            _add_rows(x, first, chosen, m, total)
            for i in range(d):
                total[i] = count * theta[job, i] - total[i]
            _precise(precision, c, scale, total, out, job)
        begin = end


@jit
def _gaussian_whole(theta, control, sums, offsets, precision, client, out):
    """Of all rows; with a control point the data drop out of the difference, and so does any minibatch."""
    jobs, d = theta.shape
    one, total = theta.dtype.type(1), np.empty(d, theta.dtype)
    for job in range(jobs):
        c = client[job]
        count = theta.dtype.type(offsets[c + 1] - offsets[c])
        if control is None:
            for i in range(d):
                total[i] = count * theta[job, i] - sums[c, i]
        else:
            for i in range(d):
                total[i] = count * (theta[job, i] - control[job, i])
        _precise(precision, c, one, total, out, job)


def gaussian_gradients(
    theta: Array, control: Array | None, x: Array, offsets: Array, sums: Array, precision: Array, client: Array,
    rows: Array | None, key: Array | None,
) -> Array:  # fmt: skip
    """(n / m) sum of P (theta - x_row), the prior left out; `sums` (clients, d) are of all rows.

    `precision` is (1 or clients, d, d), or (1 or clients, d) where the matrices are diagonal.
    """
    theta = np.ascontiguousarray(theta)
    out = np.empty_like(theta)
    if rows is None or control is not None:
        at = None if control is None else np.ascontiguousarray(control)
        _gaussian_whole(theta, at, sums, offsets, precision, client, out)
    else:
        _gaussian(theta, x, offsets, precision, client, by_client(client), rows, key, out)
    return out


# --- Logistic regression ---------------------------------------------------------------------------


@intrinsic
def _columns(typing: Any, x: Any, row: Any, theta: Any, job: Any) -> Any:
    """Sums of x[row, i] theta[job, i] over i = 0, 8, 16, ..., over 1, 9, 17, ... and so on, in whole groups of eight.

    In LLVM's vector types, because its own vectoriser may not reorder a sum of floats into columns.
    """
    element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
    lanes = ir.VectorType(element[theta.dtype], 8)

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def load(kind: Any, value: Any, at: Any, i: Any) -> Any:
            array = context.make_array(kind)(context, builder, value)
            width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
            start = builder.gep(array.data, [builder.add(builder.mul(at, width), i)])
            found = ir.VectorType(element[kind.dtype], 8)
            v = builder.load(builder.bitcast(start, found.as_pointer()), align=kind.dtype.bitwidth // 8)
            if found == lanes:
                return v
            return builder.fptrunc(v, lanes) if theta.dtype == types.float32 else builder.fpext(v, lanes)

        total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * 8))
        d = cgutils.unpack_tuple(builder, context.make_array(theta)(context, builder, args[2]).shape, 2)[1]
        with cgutils.for_range(builder, builder.lshr(d, ir.Constant(d.type, 3))) as loop:
            i = builder.shl(loop.index, ir.Constant(loop.index.type, 3))
            product = builder.fmul(load(x, args[0], args[1], i), load(theta, args[2], args[3], i))
            builder.store(builder.fadd(builder.load(total), product), total)
        parts = builder.load(total)
        eight = [builder.extract_element(parts, ir.Constant(ir.IntType(32), k)) for k in range(8)]
        return context.make_tuple(builder, signature.return_type, eight)

    return types.UniTuple(theta.dtype, 8)(x, types.int64, theta, types.int64), build


@inline
def _predictors(x, first, chosen, begin, theta, job, z):
    """Linear predictors of the chosen rows from `begin` on."""
    d = theta.shape[1]
    for r in range(len(z)):
        row = first + chosen[begin + r]
        c0, c1, c2, c3, c4, c5, c6, c7 = _columns(x, row, theta, job)
        for i in range(d // 8 * 8, d):
            c0 += z.dtype.type(x[row, i] * theta[job, i])
        z[r] = ((c0 + c4) + (c1 + c5)) + ((c2 + c6) + (c3 + c7))


@jit
def _sigmoid64(z):
    for r in range(len(z)):
        z[r] = 1.0 / (1.0 + exp64(-z[r]))


@jit
def _sigmoid32(z):
    for r in range(len(z)):
        z[r] = f32(1) / (f32(1) + exp32(-z[r]))


@inline
def _sigmoid(z):
    if z.itemsize == 4:
        _sigmoid32(z.view(np.float32))
    else:
        _sigmoid64(z.view(np.float64))


@jit
def _logistic(theta, control, x, y, offsets, client, order, rows, key, out):
    jobs, d = theta.shape
    cast = theta.dtype.type
    most, largest = _largest(client, offsets, rows)
    lanes = max(SPAN, min(LANES, WORDS // (2 * most + 2) // SPAN * SPAN))
    lane, words = np.zeros((4, lanes), np.uint32), np.empty((2 * most + 2, lanes), np.uint32)
    place, chosen = np.arange(largest), np.arange(most)
    z, w = np.empty(TILE, theta.dtype), np.empty(TILE, theta.dtype)
    begin = 0
    while begin < jobs:
        end = _group(client, order, begin, lanes)
        c = client[order[begin]]
        first, n, m = offsets[c], offsets[c + 1] - offsets[c], rows[c]
        scale = cast(n / m)
        if key is not None:
            _words(key, order, begin, end, (m + 1) // 2, lane, words)
        for j in range(end - begin):
            job = order[begin + j]
            if key is not None:
                _choose(words, j, n, m, place, chosen)
            for i in range(d):
                out[job, i] = 0
            for tile in range(0, m, TILE):
                size = min(TILE, m - tile)
                _predictors(x, first, chosen, tile, theta, job, z[:size])
                _sigmoid(z[:size])
                if control is None:
                    for r in range(size):
                        w[r] = y[first + chosen[tile + r]]
                else:
                    _predictors(x, first, chosen, tile, control, job, w[:size])
                    _sigmoid(w[:size])
                for r in range(size):
                    row, residual = first + chosen[tile + r], z[r] - w[r]
                    for i in range(d):
                        out[job, i] += residual * x[row, i]
            for i in range(d):
                out[job, i] *= scale
        begin = end


def logistic_gradients(
    theta: Array, control: Array | None, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None,
    key: Array | None,
) -> Array:  # fmt: skip
    """(n / m) sum of (p(x_row theta) - y_row) x_row, the prior left out."""
    theta = np.ascontiguousarray(theta)
    out = np.empty_like(theta)
    at = None if control is None else np.ascontiguousarray(control)
    if rows is None:
        rows, key = np.diff(offsets), None
    _logistic(theta, at, x, y, offsets, client, by_client(client), rows, key, out)
    return out


def by_client(client: Array) -> Array:
    """The jobs in the order of their clients."""
    return np.argsort(client, kind="stable")
