"""Exact moments of FA-HMC on Gaussian clients with independent coordinates of one law, for claims without samples.

Client c has f^c(theta) = h_c |theta - m_c 1|^2 / 2. A trajectory is linear in (theta, p, noise of the gradients), so
the law of a coordinate after any round follows from scalars, and W2 in d dimensions is sqrt(d) times that of one.
Arrays broadcast: the last axis is the client, the others are settings such as step sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim.arrays import Array

DEEPEST = -90.0  # log of the smallest factor of the start's error that is searched


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Clients of weight 1/N; half of them have curvature `large` and centre `far`, half `small` and `near`."""

    clients: int = 2
    large: float = 4.0
    small: float = 1.0
    far: float = 2.0
    near: float = 1.0

    @property
    def h(self) -> Array:
        return np.repeat([self.large, self.small], [(self.clients + 1) // 2, self.clients // 2]).astype(float)

    @property
    def m(self) -> Array:
        return np.repeat([self.far, self.near], [(self.clients + 1) // 2, self.clients // 2]).astype(float)

    @property
    def w(self) -> Array:
        return np.full(self.clients, 1 / self.clients)

    @property
    def target(self) -> tuple[float, float]:
        """Return the mean and variance of a coordinate of the posterior."""
        h = self.w @ self.h
        return float(self.w @ (self.h * self.m) / h), float(1 / h)

    def with_(self, **changes: Any) -> Gaussians:
        return replace(self, **changes)


def trajectory(h: Array, eta: Any, K: Any, noise: Any = 0.0) -> tuple[Array, Array, Array]:
    """Return log a, b, v: K leapfrog steps give m + a (theta - m) + b p + N(0, v); `noise` is a gradient's variance.

    The gradient's noise is drawn twice at each position but the first (B4). K eta sqrt(h) is below pi/2.
    """
    eta, K = np.asarray(eta, float)[..., None], np.asarray(K)[..., None]
    phi = 2 * np.arcsin(eta * np.sqrt(h) / 2)
    sine = np.sin(phi)
    b = eta * np.sin(K * phi) / sine
    squares = (K - 1) / 2 - np.sin((K - 1) * phi) * np.cos(K * phi) / (2 * sine)  # of sin(k phi), k = 1 ... K - 1
    kicks = b**2 / 4 + (eta / sine) ** 2 * squares / 2
    return np.log1p(-2 * np.sin(K * phi / 2) ** 2), b, np.asarray(noise)[..., None] * eta**2 * kicks


def flow(h: Array, time: Any) -> tuple[Array, Array, Array]:
    """Return log a, b and v = 0 of Hamilton's equations over this time."""
    root = np.sqrt(h)
    angle = root * np.asarray(time, float)[..., None]
    return np.log1p(-2 * np.sin(angle / 2) ** 2), np.sin(angle) / root, np.zeros_like(angle)


@dataclass(frozen=True, eq=False)
class Rounds:
    """A coordinate's law by round: theta -> A theta + B + N(0, Q), from N(start, spread)."""

    gone: Array  # 1 - A
    B: Array
    Q: Array
    target: tuple[float, float]
    dim: Any
    start: float = 0.0
    spread: float = 0.0

    @classmethod
    def of(
        cls, problem: Gaussians, paths: tuple[Array, Array, Array], T: Any, rho: Any = 1.0, dim: Any = 1,
        start: float = 0.0, spread: float = 0.0,
    ) -> Rounds:  # fmt: skip
        log_a, b, v = paths
        w, T, rho = problem.w, np.asarray(T), np.asarray(rho)
        gone = -np.expm1(log_a * T[..., None])  # 1 - a^T
        both, pushes = log_a[..., :, None] + log_a[..., None, :], (w * b)[..., :, None] * (w * b)[..., None, :]
        shared = (pushes * np.expm1(both * T[..., None, None]) / np.expm1(both)).sum(axis=(-2, -1))
        repeated = np.expm1(2 * log_a * T[..., None]) / np.expm1(2 * log_a)
        own = w**2 * ((1 - rho[..., None]) / w * b**2 + v) * repeated
        total, B = (w * gone).sum(axis=-1), (w * gone * problem.m).sum(axis=-1)
        return cls(total, B, rho * shared + own.sum(axis=-1), problem.target, np.asarray(dim), start, spread)

    def squared_w2(self, factor: Any) -> Array:
        """Return W2^2 to the posterior when the error of the start has shrunk by this factor, A to the round."""
        mean, variance = self.target
        rest, ends = self.B / self.gone, self.Q / (self.gone * (2 - self.gone))
        own = rest + factor * (self.start - rest)
        spread = ends + factor**2 * (self.spread - ends)
        return np.asarray(self.dim * ((own - mean) ** 2 + (np.sqrt(spread) - np.sqrt(variance)) ** 2))

    def limit(self) -> Array:
        """Return W2 of the stationary law."""
        return np.sqrt(self.squared_w2(0.0))

    def rounds_to(self, epsilon: Any) -> Array:
        """Return the rounds, as a real number, after which W2 is at most epsilon; infinity if there are none.

        W2^2 is convex in the factor of the start, so that it stays at most epsilon from then on.
        """
        low, high = np.full(np.shape(self.gone), DEEPEST), np.zeros(np.shape(self.gone))
        for _ in range(80):
            middle = (low + high) / 2
            near = self.squared_w2(np.exp(middle)) <= np.square(epsilon)
            low, high = np.where(near, middle, low), np.where(near, high, middle)
        with np.errstate(divide="ignore"):  # nothing is left of the start after one round
            return np.where(self.limit() <= epsilon, low / np.log1p(-self.gone), np.inf)


@dataclass(frozen=True)
class Setting:
    """A point at which a bound is judged."""

    epsilon: float = 0.1
    d: int = 10
    T: int = 10
    K: int = 5
    N: int = 2
    rho: float = 1.0
    sigma: float = 0.0  # of assumption 3.4: a gradient's noise has the variance sigma^2 L in each coordinate

    def problem(self) -> Gaussians:
        return Gaussians(self.N)

    def rounds(self, gamma: Any, rho: Any = None, sigma: Any = None, K: Any = None) -> Rounds:
        """Return the law by round with (K eta)^2 = gamma."""
        problem, K = self.problem(), self.K if K is None else K
        noise = np.square(self.sigma if sigma is None else sigma) * problem.large
        paths = trajectory(problem.h, np.sqrt(gamma) / K, K, noise)
        return Rounds.of(problem, paths, self.T, self.rho if rho is None else rho, self.d)

    def tuned(self, epsilon: float | None = None, **changes: Any) -> float:
        """Return the iterations to W2 = epsilon with the best step size up to K eta = 1/sqrt(L)."""
        epsilon = self.epsilon if epsilon is None else epsilon

        def iterations(gamma: Array) -> Array:
            return self.T * self.rounds(gamma, **changes).rounds_to(epsilon)

        coarse = np.geomspace(1e-9, 1.0, 600) / self.problem().large
        best = coarse[np.argmin(iterations(coarse))]
        fine = np.minimum(best * np.geomspace(0.96, 1.04, 400), coarse[-1])
        return float(iterations(fine).min())


class Coupling:
    """E |theta_t - theta^pi_t|^2 with theta^pi from the posterior and under the exact flow with the clients' momenta.

    The state is (theta^1 ... theta^N, theta^pi), of one coordinate; a round is an affine map of its moments.
    """

    def __init__(self, problem: Gaussians, eta: float, K: int, T: int, rho: float, sigma: float) -> None:
        self.problem, self.T, n = problem, T, problem.clients
        log_a, b, v = trajectory(problem.h, eta, K, sigma**2 * problem.large)
        mean, variance = problem.target
        flown = flow(np.array([1 / variance]), K * eta)
        a, b = np.exp(np.append(log_a, flown[0])), np.append(b, flown[1])
        centres = np.append(problem.m, mean)
        private = np.diag(np.append((1 - rho) / problem.w, 1 - rho))  # of the momenta, the last is their mean
        private[:n, n] = private[n, :n] = 1 - rho
        noise = (rho + private) * np.outer(b, b) + np.diag(np.append(v, 0.0))
        self.step = (np.diag(a), (1 - a) * centres, noise)
        average = np.zeros((n + 1, n + 1))
        average[:n, :n], average[n, n] = problem.w, 1.0
        self.average = average
        whole = self.step
        for _ in range(T - 1):
            whole = then(whole, self.step)
        self.round = then(whole, (average, np.zeros(n + 1), np.zeros((n + 1, n + 1))))

    def start(self) -> tuple[Array, Array]:
        """Return the moments of theta_0 = 0 and of theta^pi_0 from the posterior."""
        n = self.problem.clients
        mean, variance = self.problem.target
        return np.append(np.zeros(n), mean), np.diag(np.append(np.zeros(n), variance))

    def gap(self, state: tuple[Array, Array]) -> float:
        """Return E (theta - theta^pi)^2 of one coordinate."""
        u = np.append(self.problem.w, -1.0)
        return float((u @ state[0]) ** 2 + u @ state[1] @ u)

    def gradients(self, state: tuple[Array, Array]) -> Array:
        """Return E (f^c)'^2 of one coordinate at each client."""
        n, p = self.problem.clients, self.problem
        return np.asarray(p.h**2 * ((state[0][:n] - p.m) ** 2 + np.diag(state[1])[:n]))


Affine = tuple[Array, Array, Array]


def then(before: Affine, after: Affine) -> Affine:
    """Compose maps x -> M x + v + N(0, Q)."""
    M, v, Q = after
    return M @ before[0], M @ before[1] + v, M @ before[2] @ M.T + Q


def applied(change: Affine, state: tuple[Array, Array]) -> tuple[Array, Array]:
    M, v, Q = change
    return M @ state[0] + v, M @ state[1] @ M.T + Q
