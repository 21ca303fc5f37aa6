"""FedPAQ, plain and private, on quadratic devices: exact moments, and the right sides of the paper's bounds.

Device i has f_i(x) = (x - c_i)' diag(a_i) (x - c_i)/2; its gradients have independent noise of total variance
sigma^2/b. The quantiser keeps a coordinate with probability 1/(1 + q) and is unbiased, so that its loss is q |x|^2, the
most that assumption 4 allows. All moments are per coordinate.
"""

from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import e, inf, log

import numpy as np

B, EPSILON, DELTA, ROWS = 1, 1.0, 1e-4, 600


@dataclass(frozen=True)
class Problem:
    """`gamma0` None is the printed 4E, "proof" the maximum that the proof of theorem 1 takes."""

    devices: int = 20
    dim: int = 4
    mu: float = 1.0
    kappa: float = 2.0
    spread: float = 1.0  # of the optima; 0: no heterogeneity
    drift: float = 0.0  # of the Hessians of devices, relative; 0: equal, as assumption 5 needs
    sigma: float = 0.5
    q: float = 0.5
    M: int = 5
    E: int = 5
    private: bool = False
    rows: int = ROWS
    epsilon: float = EPSILON
    delta: float = DELTA
    start: float = 1.0
    proof_steps: bool = False
    bound: float | None = None  # G of the noise; None: the largest of the region visited

    @cached_property
    def a(self) -> np.ndarray:
        base = self.mu * np.geomspace(1, self.kappa, self.dim)
        factor = 1 + self.drift * np.linspace(-1, 1, self.devices)[:, None]
        return base * np.where(np.arange(self.dim) % 2, factor, 2 - factor)

    @cached_property
    def c(self) -> np.ndarray:
        raw = np.random.default_rng(5).standard_normal((self.devices, self.dim))
        return self.spread * (raw - raw.mean(axis=0))

    @cached_property
    def best(self) -> np.ndarray:
        return (self.a * self.c).sum(axis=0) / self.a.sum(axis=0)

    @property
    def L(self) -> float:
        return float(self.a.max())

    @property
    def convexity(self) -> float:
        return float(self.a.min())

    @property
    def heterogeneity(self) -> float:
        """lambda^2 of assumption 5, the same at every x for equal Hessians."""
        return float((((self.best - self.c) * self.a) ** 2).sum(axis=1).mean())

    @property
    def gamma0(self) -> float:
        m, L, E = self.convexity, self.L, self.E
        return max(4 * E, 4 * L**2 / m**2, 4 * 2**0.5 * L * (E - 1) / m) if self.proof_steps else 4 * E

    def step(self, k: int) -> float:
        return 4 / self.convexity / (k * self.E + self.gamma0)

    def noise(self, eta: float, G2: float) -> float:
        """Equation 51: the variance of a coordinate's noise."""
        if not self.private:
            return 0.0
        lead = 128 * G2 * B**2 * log(1.25 * self.E * B / (self.rows * self.delta))
        return lead / (self.rows * self.epsilon) ** 2 * self.E**4 * eta**2


@dataclass(frozen=True)
class Step:
    """One round: the error before it, the terms A, B and C of equation 22, and the error after it."""

    eta: float
    before: float
    A: float
    B: float
    C: float
    after: float


def run(p: Problem, rounds: int, G2: float = 0.0, level: float = 0.0) -> tuple[list[Step], float]:
    """Return the exact moments of each round up to an error of `level`, and the largest E|gradient|^2 on the way."""
    N, M, steps, top = p.devices, p.M, [], 0.0
    mean, var = np.full(p.dim, p.start) + p.best, np.zeros(p.dim)
    error = float(((mean - p.best) ** 2 + var).sum())
    v = p.sigma**2 / (B * p.dim)  # of a coordinate's gradient noise
    some = (N - M) / (M * (N - 1))
    for k in range(rounds):
        eta = p.step(k)
        rate = 1 - eta * p.a
        powers = np.stack([rate**t for t in range(p.E + 1)])
        noise_in = eta**2 * v * np.cumsum(powers**2, axis=0)  # after t + 1 steps
        at = mean - p.c
        second = powers[:-1] ** 2 * (var + at**2)
        second[1:] += noise_in[: p.E - 1]
        top = max(top, float((p.a**2 * second).sum(axis=2).max()) + p.sigma**2 / B)
        pull = 1 - powers[-1]
        own, dp = noise_in[p.E - 1], p.noise(eta, G2)
        square = pull**2 * (var + at**2)  # E mu_i^2
        delta = square + own + dp  # E Delta_i^2
        V = own + dp + p.q * delta
        mean_pull, target = pull.mean(axis=0), (pull * p.c).mean(axis=0)
        mean_square = mean_pull**2 * var + (mean_pull * mean - target) ** 2  # E mubar^2
        A = some * ((V + square).mean(axis=0) - V.mean(axis=0) / N - mean_square).sum()
        Bt = (p.q * delta + dp).mean(axis=0).sum() / N
        new_mean, kept = mean - mean_pull * mean + target, (1 - mean_pull) ** 2 * var
        C = (kept + (new_mean - p.best) ** 2 + own.mean(axis=0) / N).sum()
        var = kept + V.mean(axis=0) / M + some * (square.mean(axis=0) - mean_square)
        mean = new_mean
        after = float((var + (mean - p.best) ** 2).sum())
        steps.append(Step(eta, error, float(A), float(Bt), float(C), after))
        error = after
        if not level < error < 1e200:
            break
    return steps, top


@cache
def visited(p: Problem, rounds: int) -> tuple[list[Step], float]:
    """Return the moments and G^2, which the noise depends on and which depends on the region visited."""
    if p.bound is not None:
        return run(p, rounds, p.bound**2)[0], p.bound**2
    G2 = 0.0
    for _ in range(200):
        steps, top = run(p, rounds, G2)
        if not p.private or top <= G2:
            return steps, max(top, G2)
        if top > 1e12:
            return steps, inf
        G2 = 1.02 * top
    return steps, inf


def errors(p: Problem, rounds: int) -> list[float]:
    return [s.after for s in visited(p, rounds)[0]]


def rounds_to(p: Problem, level: float, most: int) -> float:
    """Return the rounds to an error of `level`; without noise, or with the noise of `bound`."""
    steps, _ = run(p, most, p.bound**2 if p.bound else 0.0, level)
    return float(len(steps)) if steps[-1].after <= level else inf


def terms(p: Problem, T: float, G2: float, first: float | None = None, *, repaired: bool = False) -> dict[str, float]:
    """Return the terms of the right side of equation 18; `repaired` has the 1/mu^2 that its last term lacks."""
    m, N, M, E, q = p.convexity, p.devices, p.M, p.E, p.q
    lead, lam, s2 = 16 / m**2, p.heterogeneity, p.sigma**2
    last = 4096 * p.dim * G2 * B**2 * (1 + q) * log(1.25 * E * B / (p.rows * p.delta)) / (M * (p.rows * p.epsilon) ** 2)
    return {
        "start": 16 * E**2 / T**2 * (p.dim * p.start**2 if first is None else first),
        "q": lead * (2 * q * G2 / M + q * G2 / N) * E / T,
        "noise": lead * (4 * e * s2 / (B * M) + 3 * p.L * lam / m + s2 / (B * N)) / T,
        "lambda": 8 * lead * e * lam / M * (E - 1) / T,
        "drift": 8 * lead * G2 * (E - 1) ** 2 / T,
        "privacy": last * E**3 / T / (m**2 if repaired else 1) if p.private else 0.0,
    }


def larger(problems: dict[object, Problem], T: int) -> dict[str, dict[object, float]]:
    """Return the right side of (18) and the exact error after T iterations by problem."""
    return {
        "equation 18": {key: right(p, T // p.E) for key, p in problems.items()},
        "exact": {key: errors(p, T // p.E)[-1] for key, p in problems.items()},
    }


def right(p: Problem, rounds: int) -> float:
    return sum(terms(p, rounds * p.E, visited(p, rounds)[1]).values())


def lemma(p: Problem, number: int, step: Step, G2: float) -> float:
    """Return the right side of lemma 1, 2 or 3 for one round."""
    N, M, E, eta2, q, s2, lam = p.devices, p.M, p.E, step.eta**2, p.q, p.sigma**2, p.heterogeneity
    if number == 1:
        part = (N - M) / (M * N)
        lead = 256 * p.dim * G2 * B**2 * (1 + q) * log(1.25 * E * B / (p.rows * p.delta)) if p.private else 0.0
        return (
            part * (2 * q * G2 * E**2 + 4 * e * s2 / B * E + 8 * e * lam * E * (E - 1)) * eta2
            + lead * (N - M) / (M * (N - 1) * (p.rows * p.epsilon) ** 2) * E**4 * eta2
        )
    if number == 2:
        return q * G2 / N * E**2 * eta2
    m = p.convexity
    return (1 - m * step.eta) ** E * step.before + (
        (3 * p.L * lam / m + s2 / (B * N)) * E + 8 * G2 * E * (E - 1) ** 2
    ) * eta2


def varied(**changed) -> dict[str, Problem]:
    base = replace(Problem(), **changed)
    return {
        "base": base,
        "E = 1": replace(base, E=1),
        "E = 20": replace(base, E=20),
        "M = N": replace(base, M=base.devices),
        "M = 1": replace(base, M=1),
        "no quantiser": replace(base, q=0.0),
        "q = 5": replace(base, q=5.0),
        "equal devices": replace(base, spread=0.0),
        "far start": replace(base, start=10.0),
        "kappa = 20, mu = 0.1": replace(base, kappa=20.0, mu=0.1),
        "noise alone, mu = 0.1": replace(base, E=1, q=0.0, mu=0.1, spread=0.0, sigma=0.001, rows=100),
    }
