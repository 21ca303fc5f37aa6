"""Exact means and covariances of FA-LD on Gaussian potentials, for claims that need no samples.

K local steps map client c from theta to M_c theta + v_c + shared noise + private noise. The server averages with
random weights a, which enter through E a and E a a'. So (1, E theta, E theta theta') of a round is a linear map of
that of the previous round: its powers give any round, its fixed point the stationary law.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.metrics import gaussian_w2


@dataclass(frozen=True)
class Weights:
    """The first two moments of the random weights of a round."""

    first: Array  # (N,)
    second: Array  # (N, N)

    @classmethod
    def full(cls, p: Array) -> Weights:
        return cls(p, np.outer(p, p))

    @classmethod
    def with_replacement(cls, p: Array, draws: int) -> Weights:
        """Scheme I: multiplicity / draws."""
        return cls(p, (1 - 1 / draws) * np.outer(p, p) + np.diag(p) / draws)

    @classmethod
    def uniform(cls, p: Array, size: int) -> Weights:
        """Scheme II: 1 / size."""
        n = len(p)
        second = np.full((n, n), (size - 1) / (size * n * (n - 1)))
        np.fill_diagonal(second, 1 / (size * n))
        return cls(np.full(n, 1 / n), second)


@dataclass(frozen=True, eq=False)
class FALDMoments:
    """The law of FA-LD's theta with full gradients and a constant step size, from theta = `start`."""

    problem: Any  # a GaussianMean, or another with quadratic()
    step_size: float
    local_steps: int
    correlation: float = 0.0
    weights: Weights | None = None  # None: full participation
    start: Any = None  # None: zeros
    temperature: float = 1.0

    @cached_property
    def round(self) -> Array:
        """Return the linear map of (1, E theta, E theta theta') over one round."""
        hessian, linear = self.problem.quadratic()
        p = np.asarray(self.problem.sizes) / np.sum(self.problem.sizes)
        n, d = linear.shape
        noise = 2 * self.temperature * self.step_size * np.eye(d)
        one = (
            np.eye(d) - self.step_size * hessian / p[:, None, None],
            self.step_size * linear / p[:, None],
            np.broadcast_to(self.correlation**2 * noise, (n, n, d, d)),
            (1 - self.correlation**2) / p[:, None, None] * noise,
        )
        m, v, shared, own = _power(one, self.local_steps)
        weights = self.weights or Weights.full(p)
        a, b = weights.first, weights.second
        both = shared.copy()
        both[np.arange(n), np.arange(n)] += own
        both += np.einsum("ci,ej->ceij", v, v)
        out = np.zeros((1 + d + d * d, 1 + d + d * d))
        out[0, 0] = 1
        out[1 : 1 + d, 0], out[1 : 1 + d, 1 : 1 + d] = a @ v, np.einsum("c,cij->ij", a, m)
        out[1 + d :, 0] = np.einsum("ce,ceij->ij", b, both).ravel()
        cross = np.einsum("ce,cik,ej->ijk", b, m, v)
        out[1 + d :, 1 : 1 + d] = (cross + cross.transpose(1, 0, 2)).reshape(d * d, d)
        out[1 + d :, 1 + d :] = np.einsum("ce,cik,ejl->ijkl", b, m, m, optimize=True).reshape(d * d, d * d)
        return out

    def after(self, rounds: int) -> tuple[Array, Array]:
        """Return the mean and covariance after `rounds` rounds."""
        return self._law(np.linalg.matrix_power(self.round, rounds) @ self._first())

    def stationary(self) -> tuple[Array, Array]:
        """Return the stationary mean and covariance."""
        rest = np.eye(len(self.round) - 1) - self.round[1:, 1:]
        return self._law(np.concatenate([[1.0], np.linalg.solve(rest, self.round[1:, 0])]))

    def w2(self, law: tuple[Array, Array]) -> float:
        """Return the Wasserstein-2 distance from `law` to the exact posterior."""
        return gaussian_w2(*law, *self.problem.exact())

    def rounds_to(self, level: float, most: int = 1_000_000) -> float:
        """Return the first round after which W2 to the posterior is at most `level`; infinity if there is none."""
        squares = [self.round]
        while 2 ** len(squares) <= most:
            squares.append(squares[-1] @ squares[-1])
        if self.w2(self.stationary()) > level:
            return np.inf
        state, done = self._first(), 0
        for power in range(len(squares) - 1, -1, -1):  # W2 decreases towards its limit, which is below the level
            later = squares[power] @ state
            if self.w2(self._law(later)) > level:
                state, done = later, done + 2**power
        return done + 1

    def _first(self) -> Array:
        theta = np.zeros(self.problem.dim) if self.start is None else np.asarray(self.start, np.float64)
        return np.concatenate([[1.0], theta, np.outer(theta, theta).ravel()])

    def _law(self, state: Array) -> tuple[Array, Array]:
        d = self.problem.dim
        mean = state[1 : 1 + d]
        covariance = state[1 + d :].reshape(d, d) - np.outer(mean, mean)
        return mean, (covariance + covariance.T) / 2


def _power(one: tuple[Array, ...], times: int) -> tuple[Array, ...]:
    """Compose `times` local steps by squaring."""
    total: tuple[Array, ...] | None = None
    while times:
        if times % 2:
            total = one if total is None else _then(total, one)
        one, times = _then(one, one), times // 2
    assert total is not None
    return total


def _then(before: tuple[Array, ...], after: tuple[Array, ...]) -> tuple[Array, ...]:
    """Compose the steps `before` with the steps `after`."""
    m, v, shared, own = before
    n, w, later, late = after
    across = np.einsum("cij,cejk,elk->ceil", n, shared, n, optimize=True) + later
    return n @ m, np.einsum("cij,cj->ci", n, v) + w, across, n @ own @ n.transpose(0, 2, 1) + late
