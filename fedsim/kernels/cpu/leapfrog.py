"""Hamiltonian trajectories over a flat batch of jobs, compiled.

On quadratic potentials a lane is a job for small d and a coordinate for large d, as in `langevin`. On logistic
regression the jobs of a client run together: a lane is a job where full gradients are computed for at least FEW jobs;
otherwise one job's sums follow the other's. Both add in the same order, so the bits of a job do not depend on others.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import inline, jit
from fedsim.kernels.cpu.draws import choose
from fedsim.kernels.cpu.elementary import u32
from fedsim.kernels.cpu.lanes import GROUP, fill_blocks
from fedsim.kernels.cpu.langevin import JOBS, SMALL_DIM, normals_of_step
from fedsim.kernels.cpu.leapfrog_lanes import BYTES, TILE, lane_sums
from fedsim.kernels.cpu.qlsd import minibatch
from fedsim.kernels.cpu.qlsd_logistic import residual_sums
from fedsim.kernels.cpu.rows import by_client, group
from fedsim.kernels.reference.leapfrog import step_sizes
from fedsim.protocols import StepSizes

FEW = 3  # fewer jobs of a client do not fill the lanes


@inline
def _gradients(h, t, b, g):
    """Set g = H t - b, lane by lane."""
    d, lanes = t.shape
    for i in range(d):
        gi, bi, hi, ti = g[i], b[i], h[i * d], t[0]
        for j in range(lanes):
            gi[j] = hi[j] * ti[j] - bi[j]
        for m in range(1, d):
            hm, tm = h[i * d + m], t[m]
            for j in range(lanes):
                gi[j] += hm[j] * tm[j]


@jit
def small_dim(theta, hessian, linear, client, private, shared, scale, common, steps, count):
    """Draw a momentum and take `count` leapfrog steps for every step size, in place."""
    jobs, d = theta.shape
    lanes = min(JOBS, jobs)
    t, p = np.empty((d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    g, new = np.empty((d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    h, b = np.empty((d * d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    private_noise, shared_noise = np.zeros((GROUP * d, lanes), theta.dtype), np.zeros((GROUP * d, lanes), theta.dtype)
    s = np.empty(lanes, theta.dtype)
    k, q = np.empty((4, lanes), np.uint32), np.empty((4, lanes), np.uint32)
    w = np.empty((8, lanes), np.uint32)
    blocks = GROUP * d * theta.itemsize // 16
    for begin in range(0, jobs, lanes):
        n = min(lanes, jobs - begin)
        for j in range(n):  # lanes from n on hold old numbers and are not stored
            job = begin + j
            s[j] = scale[job]
            for i in range(4):
                k[i, j], q[i, j] = private[job, i], shared[job, i]
            for i in range(d):
                t[i, j], b[i, j] = theta[job, i], linear[job, i]
                for m in range(d):
                    h[i * d + m, j] = hessian[client[job], i, m]
        for step in range(len(steps)):
            at = step % GROUP
            if at == 0:
                if common < 1:
                    fill_blocks(w, step // GROUP * blocks, k, private_noise)
                if common > 0:
                    fill_blocks(w, step // GROUP * blocks, q, shared_noise)
            eta, square, half = steps[step, 0], steps[step, 1], steps[step, 2]
            _gradients(h, t, b, g)
            for i in range(d):
                ti, pi, gi, x, y = t[i], p[i], g[i], private_noise[at * d + i], shared_noise[at * d + i]
                if common > 0:
                    for j in range(lanes):
                        pi[j] = common * y[j] + s[j] * x[j]
                else:
                    for j in range(lanes):
                        pi[j] = s[j] * x[j]
                for j in range(lanes):
                    ti[j] = ti[j] + eta * pi[j] - square * gi[j]
            for _ in range(1, count):
                _gradients(h, t, b, new)
                for i in range(d):
                    ti, pi, gi, ni = t[i], p[i], g[i], new[i]
                    for j in range(lanes):
                        pj = pi[j] - half * (gi[j] + ni[j])
                        pi[j] = pj
                        ti[j] = ti[j] + eta * pj - square * ni[j]
                g, new = new, g
        for j in range(n):
            for i in range(d):
                theta[begin + j, i] = t[i, j]


@inline
def _gradient(h, t, b, g):
    """Set g = H t - b of one job; H is symmetric, so its rows are its columns."""
    d = len(t)
    for i in range(d):
        g[i] = h[0, i] * t[0] - b[i]
    last = 1 + (d - 1) // 4 * 4
    for m in range(1, last, 4):  # four terms at a time, still added one after the other
        h0, h1, h2, h3 = h[m], h[m + 1], h[m + 2], h[m + 3]
        t0, t1, t2, t3 = t[m], t[m + 1], t[m + 2], t[m + 3]
        for i in range(d):
            g[i] = (((g[i] + h0[i] * t0) + h1[i] * t1) + h2[i] * t2) + h3[i] * t3
    for m in range(last, d):
        hm, tm = h[m], t[m]
        for i in range(d):
            g[i] += hm[i] * tm


@jit
def large_dim(theta, hessian, linear, client, private, shared, scale, common, steps, count):
    """Run the same trajectories with a lane per coordinate."""
    jobs, d = theta.shape
    private_noise, shared_noise = np.zeros((1, len(steps) * d), theta.dtype), np.zeros((1, len(steps) * d), theta.dtype)
    p, g, new = np.empty(d, theta.dtype), np.empty(d, theta.dtype), np.empty(d, theta.dtype)
    for job in range(jobs):
        t, h, b, s = theta[job], hessian[client[job]], linear[job], scale[job]
        if common < 1:  # numbers of normals continue from step to step, so all momenta are one draw
            normals_of_step(private[job : job + 1], 0, private_noise)
        if common > 0:
            normals_of_step(shared[job : job + 1], 0, shared_noise)
        for step in range(len(steps)):
            eta, square, half = steps[step, 0], steps[step, 1], steps[step, 2]
            x, y = private_noise[0, step * d : (step + 1) * d], shared_noise[0, step * d : (step + 1) * d]
            _gradient(h, t, b, g)
            for i in range(d):
                p[i] = common * y[i] + s * x[i] if common > 0 else s * x[i]
                t[i] = t[i] + eta * p[i] - square * g[i]
            for _ in range(1, count):
                _gradient(h, t, b, new)
                for i in range(d):
                    p[i] = p[i] - half * (g[i] + new[i])
                    t[i] = t[i] + eta * p[i] - square * new[i]
                g, new = new, g


def leapfrog_quadratic(
    theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array, scale: Array,
    common: float, steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """Return the ends of T trajectories of every job on its quadratic potential."""
    out = np.ascontiguousarray(theta).copy()
    cast = out.dtype.type
    kernel = small_dim if out.shape[1] <= SMALL_DIM else large_dim
    kernel(
        out, hessian, np.ascontiguousarray(linear, cast), client, private, shared, np.asarray(scale, cast),
        cast(common), step_sizes(steps, cast), leapfrog_steps,
    )  # fmt: skip
    return out


@jit
def _momenta(private, shared, order, begin, n, step, scale, common, keys, momenta, shared_noise):
    """Draw the momenta of n jobs together, into the rows of `momenta`; `shared_noise` is scratch."""
    if common < 1:
        for j in range(n):
            keys[j] = private[order[begin + j]]
        normals_of_step(keys[:n], step, momenta[:n])
    else:
        momenta[:n] = 0
    if common > 0:
        for j in range(n):
            keys[j] = shared[order[begin + j]]
        normals_of_step(keys[:n], step, shared_noise[:n])
    for j in range(n):
        s = scale[order[begin + j]]
        for i in range(momenta.shape[1]):
            momenta[j, i] = common * shared_noise[j, i] + s * momenta[j, i] if common > 0 else s * momenta[j, i]


@jit
def logistic(
    theta, x, y, offsets, client, order, factor, ridge, linear, rows, key, private, shared, scale, common, steps, count,
):  # fmt: skip
    """Draw a momentum and take `count` leapfrog steps for every step size, in place. No key: all rows of a client."""
    (jobs, d), cast = theta.shape, theta.dtype.type
    lanes = BYTES // theta.itemsize
    size, most = d * lanes, 0
    for c in client:
        most = max(most, offsets[c + 1] - offsets[c])
    t, p, b = np.zeros(size, theta.dtype), np.zeros(size, theta.dtype), np.zeros(size, theta.dtype)
    g, new, total = np.zeros(size, theta.dtype), np.zeros(size, theta.dtype), np.zeros(size, theta.dtype)
    f, q = np.zeros(size, theta.dtype), np.zeros(size, theta.dtype)
    t_of, total_of, none = t.reshape(lanes, d), total.reshape(lanes, d), theta[:0]
    momenta, shared_noise = np.empty((lanes, d), theta.dtype), np.empty((lanes, d), theta.dtype)
    keys = np.empty((lanes, 4), np.uint32)
    z, labels = np.empty(TILE * lanes, theta.dtype), np.empty(TILE * lanes, theta.dtype)
    place, here = np.arange(most), np.arange(lanes)
    chosen = np.empty((lanes, most), np.int64)
    for j in range(lanes):
        chosen[j] = place
    sampled = len(key) > 0
    draws = 2 * count - 1 if sampled else count
    begin = 0
    while begin < jobs:
        end = group(client, order, begin, lanes)
        n, c = end - begin, client[order[begin]]
        first, population, m = offsets[c], offsets[c + 1] - offsets[c], rows[c]
        together = n >= FEW and not sampled
        down, right = (lanes, 1) if together else (1, d)  # number i of job j is i * down + j * right
        used = size if together else n * d
        for j in range(n):  # lanes from n on hold old numbers and are not stored
            job = order[begin + j]
            for i in range(d):
                at = i * down + j * right
                t[at], f[at], q[at] = theta[job, i], factor[job], ridge[job]
                b[at] = linear[job, i] if len(linear) else cast(0)
        for step in range(len(steps)):
            eta, square, half = steps[step, 0], steps[step, 1], steps[step, 2]
            _momenta(private, shared, order, begin, n, step, scale, common, keys, momenta, shared_noise)
            for j in range(n):
                for i in range(d):
                    p[i * down + j * right] = momenta[j, i]
            for draw in range(draws):
                if sampled:
                    for j in range(n):
                        k = key[order[begin + j]]
                        choose(k[0], k[1], k[2], k[3], u32(step * draws + draw), population, m, place, chosen[j])
                if together:
                    lane_sums(x, y, first, m, t, z, labels, total)
                else:
                    residual_sums(t_of, none, here, x, y, first, here, 0, n, m, cast(1), chosen, z, labels, total_of)
                for at in range(used):
                    new[at] = (f[at] * total[at] + q[at] * t[at]) - b[at]
                if draw > 0 and (draw % 2 == 1 or not sampled):
                    for at in range(used):
                        p[at] = p[at] - half * (g[at] + new[at])
                if draw % 2 == 0 or not sampled:
                    for at in range(used):
                        t[at] = t[at] + eta * p[at] - square * new[at]
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
    """Return the ends of T trajectories of every job on its client's logistic regression."""
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
