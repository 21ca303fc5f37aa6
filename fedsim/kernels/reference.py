"""The plain NumPy form of every compiled kernel: short, slow, and the oracle that the fast ones are held to."""

from __future__ import annotations

import numpy as np

from fedsim import rng
from fedsim.arrays import Array, Numbers
from fedsim.kernels import leapfrog_reference, qlsd_reference
from fedsim.kernels.elementary_reference import exp
from fedsim.protocols import ProblemLike, Rows, StepSizes, as_problem


def langevin_quadratic(
    theta: Array,  # (jobs, d) where each job starts
    hessian: Array,  # (clients, d, d), already divided by the client's weight
    linear: Array,  # (clients, d), likewise: the gradient is hessian @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private noise
    shared: Array,  # uint32 (jobs, 4) keys of the shared noise
    scale: Array,  # (jobs,) what multiplies the private noise
    correlation: float,
    steps: StepSizes,  # (K,) step sizes
    temperature: float,
) -> Array:
    """K local Langevin steps of every job on its own quadratic potential (FA-LD, equation 7)."""
    theta = theta.copy()
    d, dtype = theta.shape[1], theta.dtype.type
    h, b = hessian[client], linear[client]
    for k, eta in enumerate(steps):
        gradient = h[:, 0] * theta[:, :1] - b
        for i in range(1, d):  # in this order, so that no BLAS decides it
            gradient = gradient + h[:, i] * theta[:, i : i + 1]
        noise = np.zeros_like(theta)
        if correlation < 1:
            noise = scale[:, None] * rng.normal(private, d, k, theta.dtype)
        if correlation > 0:
            noise = dtype(correlation) * rng.normal(shared, d, k, theta.dtype) + noise
        theta = theta - dtype(eta) * gradient + dtype(np.sqrt(2 * eta * temperature)) * noise
    return theta


def segment_sum(values: Array, weights: Array, starts: Array) -> Array:
    """Row r is the sum of weights[i] * values[i] over starts[r] <= i < starts[r + 1], in that order."""
    out = np.zeros((len(starts) - 1, values.shape[1]), values.dtype)
    weighted = np.asarray(weights, values.dtype)[:, None] * values
    for r in range(len(out)):
        for i in range(starts[r], starts[r + 1]):
            out[r] += weighted[i]
    return out


def gradients(problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array:
    """The clients' sum gradients, one job after the other through `problem.gradient`."""
    out, gradient = np.empty_like(theta), as_problem(problem).gradient
    for i, c in enumerate(clients):
        chosen = None if rows is None else rows[0][rows[1][i] : rows[1][i + 1]]
        out[i] = gradient(theta[i], int(c), chosen)
    return out


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    """Row i's choice of start[i + 1] - start[i] different numbers below population[i], in one flat array."""
    out = np.empty(start[-1], np.int64)
    for i in range(len(key)):
        size = int(start[i + 1] - start[i])
        out[start[i] : start[i + 1]] = rng.choice(key[i : i + 1], population[i], size, step)[0]
    return out


def keys_into(out: Array, seed: int, stream: int, replica: Array, client: Array, round: Numbers) -> Array:
    """Keys of addresses that are known to be right, written into `out`."""
    out[:] = rng.keys(seed, stream, replica=replica, client=client, round=round)
    return out


leapfrog_quadratic = leapfrog_reference.leapfrog_quadratic
leapfrog_logistic = leapfrog_reference.leapfrog_logistic
gaussian_messages, logistic_messages = qlsd_reference.gaussian_messages, qlsd_reference.logistic_messages
wire_form = qlsd_reference.wire_form
keys, normal, uniform, integers, choice = rng.keys, rng.normal, rng.uniform, rng.integers, rng.choice
name = "numpy"

__all__ = [
    "choice", "choose_rows", "exp", "gaussian_messages", "gradients", "integers", "keys", "keys_into",
    "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "logistic_messages", "name", "normal",
    "segment_sum", "uniform", "wire_form",
]  # fmt: skip
