"""Hamiltonian trajectories in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.protocols import StepSizes
from fedsim.rng.elementary import exp


def step_sizes(steps: StepSizes, dtype: npt.DTypeLike) -> Array:
    """Return the step size of every trajectory as three numbers: eta, eta^2 / 2, eta / 2."""
    eta = np.asarray(steps, np.float64)
    return np.stack([eta, eta * eta / 2, eta / 2], axis=1).astype(dtype)


def leapfrog_quadratic(
    theta: Array,  # (jobs, d) start of each job
    hessian: Array,  # (clients, d, d), divided by the client's weight
    linear: Array,  # (jobs, d), divided likewise: a job's gradient is hessian[client] @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private momenta
    shared: Array,  # uint32 (jobs, 4) keys of the shared momenta
    scale: Array,  # (jobs,) factor of the private momentum
    common: float,  # factor of the shared momentum; 1 omits the private one
    steps: StepSizes,  # (T,) step sizes, one for each trajectory
    leapfrog_steps: int,
) -> Array:
    """Return the ends of T trajectories of every job on its quadratic potential (FA-HMC, Algorithm 1)."""
    theta = theta.copy()
    d, dtype = theta.shape[1], theta.dtype.type
    h = hessian[client]
    scale = np.asarray(scale, theta.dtype)[:, None]

    def gradient() -> Array:
        out = h[:, 0] * theta[:, :1] - linear
        for i in range(1, d):  # a fixed order; that of BLAS depends on the machine
            out = out + h[:, i] * theta[:, i : i + 1]
        return np.asarray(out)

    for t, (eta, square, half) in enumerate(step_sizes(steps, dtype)):
        p = scale * rng.normal(private, d, t, theta.dtype) if common < 1 else np.zeros_like(theta)
        if common > 0:
            p = dtype(common) * rng.normal(shared, d, t, theta.dtype) + p
        g = gradient()
        theta = theta + eta * p - square * g
        for _ in range(1, leapfrog_steps):
            previous, g = g, gradient()
            p = p - half * (previous + g)
            theta = theta + eta * p - square * g
    return theta


def leapfrog_logistic(
    theta: Array,  # (jobs, d) start of each job
    x: Array,  # (all rows, d), of the dtype of theta, as y
    y: Array,  # (all rows,) labels 0 or 1
    offsets: Array,  # client c has the rows offsets[c]:offsets[c + 1]
    client: Array,  # (jobs,)
    factor: Array,  # (jobs,) factor of the sum over the rows
    ridge: Array,  # (jobs,) factor of theta in a gradient
    linear: Array | None,  # (jobs, d) subtracted from a gradient; None: nothing
    rows: Array | None,  # (clients,) rows of a minibatch, drawn for every gradient; None: all
    key: Array | None,  # uint32 (jobs, 4) keys of the choice of rows
    private: Array,  # this and the following as in `leapfrog_quadratic`
    shared: Array,
    scale: Array,
    common: float,
    steps: StepSizes,
    leapfrog_steps: int,
) -> Array:
    """Return the ends of T trajectories of every job on its client's logistic regression (FA-HMC, Algorithm 1).

    A job's gradient is factor * sum over rows of (1 / (1 + exp(-x_row theta)) - y_row) x_row + ridge * theta - linear.
    A gradient of all rows is computed once per position, that of a minibatch is drawn twice.
    """

    theta = theta.copy()
    d, dtype = theta.shape[1], theta.dtype.type
    scale, factor, ridge = (np.asarray(each, theta.dtype)[:, None] for each in (scale, factor, ridge))
    sampled = rows is not None and key is not None
    draws = 2 * leapfrog_steps - 1 if sampled else leapfrog_steps

    def gradient(draw: int) -> Array:
        total = np.zeros_like(theta)
        for job, number in enumerate(client.tolist()):
            chosen = np.arange(offsets[number], offsets[number + 1])
            if rows is not None and key is not None:
                chosen = offsets[number] + rng.choice(key[job : job + 1], len(chosen), int(rows[number]), draw)[0]
            c = np.zeros((8, len(chosen)), theta.dtype)
            for i in range(d):  # a fixed order: eight columns, the rest in the first
                c[i % 8 if i < d // 8 * 8 else 0] += x[chosen, i] * theta[job, i]
            score = ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]))
            residual = 1 / (1 + exp(-score)) - y[chosen]
            for r, row in zip(residual, chosen, strict=True):
                total[job] = total[job] + r * x[row]
        out = factor * total + ridge * theta
        return np.asarray(out if linear is None else out - linear)

    for t, (eta, square, half) in enumerate(step_sizes(steps, dtype)):
        p = scale * rng.normal(private, d, t, theta.dtype) if common < 1 else np.zeros_like(theta)
        if common > 0:
            p = dtype(common) * rng.normal(shared, d, t, theta.dtype) + p
        g = gradient(t * draws)
        theta = theta + eta * p - square * g
        for k in range(1, leapfrog_steps):
            new = gradient(t * draws + (2 * k - 1 if sampled else k))
            p = p - half * (g + new)
            g = gradient(t * draws + 2 * k) if sampled else new
            theta = theta + eta * p - square * g
    return theta
