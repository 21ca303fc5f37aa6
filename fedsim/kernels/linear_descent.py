# mypy: allow-untyped-defs
"""Local gradient descent on linear and logistic regression: all steps of a job before the next job.

Few clients' rows are in the cache when a round begins, and fetching a row takes longer than using it. So the rows of
the job after next are asked for while a job computes. The bits are those of the same steps taken one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.kernels.draws import choose_rows
from fedsim.kernels.elementary import jit
from fedsim.kernels.gradients import TILE, linear_rows
from fedsim.kernels.llvm import Builder, Context, Signature, Type, Typing, Value, cgutils, intrinsic, ir, types

LINE = 64  # bytes of the memory's lines
AHEAD = 2  # jobs whose first rows are on their way


@intrinsic
def _prefetch(typing: Typing, x: Type, row: Type, column: Type) -> Any:
    """Ask for the line of memory that holds x[row, column]; nothing waits for it."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        array = context.make_array(x)(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        at = builder.gep(array.data, [builder.add(builder.mul(args[1], width), args[2])])
        byte, whole = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, whole, whole, whole])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = (ir.Constant(whole, n) for n in (0, 3, 1))
        builder.call(ask, [builder.bitcast(at, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(x, types.int64, types.int64), build


@jit
def _ask_for(x, first, rows, begin, end):
    line = LINE // x.itemsize
    for r in range(begin, end):
        for column in range(0, x.shape[1] + line - 1, line):
            _prefetch(x, first + rows[r], min(column, x.shape[1] - 1))


@jit
def descend(theta, x, y, offsets, client, key, sizes, counts, logistic, scale, share, up, eta, delta):
    """delta (jobs, d): how far theta comes in len(eta) steps; `eta` (steps, jobs) multiplies gradients scaled `up`."""
    jobs, d = theta.shape
    start = np.zeros(jobs + 1, np.int64)
    for j in range(jobs):
        start[j + 1] = start[j] + counts[j]
    rows, t, gradient = np.empty(start[jobs], np.int64), np.empty(d, theta.dtype), np.empty(d, theta.dtype)
    z = np.empty(TILE, theta.dtype)
    choose_rows(key, sizes, start, 0, rows)
    begin = np.zeros(2, np.int64)
    for j in range(min(AHEAD, jobs)):
        _ask_for(x, offsets[client[j]], rows, start[j], start[j + 1])
    for j in range(jobs):
        if j + AHEAD < jobs:
            _ask_for(x, offsets[client[j + AHEAD]], rows, start[j + AHEAD], start[j + AHEAD + 1])
        first, last = start[j], start[j + 1]
        for i in range(d):
            t[i] = theta[j, i]
        for k in range(len(eta)):
            if k > 0:
                begin[1] = last - first
                choose_rows(key[j : j + 1], sizes[j : j + 1], begin, k, rows[first:last])
            linear_rows(t, x, y, offsets[client[j]], rows, first, last, logistic, scale, share, z, gradient)
            for i in range(d):
                t[i] -= up[j] * gradient[i] * eta[k, j]
        for i in range(d):
            delta[j, i] = t[i] - theta[j, i]
