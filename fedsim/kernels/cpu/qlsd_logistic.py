# mypy: disable-error-code="attr-defined"
"""QLSD's messages on logistic regression, compiled; arguments as in `qlsd`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import inline, jit
from fedsim.kernels.cpu.elementary import exp32, exp64, f32
from fedsim.kernels.cpu.qlsd import arrays_of, minibatch, results, send_group
from fedsim.kernels.cpu.rows import SPAN, by_client, choose_group, group, scratch
from fedsim.kernels.intrinsics import (
    Builder,
    Context,
    Signature,
    Type,
    Typing,
    Value,
    cgutils,
    intrinsic,
    ir,
    overload,
    types,
)

TILE = 64  # rows whose linear predictors are computed together


@intrinsic
def _columns(typing: Typing, x: Type, row: Type, theta: Type, job: Type) -> Any:
    """Return the sums of x[row, i] theta[job, i] over i = 0, 8, ..., 1, 9, ... and so on, in complete groups of eight.

    It uses LLVM's vector types, because its vectoriser may not reorder a sum of floats into columns.
    """
    element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
    lanes = ir.VectorType(element[theta.dtype], 8)

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        def load(kind: Type, value: Value, at: Value, i: Value) -> Any:
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
def _predictors(x, first, chosen, j, begin, size, theta, job, z):
    """Compute the linear predictors of `size` chosen rows from `begin` on."""
    d = theta.shape[1]
    for r in range(size):
        row = first + chosen[j, begin + r]
        c0, c1, c2, c3, c4, c5, c6, c7 = _columns(x, row, theta, job)
        for i in range(d // 8 * 8, d):
            c0 += z.dtype.type(x[row, i] * theta[job, i])
        z[r] = ((c0 + c4) + (c1 + c5)) + ((c2 + c6) + (c3 + c7))


def _sigmoid(z: Array, size: int) -> None:
    """Convert z to 1 / (1 + exp(-z)), in place; `overload` dispatches on its dtype."""
    raise NotImplementedError


@overload(_sigmoid)
def _sigmoid_of(z, size):
    if z.dtype == types.float32:

        def sigmoid32(z, size):
            for r in range(size):
                z[r] = f32(1) / (f32(1) + exp32(-z[r]))

        return sigmoid32

    def sigmoid64(z, size):
        for r in range(size):
            z[r] = 1.0 / (1.0 + exp64(-z[r]))

    return sigmoid64


@jit
def residual_sums(theta, control, at, x, y, first, order, begin, end, size, scale, chosen, z, w, v):
    """Set v[j] to scale times the sum of (p(x theta) - y) x over the chosen rows; with a control y is p(x control)."""
    d = v.shape[1]
    for j in range(end - begin):
        model = at[order[begin + j]]
        for i in range(d):
            v[j, i] = 0
        for tile in range(0, size, TILE):
            rows = min(TILE, size - tile)
            _predictors(x, first, chosen, j, tile, rows, theta, model, z)
            _sigmoid(z, rows)
            if len(control) == 0:
                for r in range(rows):
                    w[r] = y[first + chosen[j, tile + r]]
            else:
                _predictors(x, first, chosen, j, tile, rows, control, model, w)
                _sigmoid(w, rows)
            for r in range(rows):
                row, residual = first + chosen[j, tile + r], z[r] - w[r]
                for i in range(d):
                    v[j, i] += residual * x[row, i]
        for i in range(d):
            v[j, i] *= scale


@jit
def logistic(
    theta, at, x, y, offsets, client, order, rows, key, control, anchor, memory, rate, coins, levels, lengths, form,
    sent, bits, new_memory,
):  # fmt: skip
    jobs, d = sent.shape
    lanes, targets, place, chosen = scratch(client, offsets, rows)
    v, rounding = np.empty((lanes, d), theta.dtype), np.empty((d + SPAN - 1) // SPAN * SPAN, np.uint32)
    z, w = np.empty(TILE, theta.dtype), np.empty(TILE, theta.dtype)
    begin = 0
    while begin < jobs:
        end = group(client, order, begin, lanes)
        c = client[order[begin]]
        first, n, m = offsets[c], offsets[c + 1] - offsets[c], rows[c]
        if len(key) == 0:
            for j in range(end - begin):
                for r in range(m):
                    chosen[j, r] = r
        else:
            choose_group(key, order, begin, end, n, m, targets, place, chosen)
        scale = theta.dtype.type(n / m)
        residual_sums(theta, control, at, x, y, first, order, begin, end, m, scale, chosen, z, w, v)
        send_group(
            v, order, begin, end, anchor, memory, rate, coins, levels, lengths, form, rounding, sent, bits, new_memory
        )
        begin = end


def logistic_messages(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None, key: Array | None,
    terms: tuple[Any, ...], wire: tuple[Any, ...],
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return (sent, bits, memory). Gradients are sums of (1 / (1 + exp(-x_row theta)) - y_row) x_row."""
    control, anchor, memory, rate = terms
    rows, key = minibatch(offsets, rows, key)
    order, out = by_client(client, len(rows)), results(theta, memory)
    theta, control, anchor, memory = arrays_of(theta, control, anchor, memory)
    at = np.arange(len(theta))
    logistic(theta, at, x, y, offsets, client, order, rows, key, control, anchor, memory, rate, *wire, *out)
    return out
