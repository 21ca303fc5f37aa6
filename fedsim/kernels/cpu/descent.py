"""Local gradient descent on minibatches, compiled: all steps of a job before the next, so its parameters stay cached.

The bits are those of the same steps taken one at a time. Arguments that all descents share:

    theta (jobs, d), client (jobs,)             the start of each job
    x, y, offsets                               all rows; client c has offsets[c]:offsets[c + 1]
    key uint32 (jobs, 4), sizes, counts (jobs,) minibatches: counts[j] of the client's sizes[j] rows, drawn in each step
    up (jobs,), eta (steps, jobs)               factors of a minibatch's gradient
    ridge (jobs,)                               factor of theta in a minibatch's gradient
    delta (jobs, d)                             the result: the end minus the start of each job
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsim.kernels.cache import jit
from fedsim.kernels.cpu.classification import backpropagate
from fedsim.kernels.cpu.classification_float32 import buffers, from_class_rows, row_gradient, to_class_rows
from fedsim.kernels.cpu.draws import choose_rows_into
from fedsim.kernels.cpu.rows import fetch
from fedsim.kernels.cpu.sums import TILE, linear_rows
from fedsim.kernels.intrinsics import Builder, Context, Signature, Type, Typing, Value, cgutils, intrinsic, ir, types

CACHE_LINE = 64  # bytes
PREFETCHED = 2  # jobs whose first rows are being fetched: fetching a row takes longer than using it


@intrinsic
def _prefetch(typing: Typing, x: Type, row: Type, column: Type) -> Any:
    """Start fetching the cache line of x[row, column]."""

    def build(context: Context, builder: Builder, signature: Signature, args: Sequence[Value]) -> Any:
        array = context.make_array(x)(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        at = builder.gep(array.data, [builder.add(builder.mul(args[1], width), args[2])])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = (ir.Constant(word, n) for n in (0, 3, 1))
        builder.call(prefetch, [builder.bitcast(at, byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(x, types.int64, types.int64), build


@jit
def _prefetch_rows(x, first, rows, begin, end):
    line = CACHE_LINE // x.itemsize
    for r in range(begin, end):
        for column in range(0, x.shape[1] + line - 1, line):
            _prefetch(x, first + rows[r], min(column, x.shape[1] - 1))


@jit
def descend_regression(theta, x, y, offsets, client, key, sizes, counts, logistic, scale, share, up, eta, delta):
    """Descend on linear or logistic regression."""
    jobs, d = theta.shape
    start = np.zeros(jobs + 1, np.int64)
    for j in range(jobs):
        start[j + 1] = start[j] + counts[j]
    rows, t, gradient = np.empty(start[jobs], np.int64), np.empty(d, theta.dtype), np.empty(d, theta.dtype)
    z = np.empty(TILE, theta.dtype)
    choose_rows_into(key, sizes, start, 0, rows)
    begin = np.zeros(2, np.int64)
    for j in range(min(PREFETCHED, jobs)):
        _prefetch_rows(x, offsets[client[j]], rows, start[j], start[j + 1])
    for j in range(jobs):
        if j + PREFETCHED < jobs:
            _prefetch_rows(x, offsets[client[j + PREFETCHED]], rows, start[j + PREFETCHED], start[j + PREFETCHED + 1])
        first, last = start[j], start[j + 1]
        for i in range(d):
            t[i] = theta[j, i]
        for k in range(len(eta)):
            if k > 0:
                begin[1] = last - first
                choose_rows_into(key[j : j + 1], sizes[j : j + 1], begin, k, rows[first:last])
            linear_rows(t, x, y, offsets[client[j]], rows, first, last, logistic, scale, share, z, gradient)
            for i in range(d):
                t[i] -= up[j] * gradient[i] * eta[k, j]
        for i in range(d):
            delta[j, i] = t[i] - theta[j, i]


@jit
def step(theta, gradient, ridge, up, eta):
    """Subtract eta (up (gradient + ridge theta)) from theta, each product rounded separately."""
    if ridge != 0:
        for i in range(len(theta)):
            gradient[i] += ridge * theta[i]
    for i in range(len(theta)):
        theta[i] -= up * gradient[i] * eta


@jit
def descend_network(theta, x, y, offsets, client, key, sizes, counts, widths, scale, shift, ridge, up, eta, delta):
    """Descend on a ReLU network; an empty scale leaves rows unchanged."""
    most = counts.max()
    rows, labels = np.empty(most, np.int64), np.empty(most, np.int64)
    fetched = np.empty((most, x.shape[1]), theta.dtype)
    both = np.empty((2, theta.shape[1]), theta.dtype)
    parameters, gradient = both[:1], both[1:]
    job, begin, first_tile = np.zeros(1, np.int64), np.zeros(2, np.int64), np.ones(1, np.bool_)
    for j in range(len(client)):
        n, first = counts[j], offsets[client[j]]
        begin[1] = n
        parameters[0] = theta[j]
        for k in range(len(eta)):
            choose_rows_into(key[j : j + 1], sizes[j : j + 1], begin, k, rows[:n])
            fetch(x, y, first, rows, 0, n, scale, shift, fetched, labels)
            backpropagate(parameters, fetched[:n], labels[:n], job, begin, first_tile, widths, gradient)
            step(parameters[0], gradient[0], ridge[j], up[j], eta[k, j])
        for i in range(theta.shape[1]):
            delta[j, i] = parameters[0, i] - theta[j, i]


@jit
def descend_softmax_float32(
    theta, x, y, offsets, client, key, sizes, counts, classes, bias, scale, shift, ridge, up, eta, delta
):
    """Descend on softmax regression in float32; an empty scale leaves rows unchanged."""
    most = counts.max()
    weights, biases, slopes, total, fetched, labels, z = buffers(classes, bias, x.shape[1], most)
    rows, begin = np.empty(most, np.int64), np.zeros(2, np.int64)
    for j in range(len(client)):
        n, first = counts[j], offsets[client[j]]
        begin[1] = n
        to_class_rows(theta[j], weights, biases)
        for k in range(len(eta)):
            choose_rows_into(key[j : j + 1], sizes[j : j + 1], begin, k, rows[:n])
            row_gradient(x, y, first, rows[:n], n, weights, biases, scale, shift, fetched, labels, z, slopes, total)
            step(weights.reshape(-1), slopes.reshape(-1), ridge[j], up[j], eta[k, j])
            step(biases, total, ridge[j], up[j], eta[k, j])
        from_class_rows(weights, biases, delta[j])
        for i in range(theta.shape[1]):
            delta[j, i] -= theta[j, i]
