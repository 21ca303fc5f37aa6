"""One client step and one server step per optimiser (SPEC sections 4 and 5; the adaptive ones: Reddi et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oracles.draws import Address
from oracles.world import Reply, Values, World, mean, quantised, total

Step = Callable[[int], float]


def constant(eta: float) -> Step:
    return lambda t: eta


@dataclass(frozen=True)
class Descent:
    """E local steps on the client's mean loss, v <- mu v + gradient + lambda y + extra, y <- y - eta v."""

    eta: Step
    steps: int | tuple[int, ...] = 1
    momentum: float = 0.0
    decay: float = 0.0
    scaled: bool = False  # p_i N f_i in place of f_i

    def count(self, client: int) -> int:
        return self.steps if isinstance(self.steps, int) else self.steps[client]

    def etas(self, at: Address) -> list[float]:
        most = self.steps if isinstance(self.steps, int) else max(self.steps)
        return [self.eta(at.version * most + k) for k in range(self.count(at.client))]

    def __call__(
        self, w: World, at: Address, x: np.ndarray, extra: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> np.ndarray:
        factor = w.p[at.client] * w.clients if self.scaled else 1.0
        y, v = x, np.zeros_like(x)
        for eta in self.etas(at):
            slope = factor * w.gradient(y, at.client) / w.size(at.client) + self.decay * y
            v = self.momentum * v + slope + (extra(y) if extra else 0.0)
            y = y - eta * w.pull[at.client] * v
        return y


@dataclass(frozen=True)
class FedAvg:
    """y - x up; x <- x + eta_g mean."""

    descent: Descent
    server_step: float = 1.0
    models = ()

    @property
    def rule(self) -> str:
        return "equal" if self.descent.scaled else "sizes"

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta}

    def memory(self, dim: int) -> Values:
        return {}

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x = message["theta"]
        return {"delta": self.descent(w, at, x) - x}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        return {"theta": state["theta"] + self.server_step * mean(replies, a, "delta")}


class GossipFedAvg(FedAvg):
    """x_i <- x_i + eta_g (sum_j W_ij y_j - x_i)."""

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        return {"theta": self.descent(w, at, message["theta"])}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        x = state["theta"]
        return {"theta": x + self.server_step * (mean(replies, a, "theta") - x)}


@dataclass(frozen=True)
class FedPAQ(FedAvg):
    """FedAvg with a quantised difference."""

    levels: int = 10

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        reply, memory = super().client(w, at, message, memory)
        return {"delta": quantised(w, at, reply["delta"], self.levels)}, memory


@dataclass(frozen=True)
class PrivateFedPAQ(FedAvg):
    """E disjoint batches of b rows, per-row clipping, noise before the quantiser (equations 16 and 51)."""

    clip: float = 1.0
    epsilon: float = 1.0
    delta: float = 1e-4
    levels: int = 10

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x, n, etas = message["theta"], w.size(at.client), self.descent.etas(at)
        steps = len(etas)
        b = n // steps
        rows = w.numbers.rows(at, n, steps * b)
        y = x
        for k, eta in enumerate(etas):
            g = [w.gradient(y, at.client, rows[j : j + 1]) for j in range(k * b, (k + 1) * b)]
            y = y - eta * sum(v * min(1.0, self.clip / np.linalg.norm(v)) for v in g) / b
        gamma = steps * b / n
        reach = 4 * sum(etas) * self.clip
        sigma = math.sqrt(2 * reach**2 * math.log(1.25 * gamma / self.delta)) / (self.epsilon / (2 * gamma))
        z = sigma * w.numbers.private(at, 0, len(x))
        return {"delta": quantised(w, at, y - x + z, self.levels)}, memory


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """y <- y - eta (gradient - c_i + c); c_i <- c_i - c - Delta / (E eta); c <- c + sum_i p_i (change of c_i)."""

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "c": np.zeros_like(theta)}

    def memory(self, dim: int) -> Values:
        return {"c": np.zeros(dim)}

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x, c, own = message["theta"], message["c"], memory["c"]
        delta = self.descent(w, at, x, lambda y: c - own) - x
        new = own - c - delta / sum(self.descent.etas(at))
        share = 1 / w.clients if self.descent.scaled else w.p[at.client]
        return {"delta": delta, "change": share * (new - own)}, {"c": new}

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        new = super().server(w, state, replies, a, round, site)
        return new | {"c": state["c"] + total(replies, "change")}


@dataclass(frozen=True)
class FedProx(FedAvg):
    """A spring mu (y - x) in every local step."""

    proximal: float = 0.0

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x = message["theta"]
        return {"delta": self.descent(w, at, x, lambda y: self.proximal * (y - x)) - x}, memory


@dataclass(frozen=True)
class FedNova(FedAvg):
    """x <- x + (sum_i w_i A_i) (sum_i w_i Delta_i / A_i), A_i the sum of the coefficients of the client's gradients."""

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x, etas, mu = message["theta"], self.descent.etas(at), self.descent.momentum
        reach = sum(eta * mu**j for k, eta in enumerate(etas) for j in range(k + 1))
        return {"direction": (self.descent(w, at, x) - x) / reach, "reach": np.array([reach])}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        move = mean(replies, a, "reach") * mean(replies, a, "direction")
        return {"theta": state["theta"] + self.server_step * move}


@dataclass(frozen=True)
class FedDyn(FedAvg):
    """y <- y - eta (gradient - g_i + alpha (y - x)); g_i <- g_i - alpha Delta_i; h <- h - alpha sum p_i Delta_i."""

    alpha: float = 0.1

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "h": np.zeros_like(theta)}

    def memory(self, dim: int) -> Values:
        return {"g": np.zeros(dim)}

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        x, g = message["theta"], memory["g"]
        delta = self.descent(w, at, x, lambda y: self.alpha * (y - x) - g) - x
        return {"delta": delta}, {"g": g - self.alpha * delta}

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        if not replies:
            return state
        p = np.array([1 / w.clients if self.descent.scaled else w.p[at.client] for at, _ in replies])
        h = state["h"] - self.alpha * mean(replies, p, "delta")
        return {"theta": state["theta"] + mean(replies, a, "delta") - h / self.alpha, "h": h}


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """m <- beta1 m + (1 - beta1) Delta, v by its own rule, x <- x + eta_g m / (sqrt(v) + tau)."""

    second: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda v, square: v + square
    beta1: float = 0.0
    tau: float = 1e-3

    def start(self, theta: np.ndarray, w: World) -> Values:
        return {"theta": theta, "m": np.zeros_like(theta), "v": np.full_like(theta, self.tau**2)}

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        if not replies:
            return state
        delta = mean(replies, a, "delta")
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = self.second(state["v"], delta**2)
        return {"theta": state["theta"] + self.server_step * m / (np.sqrt(v) + self.tau), "m": m, "v": v}


def adam(beta2: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda v, square: beta2 * v + (1 - beta2) * square


def yogi(beta2: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda v, square: v - (1 - beta2) * square * np.sign(v - square)


@dataclass(frozen=True)
class FedBE(FedAvg):
    """Clients send their models, and the next round starts from their mean."""

    models = ("theta",)

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        return {"theta": self.descent(w, at, message["theta"])}, memory

    def server(self, w: World, state: Values, replies: list[Reply], a: np.ndarray, round: int, site: int) -> Values:
        return {"theta": mean(replies, a, "theta")} if replies else state


@dataclass(frozen=True)
class PFedAvg(FedBE):
    """theta <- theta - eta (theta - Z), Z ~ N(m_i + eps_i theta, sigma^2) in answer to the local model (D4)."""

    @property
    def rule(self) -> str:
        return "equal" if self.descent.scaled else "scheme"

    def client(self, w: World, at: Address, message: Values, memory: Values) -> tuple[Values, Values]:
        data, theta, c = w.problem, message["theta"], at.client
        factor = w.p[c] * w.clients if self.descent.scaled else 1.0
        for k, eta in enumerate(self.descent.etas(at)):
            z = data.base_means[c] + data.sensitivities[c] * theta + data.sigma * w.numbers.data(at, k)
            theta = theta - eta * factor * (theta - z)
        return {"theta": theta}, memory
