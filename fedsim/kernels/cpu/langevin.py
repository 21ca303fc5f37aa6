"""Local Langevin steps over a flat batch of jobs, compiled.

Three kernels have the same arithmetic; d alone selects one, so the batch cannot change a run's bits.

    dim2        a lane is a job, and loops over coordinates are unrolled; rows of a fixed length show the compiler that
                they do not overlap, so that it makes a step one pass
    small_dim   a lane is a job: parameters, tables and noise of a block are transposed in the first-level cache
    large_dim   a lane is a coordinate of one job
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import jit
from fedsim.kernels.compiler import jit as inner
from fedsim.kernels.cpu.draws import normals32, normals64
from fedsim.kernels.cpu.lanes import GROUP, fill_blocks
from fedsim.kernels.intrinsics import overload
from fedsim.protocols.runtime import LangevinSteps

JOBS = 256  # lanes of a block
SMALL_DIM = 8  # the largest d for which a lane is a job


def normals_of_step(key: Array, step: int, out: Array) -> None:
    """Draw the d normals of a step into every row of `out`; `overload` dispatches on its dtype."""
    raise NotImplementedError


@overload(normals_of_step)
def _normals_of_step(key, step, out):
    if out.dtype.bitwidth == 32:
        return lambda key, step, out: normals32(key, step * out.shape[1], 0, out)
    return lambda key, step, out: normals64(key, step * out.shape[1], 0, out)


@jit
def small_dim(theta, hessian, linear, client, private, shared, scale, rho, steps, amplitude):
    """Take K steps theta <- theta - eta (H theta - b) + amplitude (rho shared + scale private), in place."""
    jobs, d = theta.shape
    lanes = min(JOBS, jobs)
    t, g = np.empty((d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
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
            c = client[job]
            s[j] = scale[job]
            for i in range(4):
                k[i, j], q[i, j] = private[job, i], shared[job, i]
            for i in range(d):
                t[i, j], b[i, j] = theta[job, i], linear[c, i]
                for m in range(d):
                    h[i * d + m, j] = hessian[c, i, m]
        for step in range(len(steps)):
            at = step % GROUP
            if at == 0:
                if rho < 1:
                    fill_blocks(w, step // GROUP * blocks, k, private_noise)
                if rho > 0:
                    fill_blocks(w, step // GROUP * blocks, q, shared_noise)
            eta, a = steps[step], amplitude[step]
            for i in range(d):
                gi, bi = g[i], b[i]
                hi, ti = h[i * d], t[0]
                for j in range(lanes):
                    gi[j] = hi[j] * ti[j] - bi[j]
                for m in range(1, d):
                    hm, tm = h[i * d + m], t[m]
                    for j in range(lanes):
                        gi[j] += hm[j] * tm[j]
            for i in range(d):
                ti, gi, x, y = t[i], g[i], private_noise[at * d + i], shared_noise[at * d + i]
                if rho > 0:
                    for j in range(lanes):
                        ti[j] = ti[j] - eta * gi[j] + a * (rho * y[j] + s[j] * x[j])
                else:
                    for j in range(lanes):
                        ti[j] = ti[j] - eta * gi[j] + a * (s[j] * x[j])
        for j in range(n):
            for i in range(d):
                theta[begin + j, i] = t[i, j]


@jit
def large_dim(theta, hessian, linear, client, private, shared, scale, rho, steps, amplitude):
    """Take the same steps with a lane per coordinate; H is symmetric, so its rows are its columns."""
    jobs, d = theta.shape
    private_noise, shared_noise = np.zeros((1, d), theta.dtype), np.zeros((1, d), theta.dtype)
    g = np.empty(d, theta.dtype)
    for job in range(jobs):
        t, h, b, s = theta[job], hessian[client[job]], linear[client[job]], scale[job]
        for step in range(len(steps)):
            if rho < 1:
                normals_of_step(private[job : job + 1], step, private_noise)
            if rho > 0:
                normals_of_step(shared[job : job + 1], step, shared_noise)
            for i in range(d):
                g[i] = h[0, i] * t[0] - b[i]
            for m in range(1, d):
                hm, tm = h[m], t[m]
                for i in range(d):
                    g[i] += hm[i] * tm
            eta, a = steps[step], amplitude[step]
            if rho > 0:
                for i in range(d):
                    t[i] = t[i] - eta * g[i] + a * (rho * shared_noise[0, i] + s * private_noise[0, i])
            else:
                for i in range(d):
                    t[i] = t[i] - eta * g[i] + a * (s * private_noise[0, i])


def langevin_quadratic(dim: int) -> LangevinSteps:
    """Return the kernel that takes K Langevin steps of every job; arguments as in `reference.langevin`."""
    kernel: LangevinSteps = dim2 if dim == 2 else small_dim if dim <= SMALL_DIM else large_dim
    return kernel


LANES = 512  # jobs of a block
T0, T1, H00, H01, H10, H11, B0, B1, S = (row * LANES for row in range(9))


@inner
def _private_step(state, private_noise, eta, a, lanes):
    """Take a step theta <- theta - eta (H theta - b) + a scale private; `private_noise` begins at the step's rows."""
    for j in range(lanes):
        t0, t1, s = state[T0 + j], state[T1 + j], state[S + j]
        g0 = state[H00 + j] * t0 - state[B0 + j] + state[H01 + j] * t1
        g1 = state[H10 + j] * t0 - state[B1 + j] + state[H11 + j] * t1
        state[T0 + j] = t0 - eta * g0 + a * (s * private_noise[j])
        state[T1 + j] = t1 - eta * g1 + a * (s * private_noise[LANES + j])


@inner
def _correlated_step(state, private_noise, shared_noise, eta, a, rho, lanes):
    """Take the same step with noise a (rho shared + scale private)."""
    for j in range(lanes):
        t0, t1, s = state[T0 + j], state[T1 + j], state[S + j]
        g0 = state[H00 + j] * t0 - state[B0 + j] + state[H01 + j] * t1
        g1 = state[H10 + j] * t0 - state[B1 + j] + state[H11 + j] * t1
        state[T0 + j] = t0 - eta * g0 + a * (rho * shared_noise[j] + s * private_noise[j])
        state[T1 + j] = t1 - eta * g1 + a * (rho * shared_noise[LANES + j] + s * private_noise[LANES + j])


@jit
def dim2(theta, hessian, linear, client, private, shared, scale, rho, steps, amplitude):
    """Take K steps of every job, d = 2, in place. Lanes past the last job are computed and not read."""
    jobs = theta.shape[0]
    lanes = min(LANES, jobs)
    state, private_noise, shared_noise = (
        np.zeros(9 * LANES, theta.dtype),
        np.zeros(8 * LANES, theta.dtype),
        np.zeros(8 * LANES, theta.dtype),
    )
    private_rows, shared_rows = (
        private_noise.reshape(8, LANES),
        shared_noise.reshape(8, LANES),
    )  # of which `lanes` are filled
    k, q, w = np.zeros((4, lanes), np.uint32), np.zeros((4, lanes), np.uint32), np.empty((8, lanes), np.uint32)
    blocks = 2 * GROUP * theta.itemsize // 16
    for begin in range(0, jobs, lanes):
        n = min(lanes, jobs - begin)
        for j in range(n):
            job = begin + j
            c = client[job]
            state[T0 + j], state[T1 + j], state[S + j] = theta[job, 0], theta[job, 1], scale[job]
            state[H00 + j], state[H01 + j] = hessian[c, 0, 0], hessian[c, 0, 1]
            state[H10 + j], state[H11 + j] = hessian[c, 1, 0], hessian[c, 1, 1]
            state[B0 + j], state[B1 + j] = linear[c, 0], linear[c, 1]
            for i in range(4):
                k[i, j], q[i, j] = private[job, i], shared[job, i]
        for first in range(0, len(steps), GROUP):
            if rho < 1:
                fill_blocks(w, first // GROUP * blocks, k, private_rows)
            if rho > 0:
                fill_blocks(w, first // GROUP * blocks, q, shared_rows)
            eta, a = steps[first : first + GROUP], amplitude[first : first + GROUP]
            for i in range(len(eta)):
                row = 2 * i * LANES
                if rho > 0:
                    _correlated_step(state, private_noise[row:], shared_noise[row:], eta[i], a[i], rho, lanes)
                else:
                    _private_step(state, private_noise[row:], eta[i], a[i], lanes)
        for j in range(n):
            theta[begin + j, 0], theta[begin + j, 1] = state[T0 + j], state[T1 + j]
