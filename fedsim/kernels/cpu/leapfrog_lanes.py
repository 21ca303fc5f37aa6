"""Gradients of logistic regression over all rows of a client for a block of its jobs, compiled: a lane is a job.

Predictors and sums are products of a block of data with a block of lanes, in LLVM's vector types, so that sums stay in
registers; LLVM's own vectoriser would test in every short loop whether arrays overlap. Numbers are added in the order
of `qlsd_logistic`. One job at a time would take 2 to 8 times as long (d = 124 to 5, 16 jobs a client).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedsim.arrays import Array
from fedsim.kernels.cache import jit
from fedsim.kernels.cpu.elementary import exp32, exp64, f32
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

BYTES = 64  # of a vector of lanes: eight float64 or sixteen float32 numbers
TILE = 32  # rows whose predictors are computed together


class _Lanes:
    """Code that the two intrinsics below share: addresses, loads and stores of vectors of `size` bytes."""

    def __init__(
        self, context: Context, builder: Builder, signature: Signature, args: Sequence[Value], size: int
    ) -> None:
        self.builder, self.context, self.signature, self.args = builder, context, signature, args
        self.width = signature.args[0].dtype.bitwidth // 8
        element = ir.FloatType() if self.width == 4 else ir.DoubleType()
        self.kind = ir.VectorType(element, size // self.width)

    def data(self, k: int) -> Any:
        return self.context.make_array(self.signature.args[k])(self.context, self.builder, self.args[k]).data

    def step(self, first: Value, by: Value, count: Value) -> Any:
        count = ir.Constant(first.type, count) if isinstance(count, int) else count
        return self.builder.add(first, self.builder.mul(by, count))

    def place(self, data: Value, index: Value) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [index]), self.kind.as_pointer())

    def load(self, place: Value) -> Any:
        return self.builder.load(place, align=self.width)

    def store(self, value: Value, place: Value) -> None:
        self.builder.store(value, place, align=self.width)

    def add_product(self, total: Value, data: Value, index: Value, factor: Value) -> None:
        """Add data[index] in all lanes times factor to `total`."""
        b, undefined = self.builder, ir.Constant(self.kind, ir.Undefined)
        one = b.insert_element(undefined, b.load(b.gep(data, [index])), ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.kind.count), [0] * self.kind.count)
        b.store(b.fadd(b.load(total), b.fmul(b.shuffle_vector(one, undefined, zeros), factor)), total)


@intrinsic
def _scores(typing: Typing, x: Type, start: Type, d: Type, t: Type, z: Type, into: Type) -> Any:
    """Set z[into + lane] to the sum over i < d of x[start + i] t[i, lane], in eight columns, the rest in the first."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        v = _Lanes(context, builder, signature, args, BYTES // 2)  # eight vectors of half the lanes fill the registers
        (_, start, d, _, _, into), (x, t, z) = args, (v.data(k) for k in (0, 3, 4))
        number = lambda value: ir.Constant(d.type, value)  # noqa: E731
        pitch = number(2 * v.kind.count)
        blocks, rest = builder.lshr(d, number(3)), builder.and_(d, number(7))
        for half in (number(0), number(v.kind.count)):
            c = [cgutils.alloca_once_value(builder, ir.Constant(v.kind, [0.0] * v.kind.count)) for _ in range(8)]
            with cgutils.for_range(builder, blocks) as loop:
                for k in range(8):
                    i = builder.add(builder.shl(loop.index, number(3)), number(k))
                    v.add_product(c[k], x, builder.add(start, i), v.load(v.place(t, v.step(half, pitch, i))))
            with cgutils.for_range(builder, rest) as loop:
                i = builder.add(builder.shl(blocks, number(3)), loop.index)
                v.add_product(c[0], x, builder.add(start, i), v.load(v.place(t, v.step(half, pitch, i))))
            e = [builder.load(each) for each in c]
            left, right = (builder.fadd(builder.fadd(e[k], e[k + 4]), builder.fadd(e[k + 1], e[k + 5])) for k in (0, 2))
            v.store(builder.fadd(left, right), v.place(z, builder.add(into, half)))
        return context.get_dummy_value()

    int64 = types.int64
    return types.void(x, int64, int64, t, z, int64), build


def _sums(height: int) -> Callable[..., Any]:
    @intrinsic
    def sums(typing: Typing, x: Type, start: Type, d: Type, rows: Type, z: Type, g: Type, into: Type) -> Any:
        """Add to g[into + k, lane] the sum over r < rows of x[start + r d + k] z[r, lane], for k < height."""

        def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
            v = _Lanes(context, builder, signature, args, BYTES)
            (_, start, d, rows, _, _, into), (x, z, g) = args, (v.data(k) for k in (0, 4, 5))
            pitch = ir.Constant(d.type, v.kind.count)
            places = [v.place(g, v.step(builder.mul(into, pitch), pitch, k)) for k in range(height)]
            totals = [cgutils.alloca_once_value(builder, v.load(place)) for place in places]
            with cgutils.for_range(builder, rows) as loop:
                factor, head = v.load(v.place(z, builder.mul(loop.index, pitch))), v.step(start, d, loop.index)
                for k, total in enumerate(totals):
                    v.add_product(total, x, builder.add(head, ir.Constant(d.type, k)), factor)
            for place, total in zip(places, totals, strict=True):
                v.store(builder.load(total), place)
            return context.get_dummy_value()

        int64 = types.int64
        return types.void(x, int64, int64, int64, z, g, int64), build

    return sums  # type: ignore[no-any-return]


_one_sum, _four_sums = _sums(1), _sums(4)


def _residuals(z: Array, labels: Array, size: int) -> None:
    """Convert z to 1 / (1 + exp(-z)) - label, in place; `overload` dispatches on its dtype."""
    raise NotImplementedError


@overload(_residuals)
def _residuals_of(z, labels, size):
    if z.dtype == types.float32:

        def residuals32(z, labels, size):
            for r in range(size):
                z[r] = f32(1) / (f32(1) + exp32(-z[r])) - labels[r]

        return residuals32

    def residuals64(z, labels, size):
        for r in range(size):
            z[r] = 1.0 / (1.0 + exp64(-z[r])) - labels[r]

    return residuals64


@jit
def lane_sums(x, y, first, rows, t, z, labels, g):
    """Set g (d, lanes) to the sums over a client's rows of (p(x t) - y) x, for parameters t (d, lanes)."""
    d, lanes = x.shape[1], BYTES // g.itemsize
    g[: d * lanes] = 0
    for tile in range(0, rows, TILE):
        n, top = min(TILE, rows - tile), (first + tile) * d
        for r in range(n):
            _scores(x, top + r * d, d, t, z, r * lanes)
            for j in range(lanes):
                labels[r * lanes + j] = y[first + tile + r]
        _residuals(z, labels, n * lanes)
        for i in range(0, d - 3, 4):
            _four_sums(x, top + i, d, n, z, g, i)
        for i in range(d - d % 4, d):
            _one_sum(x, top + i, d, n, z, g, i)
