# mypy: disable-error-code="attr-defined"
"""LLVM instructions for the few kernels that need them; only this module imports llvmlite.ir.

Numba has no public way to request a vector of lanes, a gather without a bounds check or the bits of a float, and its
compiler does not find them in these loops. `llvmlite.ir`, `numba.core.cgutils` and the signature of an intrinsic's code
generator may change; `tests/package/test_private_doors.py` fails when they do.

A `vector` is sixteen float32 numbers as one value, for sums in registers. Lanes are rounded separately and sums have a
fixed order, so bits do not depend on the width of the processor's vectors. Arrays of vectors are C-contiguous (rows,
columns), columns a multiple of LANES.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from llvmlite.ir import IRBuilder as Builder
from llvmlite.ir import Value
from numba.core import cgutils, types
from numba.core.base import BaseContext as Context
from numba.core.datamodel.models import PrimitiveModel
from numba.core.types import Type
from numba.core.typing.context import BaseContext as Typing
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, overload, register_model

from fedsim.kernels.cache import jit

__all__ = [
    "LANES", "Builder", "Context", "Signature", "Type", "Typing", "Value", "aligned", "as_float", "as_int", "broadcast",
    "cgutils", "fma", "intrinsic", "ir", "load", "multiply_add", "overload", "store", "totals", "types",
]  # fmt: skip

LANES = 16
VECTOR = ir.VectorType(ir.FloatType(), LANES)
INDICES = ir.VectorType(ir.IntType(32), LANES)


@intrinsic
def as_float(typing: Typing, word: Type) -> Any:
    """Reinterpret an integer's bits as the float of the same width."""
    to = types.float32 if word in (types.int32, types.uint32) else types.float64

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        return builder.bitcast(args[0], context.get_value_type(to))

    return to(word), build


@intrinsic
def as_int(typing: Typing, x: Type) -> Any:
    """Reinterpret a float's bits as the signed integer of the same width."""
    to = types.int32 if x == types.float32 else types.int64

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        return builder.bitcast(args[0], context.get_value_type(to))

    return to(x), build


@intrinsic
def fma(typing: Typing, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once, by one instruction; `rng.elementary.fma32` gives the same bits."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        return builder.fma(*args)

    return a(a, b, c), build


class Vector(Type):
    """The type of a vector inside a kernel; it never reaches Python."""

    def __init__(self) -> None:
        super().__init__(name=f"float32 x {LANES}")


@register_model(Vector)
class _InOneRegister(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Type) -> None:
        super().__init__(manager, kind, VECTOR)


vector = Vector()


@jit
def aligned(rows, columns):
    """Return zeros (rows, columns rounded up to a multiple of LANES); no vector crosses a cache line."""
    width = -(-columns // LANES) * LANES
    buffer = np.zeros(rows * width + LANES, np.float32)
    first = -(buffer.ctypes.data // 4) % LANES
    return buffer[first : first + rows * width].reshape(rows, width)


def _address(context: Context, builder: Builder, kind: Type, args: Sequence[Value]) -> Any:
    """Return the address of array[row, column], the first of the lanes."""
    array = context.make_array(kind)(context, builder, args[0])
    width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
    at = builder.gep(array.data, [builder.add(builder.mul(args[1], width), args[2])])
    return builder.bitcast(at, VECTOR.as_pointer())


@intrinsic
def load(typing: Typing, array: Type, row: Type, column: Type) -> Any:
    """Return array[row, column : column + LANES]."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        return builder.load(_address(context, builder, array, args), align=4)

    return vector(array, types.int64, types.int64), build


@intrinsic
def store(typing: Typing, array: Type, row: Type, column: Type, value: Type) -> Any:
    """Set array[row, column : column + LANES] = value."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        builder.store(args[3], _address(context, builder, array, args), align=4)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64, vector), build


@intrinsic
def broadcast(typing: Typing, number: Type) -> Any:
    """Return the number in all lanes."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        undefined = ir.Constant(VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, args[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, undefined, ir.Constant(INDICES, [0] * LANES))

    return vector(types.float32), build


@intrinsic
def multiply_add(typing: Typing, a: Type, b: Type, c: Type) -> Any:
    """Return a * b + c, lane by lane, each rounded once."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
        fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
        return builder.call(fused, args)

    return vector(vector, vector, vector), build


def _add_halves(builder: Builder, a: Value, b: Value, parts: int) -> Any:
    """Add the upper half of each of the `parts` sums in `a` and in `b` to its lower half; return all in one vector."""
    size = LANES // parts
    lower = [side * LANES + part * size + i for side in (0, 1) for part in range(parts) for i in range(size // 2)]
    upper = [i + size // 2 for i in lower]
    halves = (builder.shuffle_vector(a, b, ir.Constant(INDICES, which)) for which in (lower, upper))
    return builder.fadd(*halves)


@intrinsic
def totals(typing: Typing, a: Type, b: Type, c: Type, d: Type) -> Any:
    """Return the sum of the lanes of each vector, by adding the upper half to the lower until one lane is left."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        pairs = (_add_halves(builder, args[0], args[1], 1), _add_halves(builder, args[2], args[3], 1))
        four = _add_halves(builder, *pairs, 2)
        sums = _add_halves(builder, eight := _add_halves(builder, four, four, 4), eight, 8)
        each = [builder.extract_element(sums, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, each)

    return types.UniTuple(types.float32, 4)(vector, vector, vector, vector), build
