# mypy: disable-error-code="attr-defined"
"""Sixteen float32 numbers as one value, for kernels that keep their sums in registers.

Every lane is rounded by itself and sums are taken in a fixed order, so bits do not depend on how wide the processor's
own vectors are. Arrays are C-contiguous (rows, columns), columns a multiple of LANES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.kernels.cpu.elementary import jit
from fedsim.kernels.intrinsics import (
    Builder,
    Context,
    PrimitiveModel,
    Signature,
    Type,
    Typing,
    Value,
    cgutils,
    intrinsic,
    ir,
    register_model,
    types,
)

LANES = 16
VECTOR = ir.VectorType(ir.FloatType(), LANES)
PLACES = ir.VectorType(ir.IntType(32), LANES)


class Vector(Type):
    """The type of such a value, inside a kernel: it is never handed to Python."""

    def __init__(self) -> None:
        super().__init__(name=f"float32 x {LANES}")


@register_model(Vector)
class _InOneRegister(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Type) -> None:
        super().__init__(manager, kind, VECTOR)


vector = Vector()


@jit
def aligned(rows, columns):
    """Zeros (rows, columns up to a multiple of LANES); a vector never lies across two lines of memory."""
    width = -(-columns // LANES) * LANES
    room = np.zeros(rows * width + LANES, np.float32)
    first = -(room.ctypes.data // 4) % LANES
    return room[first : first + rows * width].reshape(rows, width)


def _address(context: Context, builder: Builder, kind: Type, args: Sequence[Value]) -> Any:
    """Of array[row, column], the first of the lanes."""
    array = context.make_array(kind)(context, builder, args[0])
    width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
    at = builder.gep(array.data, [builder.add(builder.mul(args[1], width), args[2])])
    return builder.bitcast(at, VECTOR.as_pointer())


@intrinsic
def load(typing: Typing, array: Type, row: Type, column: Type) -> Any:
    """array[row, column : column + LANES]."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        return builder.load(_address(context, builder, array, args), align=4)

    return vector(array, types.int64, types.int64), build


@intrinsic
def store(typing: Typing, array: Type, row: Type, column: Type, value: Type) -> Any:
    """array[row, column : column + LANES] = value."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        builder.store(args[3], _address(context, builder, array, args), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, vector), build


@intrinsic
def everywhere(typing: Typing, number: Type) -> Any:
    """The number in all lanes."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        nothing = ir.Constant(VECTOR, ir.Undefined)
        first = builder.insert_element(nothing, args[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(PLACES, [0] * LANES))

    return vector(types.float32), build


@intrinsic
def multiply_add(typing: Typing, a: Type, b: Type, c: Type) -> Any:
    """a * b + c, lane by lane, each rounded once."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
        fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
        return builder.call(fused, args)

    return vector(vector, vector, vector), build


def _fold(builder: Builder, a: Value, b: Value, parts: int) -> Any:
    """`a` and `b`, each of so many sums in progress, in one vector: of every sum, the upper half added to the lower."""
    size = LANES // parts
    lower = [side * LANES + part * size + i for side in (0, 1) for part in range(parts) for i in range(size // 2)]
    upper = [i + size // 2 for i in lower]
    halves = (builder.shuffle_vector(a, b, ir.Constant(PLACES, which)) for which in (lower, upper))
    return builder.fadd(*halves)


@intrinsic
def totals(typing: Typing, a: Type, b: Type, c: Type, d: Type) -> Any:
    """The sum of the lanes of each: the upper half is added to the lower, until one is left."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        pairs = (_fold(builder, args[0], args[1], 1), _fold(builder, args[2], args[3], 1))
        four = _fold(builder, *pairs, 2)
        sums = _fold(builder, eight := _fold(builder, four, four, 4), eight, 8)
        each = [builder.extract_element(sums, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, each)

    return types.UniTuple(types.float32, 4)(vector, vector, vector, vector), build
