# mypy: allow-untyped-defs
"""Local gradient descent on linear and logistic regression: all steps of a job before the next job.

Few clients' rows are in the cache when a round begins, and fetching a row takes longer than using it. So the rows of
the job after next are asked for while a job computes. The bits are those of the same steps taken one at a time.

Local gradient descent on ReLU networks: all steps of a job before the next job, so that its parameters stay cached.

The bits are those of the same steps taken one at a time: the same rows, products and roundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.kernels.cpu.classification import _backpropagate
from fedsim.kernels.cpu.draws import choose_rows
from fedsim.kernels.cpu.elementary import jit
from fedsim.kernels.cpu.rows import fetch
from fedsim.kernels.cpu.sums import TILE, linear_rows
from fedsim.kernels.intrinsics import Builder, Context, Signature, Type, Typing, Value, cgutils, intrinsic, ir, types

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
def descend_regression(theta, x, y, offsets, client, key, sizes, counts, logistic, scale, share, up, eta, delta):
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


@jit
def step(theta, gradient, pull, up, eta):
    """theta -= eta (up (gradient + pull theta)), each product rounded by itself."""
    if pull != 0:
        for i in range(len(theta)):
            gradient[i] += pull * theta[i]
    for i in range(len(theta)):
        theta[i] -= up * gradient[i] * eta


@jit
def descend_network(theta, x, y, offsets, client, key, sizes, counts, widths, scale, shift, pull, up, eta, delta):
    """delta (jobs, d): how far theta comes in len(eta) steps; `eta` (steps, jobs) multiplies gradients scaled `up`."""
    most = counts.max()
    rows, labels = np.empty(most, np.int64), np.empty(most, np.int64)
    fetched = np.empty((most, x.shape[1]), theta.dtype)
    both = np.empty((2, theta.shape[1]), theta.dtype)
    own, gradient = both[:1], both[1:]
    job, begin, fresh = np.zeros(1, np.int64), np.zeros(2, np.int64), np.ones(1, np.bool_)
    for j in range(len(client)):
        n, first = counts[j], offsets[client[j]]
        begin[1] = n
        own[0] = theta[j]
        for k in range(len(eta)):
            choose_rows(key[j : j + 1], sizes[j : j + 1], begin, k, rows[:n])
            fetch(x, y, first, rows, 0, n, scale, shift, fetched, labels)
            _backpropagate(own, fetched[:n], labels[:n], job, begin, fresh, widths, gradient)
            step(own[0], gradient[0], pull[j], up[j], eta[k, j])
        for i in range(theta.shape[1]):
            delta[j, i] = own[0, i] - theta[j, i]
