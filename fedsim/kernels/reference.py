"""The plain NumPy form of every compiled kernel: short, slow, and the oracle that the fast ones are held to."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.kernels import leapfrog_reference

EXP64 = tuple(1.0 / factorial(k) for k in range(12, -1, -1))
EXP32 = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exp(x: Array) -> Array:
    """e**x, our own so that no libm decides the last bit; clipped to where the result is a normal number."""
    if x.dtype == np.float32:
        f = np.float32
        x = np.clip(x, f(-87.0), f(88.0))
        k = (x * f(1.44269504) + f(12582912.0)) - f(12582912.0)
        r = (x - k * f(0.693359375)) - k * f(-2.12194440e-4)
        p = np.full_like(r, f(EXP32[0]))
        for c in EXP32[1:]:
            p = p * r + f(c)
        p = p * r * r + r + f(1)
        return np.asarray(p * ((k.astype(np.int32) + np.int32(127)) << np.int32(23)).view(f))
    x = np.clip(x, -708.0, 709.0)
    k = (x * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0
    r = (x - k * rng.boxmuller.LN2_HIGH) - k * rng.boxmuller.LN2_LOW
    p = np.full_like(r, EXP64[0])
    for c in EXP64[1:]:
        p = p * r + c
    return np.asarray(p * ((k.astype(np.int64) + np.int64(1023)) << np.int64(52)).view(np.float64))


def langevin_quadratic(
    theta: Array,  # (jobs, d) where each job starts
    hessian: Array,  # (clients, d, d), already divided by the client's weight
    linear: Array,  # (clients, d), likewise: the gradient is hessian @ theta - linear
    client: Array,  # (jobs,)
    private: Array,  # uint32 (jobs, 4) keys of the private noise
    shared: Array,  # uint32 (jobs, 4) keys of the shared noise
    scale: Array,  # (jobs,) what multiplies the private noise
    correlation: float,
    steps: Array,  # (K,) step sizes
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


def gradients(problem: Any, theta: Array, clients: Array, rows: tuple[Array, Array] | None) -> Array:
    """The clients' sum gradients, one job after the other through `problem.gradient`."""
    out = np.empty_like(theta)
    for i, c in enumerate(clients):
        chosen = None if rows is None else rows[0][rows[1][i] : rows[1][i + 1]]
        out[i] = problem.gradient(theta[i], int(c), chosen)
    return out


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    """Row i's choice of start[i + 1] - start[i] different numbers below population[i], in one flat array."""
    out = np.empty(start[-1], np.int64)
    for i in range(len(key)):
        size = int(start[i + 1] - start[i])
        out[start[i] : start[i + 1]] = rng.choice(key[i : i + 1], population[i], size, step)[0]
    return out


leapfrog_quadratic = leapfrog_reference.leapfrog_quadratic
leapfrog_logistic = leapfrog_reference.leapfrog_logistic
keys, normal, uniform, integers, choice = rng.keys, rng.normal, rng.uniform, rng.integers, rng.choice
name = "numpy"
