"""Local Langevin steps over a flat batch of jobs, compiled.

Two shapes of the same arithmetic. Where d is small a lane is a job: the block's parameters, tables and noise lie
transposed in the first-level cache and every inner loop runs over neighbouring jobs. Where d is large a lane is a
coordinate of one job. Which one runs depends on d alone, never on the batch, so it cannot change a run's bits.

Local Langevin steps in two dimensions: `langevin.small_dim` with its loops over coordinates written out.

What a block of jobs needs lies in arrays with rows of a fixed length. The compiler then knows that the rows do not
overlap and makes a step one pass over them, where a loop for every coordinate spends its time on starting.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import jit
from fedsim.kernels.cpu.draws import normals32, normals64
from fedsim.kernels.cpu.lanes import GROUP, fill_blocks
from fedsim.kernels.intrinsics import overload
from fedsim.protocols.runtime import LangevinSteps

JOBS = 256  # lanes of a block
SMALL_DIM = 8  # up to this d a lane is a job


def normals_of_step(key: Array, step: int, out: Array) -> None:
    """The d normals of one step of one job into `out` (1, d) (dispatched on its dtype by `overload`)."""
    raise NotImplementedError


@overload(normals_of_step)
def _normals_of_step(key, step, out):
    if out.dtype.bitwidth == 32:
        return lambda key, step, out: normals32(key, step * out.shape[1], 0, out)
    return lambda key, step, out: normals64(key, step * out.shape[1], 0, out)


@jit
def small_dim(theta, hessian, linear, client, private, shared, scale, rho, steps, amplitude):
    """In place: K steps theta <- theta - eta (H theta - b) + amplitude (rho shared + scale private)."""
    jobs, d = theta.shape
    lanes = min(JOBS, jobs)
    t, g = np.empty((d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    h, b = np.empty((d * d, lanes), theta.dtype), np.empty((d, lanes), theta.dtype)
    own, common = np.zeros((GROUP * d, lanes), theta.dtype), np.zeros((GROUP * d, lanes), theta.dtype)
    s = np.empty(lanes, theta.dtype)
    k, q = np.empty((4, lanes), np.uint32), np.empty((4, lanes), np.uint32)
    w = np.empty((8, lanes), np.uint32)
    blocks = GROUP * d * theta.itemsize // 16
    for begin in range(0, jobs, lanes):
        n = min(lanes, jobs - begin)
        for j in range(n):  # lanes past n repeat whatever the last block left there and are not stored
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
                    fill_blocks(w, step // GROUP * blocks, k, own)
                if rho > 0:
                    fill_blocks(w, step // GROUP * blocks, q, common)
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
                ti, gi, x, y = t[i], g[i], own[at * d + i], common[at * d + i]
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
    """The same steps with a lane per coordinate; H is symmetric, so its rows are its columns."""
    jobs, d = theta.shape
    own, common = np.zeros((1, d), theta.dtype), np.zeros((1, d), theta.dtype)
    g = np.empty(d, theta.dtype)
    for job in range(jobs):
        t, h, b, s = theta[job], hessian[client[job]], linear[client[job]], scale[job]
        for step in range(len(steps)):
            if rho < 1:
                normals_of_step(private[job : job + 1], step, own)
            if rho > 0:
                normals_of_step(shared[job : job + 1], step, common)
            for i in range(d):
                g[i] = h[0, i] * t[0] - b[i]
            for m in range(1, d):
                hm, tm = h[m], t[m]
                for i in range(d):
                    g[i] += hm[i] * tm
            eta, a = steps[step], amplitude[step]
            if rho > 0:
                for i in range(d):
                    t[i] = t[i] - eta * g[i] + a * (rho * common[0, i] + s * own[0, i])
            else:
                for i in range(d):
                    t[i] = t[i] - eta * g[i] + a * (s * own[0, i])


def langevin_quadratic(dim: int) -> LangevinSteps:
    """Return the compiled twin of what `reference.langevin_quadratic` returns: same arguments, same bits."""
    kernel: LangevinSteps = dim2 if dim == 2 else small_dim if dim <= SMALL_DIM else large_dim
    return kernel


LANES = 512  # jobs of a block
T0, T1, H00, H01, H10, H11, B0, B1, S = (row * LANES for row in range(9))


@jit
def _private_step(held, own, eta, a, lanes):
    """theta <- theta - eta (H theta - b) + a scale private; `own` begins at the step's two rows."""
    for j in range(lanes):
        t0, t1, s = held[T0 + j], held[T1 + j], held[S + j]
        g0 = held[H00 + j] * t0 - held[B0 + j] + held[H01 + j] * t1
        g1 = held[H10 + j] * t0 - held[B1 + j] + held[H11 + j] * t1
        held[T0 + j] = t0 - eta * g0 + a * (s * own[j])
        held[T1 + j] = t1 - eta * g1 + a * (s * own[LANES + j])


@jit
def _correlated_step(held, own, common, eta, a, rho, lanes):
    """The same with noise a (rho shared + scale private)."""
    for j in range(lanes):
        t0, t1, s = held[T0 + j], held[T1 + j], held[S + j]
        g0 = held[H00 + j] * t0 - held[B0 + j] + held[H01 + j] * t1
        g1 = held[H10 + j] * t0 - held[B1 + j] + held[H11 + j] * t1
        held[T0 + j] = t0 - eta * g0 + a * (rho * common[j] + s * own[j])
        held[T1 + j] = t1 - eta * g1 + a * (rho * common[LANES + j] + s * own[LANES + j])


@jit
def dim2(theta, hessian, linear, client, private, shared, scale, rho, steps, amplitude):
    """In place: K steps of every job, d = 2. Lanes past the last job compute what nobody reads."""
    jobs = theta.shape[0]
    lanes = min(LANES, jobs)
    held, own, common = (
        np.zeros(9 * LANES, theta.dtype),
        np.zeros(8 * LANES, theta.dtype),
        np.zeros(8 * LANES, theta.dtype),
    )
    own_rows, common_rows = own.reshape(8, LANES), common.reshape(8, LANES)  # of which `lanes` are filled
    k, q, w = np.zeros((4, lanes), np.uint32), np.zeros((4, lanes), np.uint32), np.empty((8, lanes), np.uint32)
    blocks = 2 * GROUP * theta.itemsize // 16
    for begin in range(0, jobs, lanes):
        n = min(lanes, jobs - begin)
        for j in range(n):
            job = begin + j
            c = client[job]
            held[T0 + j], held[T1 + j], held[S + j] = theta[job, 0], theta[job, 1], scale[job]
            held[H00 + j], held[H01 + j] = hessian[c, 0, 0], hessian[c, 0, 1]
            held[H10 + j], held[H11 + j] = hessian[c, 1, 0], hessian[c, 1, 1]
            held[B0 + j], held[B1 + j] = linear[c, 0], linear[c, 1]
            for i in range(4):
                k[i, j], q[i, j] = private[job, i], shared[job, i]
        for first in range(0, len(steps), GROUP):
            if rho < 1:
                fill_blocks(w, first // GROUP * blocks, k, own_rows)
            if rho > 0:
                fill_blocks(w, first // GROUP * blocks, q, common_rows)
            eta, a = steps[first : first + GROUP], amplitude[first : first + GROUP]
            for i in range(len(eta)):
                row = 2 * i * LANES
                if rho > 0:
                    _correlated_step(held, own[row:], common[row:], eta[i], a[i], rho, lanes)
                else:
                    _private_step(held, own[row:], eta[i], a[i], lanes)
        for j in range(n):
            theta[begin + j, 0], theta[begin + j, 1] = held[T0 + j], held[T1 + j]
