"""Quadratic clients with unequal Hessians, on which the theorems are exact: the joint law of all clients, step by step.

Client c has f^c(theta) = (theta - centre_c)' A_c (theta - centre_c) / 2, so FA-LD's law is Gaussian with all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from _moments import FALDMoments

from fedsim import rng
from fedsim.arrays import Array
from fedsim.metrics import gaussian_w2


@dataclass(frozen=True)
class Step:
    """The exact moments after one local step, before the synchronisation that may follow it."""

    number: int  # k, from 1
    mean: Array  # (N, d), of every client
    covariance: Array  # (N, d, N, d)
    synchronised: bool  # a synchronisation follows

    def average(self, p: Array) -> tuple[Array, Array]:
        """Return the law of sum_c p_c theta^c."""
        return p @ self.mean, np.einsum("c,e,ciej->ij", p, p, self.covariance)

    def divergence(self, p: Array) -> float:
        """Return sum_c p_c E|theta^c - theta|^2."""
        mean, covariance = self.average(p)
        return float(p @ self.second_moments(np.zeros_like(mean)) - mean @ mean - np.trace(covariance))

    def second_moments(self, at: Array) -> Array:
        """Return E|theta^c - at|^2 of every client."""
        return ((self.mean - at) ** 2).sum(axis=1) + np.einsum("cici->c", self.covariance)


@dataclass(frozen=True, eq=False)
class Quadratics:
    """The clients' potentials f^c, their weights, the temperature and the standard deviation of gradient noise."""

    hessians: Array  # (N, d, d), of f^c
    centres: Array  # (N, d)
    p: Array  # (N,)
    tau: float = 1.0
    sigma: float = 0.0

    @property
    def dim(self) -> int:
        return int(self.centres.shape[1])

    @property
    def sizes(self) -> Array:
        return self.p

    @cached_property
    def eigenvalues(self) -> tuple[float, float]:
        values = np.linalg.eigvalsh(self.hessians)
        return float(values.min()), float(values.max())

    @property
    def m(self) -> float:
        return self.eigenvalues[0]

    @property
    def L(self) -> float:
        return self.eigenvalues[1]

    @property
    def kappa(self) -> float:
        return self.L / self.m

    @cached_property
    def hessian(self) -> Array:
        """The Hessian of f = sum_c p_c f^c."""
        return np.einsum("c,cij->ij", self.p, self.hessians)

    @cached_property
    def optimum(self) -> Array:
        pulls = np.einsum("c,cij,cj->i", self.p, self.hessians, self.centres)
        return np.asarray(np.linalg.solve(self.hessian, pulls))

    @cached_property
    def gamma(self) -> float:
        gradients = np.einsum("cij,cj->ci", self.hessians, self.optimum - self.centres)
        return float(np.linalg.norm(gradients, axis=1).max())

    def quadratic(self) -> tuple[Array, Array]:
        """Return Hessians and linear terms of l^c = p_c f^c, as FALDMoments expects."""
        own = self.p[:, None, None] * self.hessians
        return own, np.einsum("cij,cj->ci", own, self.centres)

    def exact(self) -> tuple[Array, Array]:
        """Return the mean and covariance of the target."""
        return self.optimum, self.tau * np.linalg.inv(self.hessian)

    def temperature(self, rho: float) -> float:
        """Return the largest T_(c,rho)."""
        return float((self.tau * (rho**2 + (1 - rho**2) / self.p)).max())

    def H(self, start: Array, rho: float = 0.0) -> float:
        """Return H_rho of definition A.4, with the least D that the start allows."""
        spread = self.gamma**2 / (self.m**2 * self.dim) + self.sigma**2 / self.m**2
        return self.D2(start) + self.temperature(rho) / self.m + spread

    def D2(self, start: Array) -> float:
        return float(((start - self.optimum) ** 2).sum() / self.dim)

    def w2(self, law: tuple[Array, Array]) -> float:
        return gaussian_w2(*law, *self.exact())

    def steps(
        self, eta: float | Callable[[int], float], K: int, count: int, start: Array, rho: float = 0.0,
        weights: Any = None, covariance: Any = 0.0,
    ) -> Iterator[Step]:  # fmt: skip
        """Yield the moments after each of `count` local steps; `weights` are the random weights of a `_moments` round.

        `eta` is a number or a function of the step, from 0; `start` and `covariance` are those of all clients.
        """
        n, d = self.centres.shape
        mean, covariance = np.tile(start, (n, 1)), self._shared(covariance * np.ones((d, d)))
        eye, clients = np.eye(d), np.arange(n)
        pull = np.einsum("cij,cj->ci", self.hessians, self.centres)
        for k in range(count):
            h = eta(k) if callable(eta) else eta
            m = eye - h * self.hessians
            mean = np.einsum("cij,cj->ci", m, mean) + h * pull
            covariance = np.einsum("cij,cjel,ekl->ciek", m, covariance, m, optimize=True)
            covariance = covariance + 2 * h * self.tau * rho**2 * eye[None, :, None, :]
            own = 2 * h * self.tau * (1 - rho**2) / self.p + h**2 * self.sigma**2
            covariance[clients, :, clients, :] += own[:, None, None] * eye
            last = (k + 1) % K == 0
            yield Step(k + 1, mean, covariance, last)
            if last:
                mean, covariance = self._synchronised(mean, covariance, weights)

    def _synchronised(self, mean: Array, covariance: Array, weights: Any) -> tuple[Array, Array]:
        first, second = (self.p, np.outer(self.p, self.p)) if weights is None else (weights.first, weights.second)
        centre = first @ mean
        moment = np.einsum("ce,ciej->ij", second, covariance + np.einsum("ci,ej->ciej", mean, mean))
        spread = moment - np.outer(centre, centre)
        return np.tile(centre, (len(self.p), 1)), self._shared(spread)

    def _shared(self, covariance: Array) -> Array:
        n, d = self.centres.shape
        return np.broadcast_to(covariance[None, :, None, :], (n, d, n, d)).copy()

    def with_(self, **changes: Any) -> Quadratics:
        return replace(self, **changes)


def normals(seed: int, *shape: int) -> Array:
    return rng.normal(rng.keys(seed, rng.Stream.DATA), int(np.prod(shape)))[0].reshape(shape)


def drawn(seed: int, clients: int = 4, dim: int = 2, kappa: float = 10.0, spread: float = 1.0, equal: bool = False,
          balanced: bool = False) -> Quadratics:  # fmt: skip
    """Draw clients with eigenvalues from 1 to kappa in random directions, unequal unless `equal`."""
    hessians = []
    for c in range(1 if equal else clients):
        rotation, _ = np.linalg.qr(normals(1000 * seed + c, dim, dim))
        values = np.geomspace(1.0, kappa, dim) if c == 0 else kappa ** np.linspace(0, 1, dim + 2)[1 : dim + 1]
        hessians.append(rotation @ np.diag(values) @ rotation.T)
    centres = spread * normals(1000 * seed + 500, clients, dim)
    shares = np.ones(clients) if balanced else 1.0 + np.arange(clients)
    return Quadratics(np.stack(hessians * (clients if equal else 1)), centres, shares / shares.sum())


def varied(balanced: bool = False) -> dict[str, Quadratics]:
    """The problems on which the bounds are checked."""
    return {
        "unequal Hessians, kappa 10": drawn(1, kappa=10, balanced=balanced),
        "unequal Hessians, kappa 100, d = 3": drawn(2, dim=3, kappa=100, balanced=balanced),
        "equal Hessians, far centres": drawn(3, spread=5.0, equal=True, balanced=balanced),
        "cold, gradient noise": drawn(4, balanced=balanced).with_(tau=0.1, sigma=1.0),
        "one centre, well conditioned": drawn(5, kappa=1.5, spread=0.0, balanced=balanced),
    }


def start(q: Quadratics) -> Array:
    """A start at distance 1 from the optimum."""
    return q.optimum + 1.0 / np.sqrt(q.dim)


GRID = (1, 2, 3, 5, 10, 20, 30, 50, 100, 300, 1000)  # of K
FLAT = (
    "With the step tuned for each K, exact rounds depend on eta K once the clients' divergence decides, so they are "
    "flat in K, and one or a few local steps are best: the printed order is one of the upper bound."
)


@cache
def best_rounds(kappa: float, epsilon: float) -> dict[int, float]:
    """Rounds to W2 = epsilon for each K, with the step tuned for it."""
    q = drawn(1, kappa=kappa)
    return {K: tuned(q, K, epsilon, start(q)) / K for K in GRID}


def tuned(q: Quadratics, K: int, epsilon: float, theta: Array) -> float:
    """Iterations to W2 = epsilon with the best step size, by exact moments, in complete rounds."""

    def iterations(eta: float) -> float:
        moments = FALDMoments(q, eta, K, start=theta, temperature=q.tau)
        return K * moments.rounds_to(epsilon, most=10**8)

    coarse = np.geomspace(1e-6, 1.0, 61) / q.L
    best = min(coarse, key=iterations)
    return min(map(iterations, best * np.geomspace(0.79, 1.26, 41)))


def bound(d, n, S, scheme, m, L, eta, local, k, rho, tau, D2, gamma) -> float:
    """Return the bound of theorem C.3 for n balanced clients, with the reading A10."""
    kappa, share = L / m, 1.0 if scheme == "I" else (n - S) / (n - 1)
    factor = rho**2 + n * (1 - rho**2)
    H = D2 + tau * factor / m + gamma**2 / (m**2 * d)
    first = (1 - eta * m / 4) ** k * np.sqrt(2 * d) * (np.sqrt(D2) + np.sqrt(tau / m))
    second = 30 * kappa * np.sqrt(eta * m * d) * np.sqrt(H * ((local - 1) ** 2 + kappa))
    C_K = eta * m * local / -np.expm1(-eta * m * local / 2)
    return float(first + second + 2 * np.sqrt(C_K * d * tau / (S * m) * factor * share))
