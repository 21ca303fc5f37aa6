"""What every oracle's client and server may look at: gradients, weights, sizes and the same draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracles.draws import Address, Numbers

Values = dict[str, np.ndarray]
Reply = tuple[Address, Values]


@dataclass(frozen=True)
class World:
    """`weight` is p_c, over gossip the mixing's pi; `pull` multiplies FedAvg's steps (p_c / pi_c over gossip)."""

    problem: Any
    p: np.ndarray  # (clients,)
    weight: np.ndarray  # (clients,)
    pull: np.ndarray  # (clients,)
    numbers: Numbers
    prior_precision: float = 0.0

    @property
    def clients(self) -> int:
        return len(self.p)

    def size(self, client: int) -> int:
        return int(self.problem.sizes[client])

    def gradient(self, theta: np.ndarray, client: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Of the client's summed loss, its share of the prior included."""
        return np.asarray(self.problem.gradient(theta, client, rows), float)

    def likelihood_gradient(self, theta: np.ndarray, client: int) -> np.ndarray:
        """Without the share n_c / n of the prior."""
        share = self.size(client) / self.problem.sizes.sum()
        return self.gradient(theta, client) - share * self.prior_precision * theta

    def quadratic(self) -> tuple[np.ndarray, np.ndarray]:
        """H and b of the summed gradient H theta - b, for a potential that is quadratic."""
        d = self.problem.dim

        def total(theta: np.ndarray) -> np.ndarray:
            return sum((self.gradient(theta, c) for c in range(self.clients)), np.zeros(d))

        b = -total(np.zeros(d))
        return np.stack([total(e) + b for e in np.eye(d)], axis=1), b

    def potential(self, theta: np.ndarray) -> float:
        h, b = self.quadratic()
        return float(theta @ h @ theta / 2 - b @ theta)


def mean(replies: list[Reply], weights: np.ndarray, name: str) -> np.ndarray:
    """The weighted sum over the received."""
    return sum((a * value[name] for a, (_, value) in zip(weights, replies, strict=True)), np.zeros(1))


def total(replies: list[Reply], name: str) -> np.ndarray:
    return mean(replies, np.ones(len(replies)), name)


def quantised(world: World, at: Address, v: np.ndarray, levels: int | None) -> np.ndarray:
    """QSGD with a norm that is rounded up to a float32; no levels: v itself."""
    if levels is None or not v.any():
        return v
    norm = np.float32(np.linalg.norm(v))
    if norm < np.linalg.norm(v):
        norm = np.nextafter(norm, np.float32(np.inf))
    level = np.floor(levels * np.abs(v) / float(norm) + world.numbers.rounding(at, len(v)))
    return np.sign(v) * np.minimum(level, levels) * float(norm) / levels
