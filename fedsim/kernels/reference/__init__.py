"""The plain NumPy form of every compiled kernel: short, slow, and the oracle that the fast ones are held to."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.kernels.reference import leapfrog, qlsd
from fedsim.protocols import ProblemLike, Rows, as_problem
from fedsim.protocols.runtime import LangevinSteps
from fedsim.rng.elementary import exp


def langevin_quadratic(dim: int) -> LangevinSteps:
    """Return K local Langevin steps of every job on its own quadratic potential (FA-LD, equation 7), in place."""
    return _langevin_quadratic


def _langevin_quadratic(
    theta: Array,  # (jobs, d) where each job starts, and where it ends
    hessian: Array,  # (clients, d, d), already divided by the client's weight
    linear: Array,  # (clients, d), likewise: the gradient is hessian @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private noise
    shared: Array,  # uint32 (jobs, 4) keys of the shared noise
    scale: Array,  # (jobs,) what multiplies the private noise
    correlation: np.floating[Any],
    steps: Array,  # (K,) step sizes eta
    amplitude: Array,  # (K,) sqrt(2 eta temperature)
) -> None:
    d = theta.shape[1]
    h, b = hessian[client], linear[client]
    for k in range(len(steps)):
        gradient = h[:, 0] * theta[:, :1] - b
        for i in range(1, d):  # in this order, so that no BLAS decides it
            gradient = gradient + h[:, i] * theta[:, i : i + 1]
        noise = np.zeros_like(theta)
        if correlation < 1:
            noise = scale[:, None] * rng.normal(private, d, k, theta.dtype)
        if correlation > 0:
            noise = correlation * rng.normal(shared, d, k, theta.dtype) + noise
        theta[:] = theta - steps[k] * gradient + amplitude[k] * noise


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


def keys_into(
    seed: np.uint64, stream: np.uint64, replica: Array, client: Array, round: Array, visit: Array, out: Array
) -> int:
    """Keys of int64 columns, of one row or as many as `out`, into `out`; return 0 if the keys have room for them."""
    out[:] = rng.keys(int(seed), int(stream), replica=replica, client=client, round=round, visit=visit)
    return 0


leapfrog_quadratic = leapfrog.leapfrog_quadratic
leapfrog_logistic = leapfrog.leapfrog_logistic
gaussian_messages, logistic_messages = qlsd.gaussian_messages, qlsd.logistic_messages
wire_form = qlsd.wire_form
keys, normal, uniform, integers, choice = rng.keys, rng.normal, rng.uniform, rng.integers, rng.choice
name = "numpy"

__all__ = [
    "choice", "choose_rows", "exp", "gaussian_messages", "gradients", "integers", "keys", "keys_into",
    "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "logistic_messages", "name", "normal",
    "segment_sum", "uniform", "wire_form",
]  # fmt: skip
