"""The plain NumPy form of the leapfrog kernels: short, slow, and the oracle that the compiled ones are held to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.protocols import StepSizes
from fedsim.rng.elementary import exp


def step_sizes(steps: StepSizes, dtype: npt.DTypeLike) -> Array:
    """Every trajectory's step size as the three numbers that a leap needs: itself, half its square, its half."""
    eta = np.asarray(steps, np.float64)
    return np.stack([eta, eta * eta / 2, eta / 2], axis=1).astype(dtype)


def leapfrog_quadratic(
    theta: Array,  # (jobs, d) where each job starts
    hessian: Array,  # (clients, d, d), already divided by the client's weight
    linear: Array,  # (jobs, d), likewise: a job's gradient is hessian[client] @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private momenta
    shared: Array,  # uint32 (jobs, 4) keys of the shared momenta
    scale: Array,  # (jobs,) what multiplies the private momentum
    common: float,  # what multiplies the shared one; 1 leaves the private one out
    steps: StepSizes,  # (T,) step sizes, one for each trajectory
    leapfrog_steps: int,
) -> Array:
    """T Hamiltonian trajectories of every job on its own quadratic potential (FA-HMC, Algorithm 1)."""
    theta = theta.copy()
    d, dtype = theta.shape[1], theta.dtype.type
    h = hessian[client]
    scale = np.asarray(scale, theta.dtype)[:, None]

    def gradient() -> Array:
        out = h[:, 0] * theta[:, :1] - linear
        for i in range(1, d):  # in this order, so that no BLAS decides it
            out = out + h[:, i] * theta[:, i : i + 1]
        return np.asarray(out)

    for t, (whole, square, half) in enumerate(step_sizes(steps, dtype)):
        p = scale * rng.normal(private, d, t, theta.dtype) if common < 1 else np.zeros_like(theta)
        if common > 0:
            p = dtype(common) * rng.normal(shared, d, t, theta.dtype) + p
        g = gradient()
        theta = theta + whole * p - square * g
        for _ in range(1, leapfrog_steps):
            previous, g = g, gradient()
            p = p - half * (previous + g)
            theta = theta + whole * p - square * g
    return theta


def leapfrog_logistic(
    theta: Array,  # (jobs, d) where each job starts
    x: Array,  # (all rows, d), of the dtype of theta as y is
    y: Array,  # (all rows,) labels 0 or 1
    offsets: Array,  # client c owns the rows offsets[c]:offsets[c + 1]
    client: Array,  # (jobs,)
    factor: Array,  # (jobs,) what multiplies the sum over the rows
    ridge: Array,  # (jobs,) what multiplies theta in a gradient
    linear: Array | None,  # (jobs, d) what is taken off a gradient; None: nothing
    rows: Array | None,  # (clients,) rows of a minibatch, drawn afresh for every gradient; None: all
    key: Array | None,  # uint32 (jobs, 4) keys of the choice of rows
    private: Array,  # the others are those of `leapfrog_quadratic`
    shared: Array,
    scale: Array,
    common: float,
    steps: StepSizes,
    leapfrog_steps: int,
) -> Array:
    """T Hamiltonian trajectories of every job on its client's logistic regression (FA-HMC, Algorithm 1).

    A job's gradient is factor * sum over rows of (1 / (1 + exp(-x_row theta)) - y_row) x_row + ridge * theta - linear.
    That of all rows is computed once per position, one of a minibatch is drawn twice.
    """

    theta = theta.copy()
    d, dtype = theta.shape[1], theta.dtype.type
    scale, factor, ridge = (np.asarray(each, theta.dtype)[:, None] for each in (scale, factor, ridge))
    fresh = rows is not None and key is not None
    draws = 2 * leapfrog_steps - 1 if fresh else leapfrog_steps

    def gradient(draw: int) -> Array:
        total = np.zeros_like(theta)
        for job, own in enumerate(client.tolist()):
            chosen = np.arange(offsets[own], offsets[own + 1])
            if rows is not None and key is not None:
                chosen = offsets[own] + rng.choice(key[job : job + 1], len(chosen), int(rows[own]), draw)[0]
            c = np.zeros((8, len(chosen)), theta.dtype)
            for i in range(d):  # in this order, so that no BLAS decides it: eight columns, and the rest in the first
                c[i % 8 if i < d // 8 * 8 else 0] += x[chosen, i] * theta[job, i]
            score = ((c[0] + c[4]) + (c[1] + c[5])) + ((c[2] + c[6]) + (c[3] + c[7]))
            residual = 1 / (1 + exp(-score)) - y[chosen]
            for r, row in zip(residual, chosen, strict=True):
                total[job] = total[job] + r * x[row]
        out = factor * total + ridge * theta
        return np.asarray(out if linear is None else out - linear)

    for t, (whole, square, half) in enumerate(step_sizes(steps, dtype)):
        p = scale * rng.normal(private, d, t, theta.dtype) if common < 1 else np.zeros_like(theta)
        if common > 0:
            p = dtype(common) * rng.normal(shared, d, t, theta.dtype) + p
        g = gradient(t * draws)
        theta = theta + whole * p - square * g
        for k in range(1, leapfrog_steps):
            new = gradient(t * draws + (2 * k - 1 if fresh else k))
            p = p - half * (g + new)
            g = gradient(t * draws + 2 * k) if fresh else new
            theta = theta + whole * p - square * g
    return theta
