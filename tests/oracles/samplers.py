"""One client step and one server step per sampler (SPEC sections 1 to 3 and 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles.draws import Address
from oracles.optimisers import Step
from oracles.world import Reply, Values, World, mean, quantised, total


class Sampler:
    """Models up, their mean at the server, nothing else."""

    rule = "policy"
    models: tuple[str, ...] = ("theta",)

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta}

    def memory(self, dim: int) -> Values:
        return {}

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        raise NotImplementedError

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        return {"theta": mean(replies, a, "theta")} if replies else state


@dataclass(frozen=True)
class FALD(Sampler):
    """theta - eta grad f^c + sqrt(2 eta tau) (rho xi' + sqrt((1 - rho^2) / p_c) xi), f^c = l^c / p_c."""

    eta: Step
    steps: int
    tau: float = 1.0
    rho: float = 0.0

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        theta, p = message["theta"], w.weight[at.client]
        for k in range(self.steps):
            eta = self.eta(at.version * self.steps + k)
            noise = self.rho * w.numbers.shared(at.version, k, len(theta))
            noise = noise + math.sqrt((1 - self.rho**2) / p) * w.numbers.private(at, k, len(theta))
            theta = theta - eta * w.gradient(theta, at.client) / p + math.sqrt(2 * eta * self.tau) * noise
        return {"theta": theta}, memory


def trajectory(gradient, theta: np.ndarray, p: np.ndarray, eta: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Leapfrog as in SPEC section 2."""
    for _ in range(steps):
        new = theta + eta * p - eta**2 / 2 * gradient(theta)
        p = p - eta / 2 * gradient(theta) - eta / 2 * gradient(new)
        theta = new
    return theta, p


@dataclass(frozen=True)
class FAHMC(Sampler):
    """T trajectories of K leapfrog steps, momenta sqrt(rho) xi + sqrt((1 - rho) / w_c) xi^c."""

    eta: Step
    leapfrog: int
    steps: int = 1
    rho: float = 0.0

    def gradient(self, w: World, at: Address, theta: np.ndarray) -> np.ndarray:
        return w.gradient(theta, at.client) / w.weight[at.client]

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        theta = self.moved(w, at, message["theta"], np.zeros_like(message["theta"]))
        return {"theta": theta}, memory

    def moved(self, w: World, at: Address, theta: np.ndarray, correction: np.ndarray) -> np.ndarray:
        for t in range(self.steps):
            p = math.sqrt(self.rho) * w.numbers.shared(at.version, t, len(theta))
            p = p + math.sqrt((1 - self.rho) / w.weight[at.client]) * w.numbers.private(at, t, len(theta))
            eta = self.eta(at.version * self.steps + t)
            theta, _ = trajectory(lambda x: self.gradient(w, at, x) + correction, theta, p, eta, self.leapfrog)
        return theta


class DebiasedFAHMC(FAHMC):
    """grad f^c(x) - grad f^c(a) + grad f(a), a the client's last broadcast; no correction before the first (B7, B8)."""

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "anchor": np.zeros_like(theta)}

    def memory(self, dim: int) -> Values:
        return {"anchor": np.zeros(dim)}

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        correction = message["anchor"] - memory["anchor"] / w.weight[at.client]
        new = w.gradient(message["theta"], at.client)
        reply = {"theta": self.moved(w, at, message["theta"], correction), "change": new - memory["anchor"]}
        return reply, {"anchor": new}

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        moved = super().server(w, state, replies, a, round, site)
        return moved | {"anchor": state["anchor"] + total(replies, "change")}


@dataclass(frozen=True)
class QLSD(Sampler):
    """C(grad U_i) up; theta - gamma (b / |A| sum + prior) + sqrt(2 gamma) xi at the server, for the received (C1, C14)."""

    eta: Step
    levels: int | None = None
    activity: Any = None  # chances of arrival by client, to divide by in place of b / |A|
    rule = "total"
    models = ()

    def message(self, w: World, at: Address, theta: np.ndarray) -> np.ndarray:
        return w.likelihood_gradient(theta, at.client)

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        return {"gradient": quantised(w, at, self.message(w, at, message["theta"]), self.levels)}, memory

    def prior(self, w: World, theta: np.ndarray) -> np.ndarray:
        return w.prior_precision * theta

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        theta, gamma = state["theta"], self.eta(round)
        if self.activity is not None:
            a = np.array([1 / self.activity[at.client] for at, _ in replies])
        g = mean(replies, a, "gradient") + self.prior(w, theta)
        noise = math.sqrt(2 * gamma) * w.numbers.server_normal(site, round, len(theta))
        return {"theta": theta - gamma * g + noise}


class QLSDStar(QLSD):
    """Gradients relative to those at argmin U, the prior's too."""

    def optimum(self, w: World) -> np.ndarray:
        return np.linalg.solve(*w.quadratic())

    def message(self, w: World, at: Address, theta: np.ndarray) -> np.ndarray:
        return w.likelihood_gradient(theta, at.client) - w.likelihood_gradient(self.optimum(w), at.client)

    def prior(self, w: World, theta: np.ndarray) -> np.ndarray:
        return w.prior_precision * (theta - self.optimum(w))


@dataclass(frozen=True)
class QLSDPlusPlus(QLSD):
    """m_i = C(grad U_i - e_i), e_i += alpha m_i; G = e + b / |A| sum m_i, e += alpha sum m_i; all rows need no zeta."""

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "e": np.zeros_like(theta)}

    def memory(self, dim: int) -> Values:
        return {"e": np.zeros(dim)}

    def alpha(self, dim: int) -> float:
        s = self.levels
        return 1.0 if s is None else 1 / (1 + min(dim / s**2, math.sqrt(dim) / s))

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        theta, e = message["theta"], memory["e"]
        m = quantised(w, at, w.likelihood_gradient(theta, at.client) - e, self.levels)
        return {"gradient": m}, {"e": e + self.alpha(len(theta)) * m}

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        theta, e = state["theta"], state["e"]
        step = super().server(w, state, replies, a, round, site)["theta"] - self.eta(round) * e
        return {"theta": step, "e": e + self.alpha(len(theta)) * total(replies, "gradient")}


@dataclass(frozen=True)
class DGSGLD(Sampler):
    """z <- (1 - g/r) z + (g/r) theta - g grad U(z) + sqrt(2 g) xi; theta ~ N(mean of z_i by 1/r_i, 1 / sum 1/r_i)."""

    eta: Step
    coupling: tuple[float, ...]
    steps: int = 1
    models = ()

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "start": theta} | {f"z{c}": theta for c in range(w.clients)}

    def memory(self, dim: int) -> Values:
        return {"moved": np.zeros(dim)}  # z_i - theta_0

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        theta, r = message["theta"], self.coupling[at.client]
        z = message["start"] + memory["moved"]
        for k in range(self.steps):
            g = self.eta(at.version * self.steps + k)
            noise = math.sqrt(2 * g) * w.numbers.private(at, k, len(z))
            z = (1 - g / r) * z + g / r * theta - g * w.gradient(z, at.client) + noise
        return {"z": z}, {"moved": z - message["start"]}

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        new = state | {f"z{at.client}": value["z"] for at, value in replies}
        precision = 1 / np.array(self.coupling)
        centre = sum(precision[c] * new[f"z{c}"] for c in range(w.clients)) / precision.sum()
        noise = w.numbers.server_normal(site, round, len(centre)) / math.sqrt(precision.sum())
        return new | {"theta": centre + noise}


@dataclass(frozen=True)
class FSGLD(Sampler):
    """A visit at s: theta - h/2 v + sqrt(h tau) xi, v = grad U_s / f_s + grad q - grad q_s / f_s; the chain follows one."""

    eta: Step
    means: np.ndarray  # (clients, d)
    precisions: np.ndarray  # (clients, d), diagonal
    steps: int = 1
    tau: float = 1.0

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        theta, s, f = message["theta"], at.client, w.p[at.client]
        for k in range(self.steps):
            h = self.eta(at.version * self.steps + k)
            q = self.precisions * (theta - self.means)  # grad q_s, by client
            v = w.gradient(theta, s) / f + q.sum(axis=0) - q[s] / f
            theta = theta - h / 2 * v + math.sqrt(h * self.tau) * w.numbers.private(at, k, len(theta))
        return {"theta": theta}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        if not replies:
            return state
        edges = np.cumsum(a)
        follow = int(np.argmax(w.numbers.server_uniform(site, round) * edges[-1] < edges))
        return {"theta": replies[follow][1]["theta"]}


@dataclass(frozen=True)
class DESGLD(Sampler):
    """x_i <- sum_j W_ij x_j - eta_i grad U_i(x_i) + sqrt(2 eta_i) xi_i, eta_i = eta / (N pi_i).

    The average by pi then moves by -(eta / N) grad U + sqrt(2 eta / N) xi, whose target is exp(-U) for every pi.
    """

    eta: Step

    def drift(self, w: World, at: Address, x: np.ndarray) -> np.ndarray:
        return w.gradient(x, at.client) / (w.clients * w.weight[at.client])

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x = message["theta"]
        return {"theta": x, "drift": self.drift(w, at, x)}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        x, eta = state["theta"], self.eta(round)
        (own,) = [value["drift"] for at, value in replies if at.client == site]
        return {"theta": mean(replies, a, "theta") - eta * own + self.noise(w, site, round, len(x))}

    def noise(self, w: World, site: int, round: int, dim: int) -> np.ndarray:
        eta = self.eta(round) / (w.clients * w.weight[site])
        return math.sqrt(2 * eta) * w.numbers.server_normal(site, round, dim)


@dataclass(frozen=True)
class DIGingSGLD(DESGLD):
    """x_i <- sum_j W_ij x_j - eta y_i + noise; y_i <- sum_j W_ij y_j + drift_i(new x_i) - drift_i(old x_i)."""

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "mixed": np.zeros_like(theta), "last": np.zeros_like(theta)}

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x = message["theta"]
        g = self.drift(w, at, x)
        y = message["mixed"] + g - message["last"]
        return {"theta": x, "y": y, "drift": y, "g": g}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        (own,) = [value["g"] for at, value in replies if at.client == site]
        moved = super().server(w, state, replies, a, round, site)
        return moved | {"mixed": mean(replies, a, "y"), "last": own}
