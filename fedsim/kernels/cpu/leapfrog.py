# mypy: allow-untyped-defs, disable-error-code="untyped-decorator"
"""Hamiltonian trajectories over a flat batch of jobs, compiled.

Shapes as in `langevin`: a lane is a job where d is small, a coordinate where it is large, and d alone decides.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cpu.elementary import inline, jit
from fedsim.kernels.cpu.lanes import GROUP, fill_blocks
from fedsim.kernels.cpu.langevin import JOBS, NARROW, fill_row
from fedsim.kernels.reference.leapfrog import step_sizes
from fedsim.protocols import StepSizes


@inline
def _gradients(h, t, b, g):
    """g <- H t - b, lane by lane."""
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
def quadratic_narrow(theta, hessian, linear, client, private, shared, scale, common, steps, count):
    """In place: for every step size a momentum and `count` leapfrog steps."""
    jobs, d = theta.shape
    lanes = min(JOBS, jobs)
    t, p = np.empty((d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    g, new = np.empty((d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    h, b = np.empty((d * d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    own, all_ = np.zeros((GROUP * d, lanes), theta.dtype), np.zeros((GROUP * d, lanes), theta.dtype)
    s = np.empty(lanes, theta.dtype)
    k, q = np.empty((4, lanes), np.uint32), np.empty((4, lanes), np.uint32)
    w = np.empty((8, lanes), np.uint32)
    blocks = GROUP * d * theta.itemsize // 16
    for begin in range(0, jobs, lanes):
        n = min(lanes, jobs - begin)
        for j in range(n):  # lanes past n repeat whatever the last block left there and are not stored
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
                    fill_blocks(w, step // GROUP * blocks, k, own)
                if common > 0:
                    fill_blocks(w, step // GROUP * blocks, q, all_)
            whole, square, half = steps[step, 0], steps[step, 1], steps[step, 2]
            _gradients(h, t, b, g)
            for i in range(d):
                ti, pi, gi, x, y = t[i], p[i], g[i], own[at * d + i], all_[at * d + i]
                if common > 0:
                    for j in range(lanes):
                        pi[j] = common * y[j] + s[j] * x[j]
                else:
                    for j in range(lanes):
                        pi[j] = s[j] * x[j]
                for j in range(lanes):
                    ti[j] = ti[j] + whole * pi[j] - square * gi[j]
            for _ in range(1, count):
                _gradients(h, t, b, new)
                for i in range(d):
                    ti, pi, gi, ni = t[i], p[i], g[i], new[i]
                    for j in range(lanes):
                        pj = pi[j] - half * (gi[j] + ni[j])
                        pi[j] = pj
                        ti[j] = ti[j] + whole * pj - square * ni[j]
                g, new = new, g
        for j in range(n):
            for i in range(d):
                theta[begin + j, i] = t[i, j]


@inline
def _gradient(h, t, b, g):
    """g <- H t - b of one job; H is symmetric, so its rows are its columns."""
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
def quadratic_wide(theta, hessian, linear, client, private, shared, scale, common, steps, count):
    """The same trajectories with a lane per coordinate."""
    jobs, d = theta.shape
    own, all_ = np.zeros((1, len(steps) * d), theta.dtype), np.zeros((1, len(steps) * d), theta.dtype)
    p, g, new = np.empty(d, theta.dtype), np.empty(d, theta.dtype), np.empty(d, theta.dtype)
    for job in range(jobs):
        t, h, b, s = theta[job], hessian[client[job]], linear[job], scale[job]
        if common < 1:  # normals are numbered on from step to step, so all momenta come in one go
            fill_row(private[job : job + 1], 0, own)
        if common > 0:
            fill_row(shared[job : job + 1], 0, all_)
        for step in range(len(steps)):
            whole, square, half = steps[step, 0], steps[step, 1], steps[step, 2]
            x, y = own[0, step * d : (step + 1) * d], all_[0, step * d : (step + 1) * d]
            _gradient(h, t, b, g)
            for i in range(d):
                p[i] = common * y[i] + s * x[i] if common > 0 else s * x[i]
                t[i] = t[i] + whole * p[i] - square * g[i]
            for _ in range(1, count):
                _gradient(h, t, b, new)
                for i in range(d):
                    p[i] = p[i] - half * (g[i] + new[i])
                    t[i] = t[i] + whole * p[i] - square * new[i]
                g, new = new, g


def leapfrog_quadratic(
    theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array, scale: Array,
    common: float, steps: StepSizes, leapfrog_steps: int,
) -> Array:  # fmt: skip
    """The compiled twin of `leapfrog_reference.leapfrog_quadratic`: same arguments, same bits."""
    out = np.ascontiguousarray(theta).copy()
    cast = out.dtype.type
    kernel = quadratic_narrow if out.shape[1] <= NARROW else quadratic_wide
    kernel(
        out, hessian, np.ascontiguousarray(linear, cast), client, private, shared, np.asarray(scale, cast),
        cast(common), step_sizes(steps, cast), leapfrog_steps,
    )  # fmt: skip
    return out
