"""Sums over rows of data for a flat batch of jobs, and sums over the replies of a replica, compiled.

`rows` are the chosen rows of all jobs in one flat array, numbered inside their client; job i has
start[i]:start[i + 1]. ALL_ROWS in their place stands for all rows of each client.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import jit
from fedsim.kernels.compiler import jit as inner
from fedsim.kernels.cpu.elementary import exp32, exp64, f32, log64
from fedsim.kernels.reference.sums import gradients as looped_gradients
from fedsim.protocols import BatchedGradients, ProblemLike, Rows, call

TILE = 64  # rows whose linear predictors are computed together
ALL_ROWS = (np.empty(0, np.int64), np.zeros(1, np.int64))


def gradients(problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array:
    """Return the clients' sum gradients, by `problem.gradients` where it exists."""
    if _is_batched(type(problem)) or isinstance(problem, BatchedGradients):
        return np.asarray(call(problem, "gradients", np.ascontiguousarray(theta), clients, rows))
    return looped_gradients(problem, theta, clients, rows)


@cache
def _is_batched(kind: type) -> bool:
    """Return whether a class has batched gradients; `isinstance` with a protocol is slower than a small gradient."""
    return issubclass(kind, BatchedGradients)


@jit
def gaussian_rows(theta, x, offsets, precision, client, rows, start, share, out):
    """Sum (P_c + share I) theta - P_c x_row over the chosen rows; precision is (1 or clients, d, d)."""
    jobs, d = theta.shape
    total = np.empty(d, theta.dtype)
    for job in range(jobs):
        c = client[job]
        begin, m = offsets[c], start[job + 1] - start[job]
        total[:] = 0
        for r in range(start[job], start[job + 1]):
            row = x[begin + rows[r]]
            for i in range(d):
                total[i] += row[i]
        p = precision[c if precision.shape[0] > 1 else 0]
        t, g = theta[job], out[job]
        count = theta.dtype.type(m)
        for i in range(d):
            total[i] = count * t[i] - total[i]
            g[i] = share * count * t[i]
        for k in range(d):  # P is symmetric: its rows are its columns
            for i in range(d):
                g[i] += p[k, i] * total[k]


@jit
def quadratic_full(theta, hessian, linear, client, out):
    """Write hessian_c theta - linear_c into `out`."""
    jobs, d = theta.shape
    for job in range(jobs):
        h, b, t, g = hessian[client[job]], linear[client[job]], theta[job], out[job]
        for i in range(d):
            g[i] = h[0, i] * t[0] - b[i]
        for k in range(1, d):
            for i in range(d):
                g[i] += h[k, i] * t[k]


@jit
def _logistic64(z, n):
    for r in range(n):
        z[r] = 1.0 / (1.0 + exp64(-z[r]))


@jit
def _logistic32(z, n):
    for r in range(n):
        z[r] = f32(1) / (f32(1) + exp32(-z[r]))


@jit
def linear_rows(t, x, y, begin, rows, first, last, logistic, scale, share, z, g):
    """Write a job's gradient over rows[first:last], numbered from `begin`, or over all rows, into g; z is scratch."""
    d, all_rows = len(t), len(rows) == 0
    count = t.dtype.type(last - first)
    for i in range(d):
        g[i] = share * count * t[i]
    for tile in range(first, last, TILE):
        n = min(TILE, last - tile)
        for r in range(n):
            row = x[begin + (tile + r if all_rows else rows[tile + r])]
            # Four partial sums in a fixed order, which overlap.
            a0, a1, a2, a3 = z.dtype.type(0), z.dtype.type(0), z.dtype.type(0), z.dtype.type(0)
            for i in range(0, d - 3, 4):
                a0 += row[i] * t[i]
                a1 += row[i + 1] * t[i + 1]
                a2 += row[i + 2] * t[i + 2]
                a3 += row[i + 3] * t[i + 3]
            for i in range(d - d % 4, d):
                a0 += row[i] * t[i]
            z[r] = (a0 + a1) + (a2 + a3)
        if logistic:
            if t.itemsize == 4:
                _logistic32(z.view(np.float32), n)
            else:
                _logistic64(z.view(np.float64), n)
        for r in range(n):
            at = begin + (tile + r if all_rows else rows[tile + r])
            row = x[at]
            residual = scale * (z[r] - z.dtype.type(y[at]))
            for i in range(d):
                g[i] += residual * row[i]


@jit
def linear_model(theta, x, y, offsets, client, rows, start, logistic, scale, share, out):
    """Sum scale (mu(x theta) - y) x + share theta over rows; mu is the identity or the logistic function."""
    z = np.empty(TILE, theta.dtype)
    for job in range(len(theta)):
        begin = offsets[client[job]]
        first, last = (0, offsets[client[job] + 1] - begin) if len(rows) == 0 else (start[job], start[job + 1])
        linear_rows(theta[job], x, y, begin, rows, first, last, logistic, scale, share, z, out[job])


@jit
def logistic_potentials(theta, x, y, offsets, client, rows, start, share, out):
    """Sum log(1 + exp(-+ x theta)), minus for y = 1, over rows, plus the rows' share of the prior, in float64."""
    z, all_rows = np.empty(TILE), len(rows) == 0
    for job in range(len(theta)):
        t, begin = theta[job], offsets[client[job]]
        first, last = (0, offsets[client[job] + 1] - begin) if all_rows else (start[job], start[job + 1])
        total = 0.0
        for i in range(len(t)):
            total += t[i] * t[i]
        total *= share * (last - first) / 2
        for tile in range(first, last, TILE):
            n = min(TILE, last - tile)
            for r in range(n):
                at = begin + (tile + r if all_rows else rows[tile + r])
                row, score = x[at], 0.0
                for i in range(len(t)):
                    score += row[i] * t[i]
                z[r] = score if y[at] == 0 else -score
            for r in range(n):
                total += max(z[r], 0.0) + log64(1.0 + exp64(-abs(z[r])))
        out[job] = total


@inner
def _segments(values, weights, starts, out):
    for r in range(out.shape[0]):
        total = out[r]
        total[:] = 0
        for row in range(starts[r], starts[r + 1]):
            w = weights[row]
            for i in range(out.shape[1]):
                total[i] += w * values[row, i]


@jit
def langevin_step(values, weights, starts, theta, precision, gamma, spread, noise, out):
    """Take QLSD's server step: out = theta - gamma (sum of w values + precision theta) + spread noise, by replica."""
    _segments(values, weights, starts, out)
    cast = out.dtype.type
    for r in range(out.shape[0]):
        for i in range(out.shape[1]):
            gradient = out[r, i] + precision[r, 0] * theta[r, i]
            out[r, i] = theta[r, i] - cast(gamma) * gradient + cast(spread) * noise[r, i]


@jit
def segment_sum(values, weights, starts):
    """Sum weights[i] * values[i] over starts[r] <= i < starts[r + 1], in that order, into row r."""
    out = np.empty((len(starts) - 1, values.shape[1]), values.dtype)
    _segments(values, weights.astype(values.dtype), starts, out)
    return out
