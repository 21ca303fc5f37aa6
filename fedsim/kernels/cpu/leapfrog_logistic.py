# mypy: allow-untyped-defs, disable-error-code="import-untyped,attr-defined,untyped-decorator"
"""Hamiltonian trajectories on logistic regression, compiled.

Jobs of one client go side by side. Where they look at all its rows, a lane is a job; on minibatches, and where there
are too few jobs to fill the lanes, one job's sums follow the other's. Both add up in the same order, so a job's bits
do not know its company.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.draws import choose
from fedsim.kernels.cpu.elementary import jit, u32
from fedsim.kernels.cpu.langevin import fill_row
from fedsim.kernels.cpu.leapfrog_lanes import BYTES, TILE, lane_sums
from fedsim.kernels.cpu.qlsd import minibatch
from fedsim.kernels.cpu.qlsd_logistic import residual_sums
from fedsim.kernels.cpu.rows import by_client, group
from fedsim.kernels.reference.leapfrog import step_sizes
from fedsim.protocols import StepSizes

FEW = 3  # jobs that are not worth a block of lanes


@jit
def _momenta(private, shared, order, begin, n, step, scale, common, keys, own, all_):
    """The momenta of n jobs in the rows of `own`; they are drawn together, which is where the speed is."""
    if common < 1:
        for j in range(n):
            keys[j] = private[order[begin + j]]
        fill_row(keys[:n], step, own[:n])
    else:
        own[:n] = 0
    if common > 0:
        for j in range(n):
            keys[j] = shared[order[begin + j]]
        fill_row(keys[:n], step, all_[:n])
    for j in range(n):
        s = scale[order[begin + j]]
        for i in range(own.shape[1]):
            own[j, i] = common * all_[j, i] + s * own[j, i] if common > 0 else s * own[j, i]


@jit
def logistic(
    theta, x, y, offsets, client, order, factor, ridge, linear, rows, key, private, shared, scale, common, steps, count,
):  # fmt: skip
    """In place: for every step size a momentum and `count` leapfrog steps. No key: all rows of a client."""
    (jobs, d), cast = theta.shape, theta.dtype.type
    lanes = BYTES // theta.itemsize
    size, most = d * lanes, 0
    for c in client:
        most = max(most, offsets[c + 1] - offsets[c])
    t, p, b = np.zeros(size, theta.dtype), np.zeros(size, theta.dtype), np.zeros(size, theta.dtype)
    g, new, total = np.zeros(size, theta.dtype), np.zeros(size, theta.dtype), np.zeros(size, theta.dtype)
    f, q = np.zeros(size, theta.dtype), np.zeros(size, theta.dtype)
    t_of, total_of, none = t.reshape(lanes, d), total.reshape(lanes, d), theta[:0]
    own, all_ = np.empty((lanes, d), theta.dtype), np.empty((lanes, d), theta.dtype)
    keys = np.empty((lanes, 4), np.uint32)
    z, labels = np.empty(TILE * lanes, theta.dtype), np.empty(TILE * lanes, theta.dtype)
    place, here = np.arange(most), np.arange(lanes)
    chosen = np.empty((lanes, most), np.int64)
    for j in range(lanes):
        chosen[j] = place
    fresh = len(key) > 0
    draws = 2 * count - 1 if fresh else count
    begin = 0
    while begin < jobs:
        end = group(client, order, begin, lanes)
        n, c = end - begin, client[order[begin]]
        first, population, m = offsets[c], offsets[c + 1] - offsets[c], rows[c]
        together = n >= FEW and not fresh
        down, right = (lanes, 1) if together else (1, d)  # number i of job j is i * down + j * right
        used = size if together else n * d
        for j in range(n):  # lanes past them hold what was there before, and are not stored
            job = order[begin + j]
            for i in range(d):
                at = i * down + j * right
                t[at], f[at], q[at] = theta[job, i], factor[job], ridge[job]
                b[at] = linear[job, i] if len(linear) else cast(0)
        for step in range(len(steps)):
            whole, square, half = steps[step, 0], steps[step, 1], steps[step, 2]
            _momenta(private, shared, order, begin, n, step, scale, common, keys, own, all_)
            for j in range(n):
                for i in range(d):
                    p[i * down + j * right] = own[j, i]
            for draw in range(draws):
                if fresh:
                    for j in range(n):
                        k = key[order[begin + j]]
                        choose(k[0], k[1], k[2], k[3], u32(step * draws + draw), population, m, place, chosen[j])
                if together:
                    lane_sums(x, y, first, m, t, z, labels, total)
                else:
                    residual_sums(t_of, none, here, x, y, first, here, 0, n, m, cast(1), chosen, z, labels, total_of)
                for at in range(used):
                    new[at] = (f[at] * total[at] + q[at] * t[at]) - b[at]
                if draw > 0 and (draw % 2 == 1 or not fresh):
                    for at in range(used):
                        p[at] = p[at] - half * (g[at] + new[at])
                if draw % 2 == 0 or not fresh:
                    for at in range(used):
                        t[at] = t[at] + whole * p[at] - square * new[at]
                    g, new = new, g
        for j in range(n):
            for i in range(d):
                theta[order[begin + j], i] = t[i * down + j * right]
        begin = end


def leapfrog_logistic(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, factor: Array, ridge: Array, linear: Array | None,
    rows: Array | None, key: Array | None, private: Array, shared: Array, scale: Array, common: float,
    steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """The compiled twin of `leapfrog_reference.leapfrog_logistic`: same arguments, same bits."""
    out = np.ascontiguousarray(theta).copy()
    cast, clients = out.dtype.type, len(offsets) - 1
    rows, key = minibatch(offsets, rows, key)
    logistic(
        out, np.ascontiguousarray(x, cast), np.ascontiguousarray(y, cast), offsets, client, by_client(client, clients),
        np.asarray(factor, cast), np.asarray(ridge, cast),
        out[:0] if linear is None else np.ascontiguousarray(linear, cast), rows, key, private, shared,
        np.asarray(scale, cast), cast(common), step_sizes(steps, cast), leapfrog_steps,
    )  # fmt: skip
    return out
