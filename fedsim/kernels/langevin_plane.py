"""Local Langevin steps in two dimensions: `langevin.quadratic_narrow` with its loops over coordinates written out.

What a block of jobs needs lies in arrays with rows of a fixed length. The compiler then knows that the rows do not
overlap and makes a step one pass over them, where a loop for every coordinate spends its time on starting.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.elementary import jit
from fedsim.kernels.noise import GROUP, fill_blocks

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
def quadratic_plane(theta, hessian, linear, client, private, shared, scale, rho, steps, amplitude):
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
