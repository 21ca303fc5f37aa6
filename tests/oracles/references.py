"""One-machine references: one step of each on the one client (SPEC section 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from oracles.draws import Address
from oracles.optimisers import Step
from oracles.samplers import Sampler, trajectory
from oracles.world import Values, World


@dataclass(frozen=True)
class SGLD(Sampler):
    """theta - eta grad f + sqrt(2 eta tau) xi."""

    eta: Step
    steps: int = 1
    tau: float = 1.0

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        theta = message["theta"]
        for k in range(self.steps):
            theta, memory = self.step(w, at, k, theta, memory)
        return {"theta": theta}, memory

    def step(self, w: World, at: Address, k: int, theta: np.ndarray, memory: Values) -> tuple[np.ndarray, Values]:
        eta = self.eta(at.version * self.steps + k)
        noise = math.sqrt(2 * eta * self.tau) * w.numbers.private(at, k, len(theta))
        return theta - eta * w.gradient(theta, 0) + noise, memory


@dataclass(frozen=True)
class PSGLD(SGLD):
    """v <- a v + (1 - a) (gradient / n)^2, G = 1 / (lambda + sqrt v); theta - eta/2 G gradient + sqrt(eta tau G) xi."""

    decay: float = 0.99
    damping: float = 1e-2

    def memory(self, dim: int) -> Values:
        return {"v": np.zeros(dim)}

    def step(self, w: World, at: Address, k: int, theta: np.ndarray, memory: Values) -> tuple[np.ndarray, Values]:
        eta, g = self.eta(at.version * self.steps + k), w.gradient(theta, 0)
        v = self.decay * memory["v"] + (1 - self.decay) * (g / w.size(0)) ** 2
        scale = 1 / (self.damping + np.sqrt(v))
        noise = np.sqrt(eta * self.tau * scale) * w.numbers.private(at, k, len(theta))
        return theta - eta / 2 * scale * g + noise, {"v": v}


@dataclass(frozen=True)
class MALA(SGLD):
    """SGLD's step as a proposal, accepted by Metropolis-Hastings."""

    def step(self, w: World, at: Address, k: int, theta: np.ndarray, memory: Values) -> tuple[np.ndarray, Values]:
        eta = self.eta(at.version * self.steps + k)
        there, _ = super().step(w, at, k, theta, memory)

        def proposal(to: np.ndarray, start: np.ndarray) -> float:
            """log q(to | start)"""
            return -float(np.sum((to - start + eta * w.gradient(start, 0)) ** 2)) / (4 * eta * self.tau)

        log_ratio = (w.potential(theta) - w.potential(there)) / self.tau
        log_ratio += proposal(theta, there) - proposal(there, theta)
        return (there if math.log(w.numbers.coin(at, k)) < log_ratio else theta), memory


@dataclass(frozen=True)
class HMC(SGLD):
    """A leapfrog trajectory on f / tau, accepted on the change of the Hamiltonian."""

    leapfrog: int = 10

    def step(self, w: World, at: Address, k: int, theta: np.ndarray, memory: Values) -> tuple[np.ndarray, Values]:
        eta, p = self.eta(at.version * self.steps + k), w.numbers.private(at, k, len(theta))
        there, q = trajectory(lambda x: w.gradient(x, 0) / self.tau, theta, p, eta, self.leapfrog)
        before = w.potential(theta) / self.tau + float(p @ p) / 2
        after = w.potential(there) / self.tau + float(q @ q) / 2
        return (there if math.log(w.numbers.coin(at, k)) < before - after else theta), memory
