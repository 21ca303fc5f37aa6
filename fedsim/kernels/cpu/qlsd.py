# mypy: disable-error-code="attr-defined"
"""QLSD's messages, compiled: minibatch, gradient, memory, quantiser and bit count of a job in one pass.

    v = (n / m) sum over m rows of [grad(theta) - grad(control)] + anchor - memory
    sent = C(v),  new_memory = memory + rate sent

The result of a job does not depend on other jobs. Arguments of all kernels, where an empty array omits a term:

    theta, control (models, d), at (jobs,)         the model that a job starts from
    anchor, memory (jobs, d), rate                 terms of v
    client (jobs,), order, rows (clients,), key uint32 (jobs, 4)   minibatches; no key: all rows of a client
    coins uint32 (jobs, 4), levels, lengths, form                  the wire, see `wire_form`
    sent (jobs, d), bits (jobs,), new_memory (jobs, d)             results; sent is NaN where v cannot be sent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import inline, jit
from fedsim.kernels.cpu.elementary import f32, f64, i32, i64, u32, u64
from fedsim.kernels.cpu.lanes import philox
from fedsim.kernels.cpu.qsgd import ABOVE, DOWN, FIXED, FORMS, LARGEST, SIGN, elias_row, wire_norm
from fedsim.kernels.cpu.rows import SPAN, by_client, choose_group, group, scratch
from fedsim.kernels.intrinsics import (
    Builder,
    Context,
    Signature,
    Type,
    Typing,
    Value,
    as_float,
    as_int,
    cgutils,
    intrinsic,
    ir,
    types,
)
from fedsim.kernels.reference.qsgd import elias_lengths

NO_KEY = np.empty((0, 4), np.uint32)
PLAIN, SINGLE = -1, -2  # forms without a quantiser: the numbers as they are, or rounded to float32


@inline
def _level(x, word, scale, top):
    """Return the signed level of one coordinate, with the bits of `qsgd.round_row`."""
    u = as_float(i64(u64(word) | ABOVE)) - DOWN
    away = as_float(as_int(u) | (as_int(x) & SIGN))
    return min(max(np.trunc(x * scale + away), -top), top)


@jit
def send_group(v, order, begin, end, anchor, memory, rate, coins, levels, lengths, form, words, sent, bits, new_memory):
    """Add the terms to the gradients in the first rows of `v` and send them; `words` is scratch."""
    d, cast, top = v.shape[1], v.dtype.type, f64(levels)
    for j in range(end - begin):
        job = order[begin + j]
        if len(anchor):
            for i in range(d):
                v[j, i] += anchor[job, i]
        if len(memory):
            for i in range(d):
                v[j, i] -= memory[job, i]
        if form == PLAIN:
            bits[job] = 8 * d * v.itemsize
            for i in range(d):
                sent[job, i] = v[j, i]
        elif form == SINGLE:
            bits[job] = 32 * d
            for i in range(d):
                sent[job, i] = cast(f32(v[j, i]))
        else:
            norm = wire_norm(v[j])
            if norm <= LARGEST:
                scale, unit = top / norm if norm > 0.0 else 0.0, norm / top
                k0, k1, k2, k3 = coins[job, 0], coins[job, 1], coins[job, 2], coins[job, 3]
                for b in range(len(words) // 4):
                    w0, w1, w2, w3 = philox(u32(b), u32(0), k2, k3, k0, k1)
                    words[4 * b], words[4 * b + 1], words[4 * b + 2], words[4 * b + 3] = w0, w1, w2, w3
                bits[job] = 32 + d * lengths[0]
                if form == FIXED:
                    for i in range(d):
                        sent[job, i] = _level(f64(v[j, i]), words[i], scale, top) * unit + 0.0
                else:
                    for i in range(d):
                        level = _level(f64(v[j, i]), words[i], scale, top)
                        sent[job, i] = level * unit + 0.0
                        words[i] = u32(i32(abs(level)))
                    bits[job] = 32 + elias_row(words[:d], lengths, form)
            else:
                bits[job] = 0
                for i in range(d):
                    sent[job, i] = cast(np.nan)
        if len(memory):
            for i in range(d):
                new_memory[job, i] = memory[job, i] + cast(rate) * sent[job, i]


def wire_form(
    d: int, dtype: str | None, levels: int | None, code: str | None, form: str | None
) -> tuple[int, Array, int]:
    """Return (levels, lengths, form) of a codec by its fields; None for fields that it does not have."""
    if levels is None:
        return 1, np.zeros(1, np.uint8), SINGLE if dtype == "float32" else PLAIN
    if code is None:
        return levels, np.array([1 + levels.bit_length()], np.uint8), FIXED
    return levels, elias_lengths(max(d, levels) + 1, code), FORMS[form or "auto"]


@intrinsic
def _sum_of_rows(typing: Typing, x: Type, first: Type, chosen: Type, j: Type, size: Type, column: Type, v: Type) -> Any:
    """Set v[j, column : column + SPAN] to the sum of x[first + chosen[j, r]] over r < size, in registers."""
    element = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
    lanes = ir.VectorType(element[v.dtype], SPAN)
    resize = "fptrunc" if v.dtype == types.float32 else "fpext"

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        def at(k: int, row: Value, column: Value) -> Any:
            array = context.make_array(signature.args[k])(context, builder, args[k])
            width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
            return builder.gep(array.data, [builder.add(builder.mul(row, width), column)])

        def vector(kind: Type, pointer: Value) -> Any:
            return builder.bitcast(pointer, ir.VectorType(element[kind.dtype], SPAN).as_pointer())

        _, first, _, j, size, column, _ = args
        total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * SPAN))
        with cgutils.for_range(builder, size) as loop:
            row = builder.add(first, builder.load(at(2, j, loop.index)))
            values = builder.load(vector(x, at(0, row, column)), align=x.dtype.bitwidth // 8)
            if x.dtype != v.dtype:
                values = getattr(builder, resize)(values, lanes)
            builder.store(builder.fadd(builder.load(total), values), total)
        builder.store(builder.load(total), vector(v, at(6, j, column)), align=v.dtype.bitwidth // 8)
        return context.get_dummy_value()

    int64 = types.int64
    return types.void(x, int64, chosen, int64, int64, int64, v), build


@jit
def _add_rows(x, first, chosen, size, n, v):
    """Set v[j] to the sum of the rows chosen[j], for j < n."""
    d = v.shape[1]
    if d < SPAN:
        for j in range(n):
            for i in range(d):
                v[j, i] = 0
            for r in range(size):
                row = first + chosen[j, r]
                for i in range(d):
                    v[j, i] += x[row, i]
        return
    for j in range(n):
        for column in range(0, d - SPAN + 1, SPAN):
            _sum_of_rows(x, first, chosen, j, size, column, v)
        if d % SPAN:  # the last columns, with some that are done already: the same sums
            _sum_of_rows(x, first, chosen, j, size, d - SPAN, v)


@jit
def _multiply_precision(precision, c, scale, n, t, v):
    """Set v[j] = scale P_c v[j]; P is diagonal if `precision` has two axes. `t` (d,) is scratch."""
    d, at = v.shape[1], c if len(precision) > 1 else 0
    for j in range(n):
        if precision.ndim == 2:
            for i in range(d):
                v[j, i] = scale * (precision[at, i] * v[j, i])
        else:
            for i in range(d):
                t[i] = v[j, i]
                v[j, i] = 0
            for k in range(d):  # P is symmetric: its rows are its columns
                for i in range(d):
                    v[j, i] += precision[at, k, i] * t[k]
            for i in range(d):
                v[j, i] *= scale


@jit
def gaussian(
    theta, at, x, offsets, sums, precision, client, order, rows, key, control, anchor, memory, rate, coins, levels,
    lengths, form, sent, bits, new_memory,
):  # fmt: skip
    jobs, d = sent.shape
    cast = theta.dtype.type
    lanes, targets, place, chosen = scratch(client, offsets, rows)
    v, t = np.empty((lanes, d), theta.dtype), np.empty(d, theta.dtype)
    rounding = np.empty((d + SPAN - 1) // SPAN * SPAN, np.uint32)
    begin = 0
    while begin < jobs:
        end = group(client, order, begin, lanes)
        c = client[order[begin]]
        n, m, scale = offsets[c + 1] - offsets[c], rows[c], cast(1)
        if len(control):  # the data cancel in the difference, and with them the minibatch
            for j in range(end - begin):
                model = at[order[begin + j]]
                for i in range(d):
                    v[j, i] = cast(n) * (theta[model, i] - control[model, i])
        elif len(key) == 0:
            for j in range(end - begin):
                model = at[order[begin + j]]
                for i in range(d):
                    v[j, i] = cast(n) * theta[model, i] - sums[c, i]
        else:
            choose_group(key, order, begin, end, n, m, targets, place, chosen)
            _add_rows(x, offsets[c], chosen, m, end - begin, v)
            for j in range(end - begin):
                model = at[order[begin + j]]
                for i in range(d):
                    v[j, i] = cast(m) * theta[model, i] - v[j, i]
            scale = cast(n / m)
        _multiply_precision(precision, c, scale, end - begin, t, v)
        send_group(
            v, order, begin, end, anchor, memory, rate, coins, levels, lengths, form, rounding, sent, bits, new_memory
        )
        begin = end


def gaussian_messages(
    theta: Array, x: Array, offsets: Array, sums: Array, precision: Array, client: Array, rows: Array | None,
    key: Array | None, terms: tuple[Any, ...], wire: tuple[Any, ...],
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return (sent, bits, memory). Gradients are sums of P (theta - x_row); `sums` (clients, d) are of all rows.

    `precision` is (1 or clients, d, d), or (1 or clients, d) if the matrices are diagonal; `terms` are control,
    anchor, memory and rate, `wire` is coins and a `wire_form`.
    """
    control, anchor, memory, rate = terms
    rows, key = minibatch(offsets, rows, key if control is None else None)
    order, out = by_client(client, len(rows)), results(theta, memory)
    theta, control, anchor, memory = arrays_of(theta, control, anchor, memory)
    at = np.arange(len(theta))
    gaussian(
        theta, at, x, offsets, sums, precision, client, order, rows, key, control, anchor, memory, rate, *wire, *out
    )
    return out


def results(theta: Array, memory: Array | None) -> tuple[Array, Array, Array]:
    """Allocate (sent, bits, memory); the memory is empty without one before."""
    new_memory = np.empty((0 if memory is None else len(theta), theta.shape[1]), theta.dtype)
    return np.empty_like(theta), np.empty(len(theta), np.int64), new_memory


def arrays_of(theta: Array, *terms: Array | None) -> tuple[Array, ...]:
    """Replace omitted terms by empty arrays, so that a kernel is compiled once for all sets of terms."""
    return tuple(theta[:0] if t is None else np.ascontiguousarray(t) for t in (theta, *terms))


def minibatch(offsets: Array, rows: Array | None, key: Array | None) -> tuple[Array, Array]:
    """Return rows and keys of a minibatch; without a key all rows of each client."""
    return (np.diff(offsets), NO_KEY) if rows is None or key is None else (rows, key)
