"""Mean estimation under performative shifts: the Gaussian benchmark of P-FedAvg, with exact solutions.

l(theta; Z) = (theta - Z)^2 / 2 with Z ~ N(m_i + eps_i theta, sigma^2) at client i, d = 1. There is no
finite data set: every gradient draws one new Z, or `batch_size` of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_allocation, check_array, check_float, check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.protocols import Backend, BatchSize


class PerformativeMean:
    """Clients with base means m_i, sensitivities eps_i, noise sigma and weights p_i (None: equal)."""

    dim = 1

    def __init__(
        self,
        base_means: Sequence[float],
        sensitivities: Sequence[float],
        sigma: float = 1.0,
        weights: npt.ArrayLike | None = None,
    ) -> None:
        self.base_means = _finite("base_means", base_means)
        self.clients = len(self.base_means)
        self.sensitivities = _finite("sensitivities", sensitivities, self.clients)
        self.sigma = check_positive(
            "PerformativeMean(sigma={})", sigma, zero=True, remedy="must be a number of at least 0"
        )
        p = np.full(self.clients, 1 / self.clients) if weights is None else _finite("weights", weights)
        if p.shape != (self.clients,) or np.any(p <= 0) or abs(p.sum() - 1) > 1e-9:
            raise InvalidInput(f"PerformativeMean: weights must be {self.clients} positive numbers that sum to 1")
        self.weights = p / p.sum()
        self.sizes = np.ones(self.clients, np.int64)  # a gradient is that of one expected loss, not of a sum

    @classmethod
    def synthetic(
        cls, clients: int = 25, base_mean: float = 10.0, base_variance: float = 0.6, sensitivity: float = 0.9,
        sensitivity_variance: float = 0.1, sigma: float = 1.0, weights: npt.ArrayLike | None = None, seed: int = 0,
    ) -> PerformativeMean:  # fmt: skip
        """Return a problem with Gaussian m_i and eps_i, standardised to these means and variances (D9)."""
        where = "PerformativeMean.synthetic"
        clients = check_int(f"{where}(clients={{}})", clients, least=2)
        check_allocation(f"{where}(clients={clients:,})", 200 * clients, "ask for fewer clients")
        base_mean, sensitivity = (
            check_float(f"{where}(base_mean={{}})", base_mean),
            check_float(f"{where}(sensitivity={{}})", sensitivity),
        )
        base_variance = check_positive(f"{where}(base_variance={{}})", base_variance, zero=True)
        sensitivity_variance = check_positive(f"{where}(sensitivity_variance={{}})", sensitivity_variance, zero=True)
        drawn = rng.normal(rng.keys(seed, rng.Stream.DATA, round=np.arange(2)), clients)  # (2, clients)
        standard = (drawn - drawn.mean(axis=1, keepdims=True)) / drawn.std(axis=1, keepdims=True)
        means = base_mean + np.sqrt(base_variance) * standard[0]
        return cls(means, sensitivity + np.sqrt(sensitivity_variance) * standard[1], sigma, weights)

    def react(
        self, theta: Array, clients: Array, key: Array, step: int, batch_size: BatchSize, backend: Backend
    ) -> Array:
        """Return gradients theta - Z (jobs, 1) with Z drawn given `theta`, averaged over `batch_size` draws."""
        remedy = "an integer of draws, at least 1"
        draws = check_int("PerformativeMean: batch_size={}", 1 if batch_size is None else batch_size, remedy=remedy)
        noise = backend.normal(key, draws, step, theta.dtype)
        total = noise[:, :1]
        for j in range(1, draws):  # in a fixed order, for any number of jobs
            total = total + noise[:, j : j + 1]
        m, eps = (a.astype(theta.dtype)[clients, None] for a in (self.base_means, self.sensitivities))
        return np.asarray(theta - (m + eps * theta + theta.dtype.type(self.sigma / draws) * total))

    def performatively_stable(self) -> Array:
        """Return the point that minimises the loss on the data it induces, sum p_i m_i / (1 - sum p_i eps_i), (1,)."""
        pull = 1 - self.weights @ self.sensitivities
        if pull <= 0:
            raise InvalidInput(
                f"PerformativeMean: the mean sensitivity is {1 - pull:.3g}; a stable point needs it below 1"
            )
        return np.array([self.weights @ self.base_means / pull])

    def performatively_optimal(self) -> Array:
        """Return the point of least performative loss, (1,)."""
        p, stays = self.weights, 1 - self.sensitivities
        if not np.any(stays):
            raise InvalidInput("PerformativeMean: with all sensitivities 1 every theta has the same performative loss")
        return np.array([p @ (stays * self.base_means) / (p @ stays**2)])

    def loss(self, theta: Array) -> Array:
        """Return sum_i p_i E (theta - Z)^2 / 2 with Z given theta, for every row of `theta`."""
        away = (1 - self.sensitivities) * theta - self.base_means  # (replicas, clients)
        return np.asarray((away**2 + self.sigma**2) @ self.weights / 2)


def _finite(name: str, values: object, clients: int = 0) -> Array:
    """Return a column of finite numbers; one number is repeated for all of `clients`."""
    array = check_array(f"PerformativeMean({name})", values, remedy="one number per client")
    if clients and array.shape == ():
        array = np.full(clients, array)
    if clients and array.shape != (clients,):
        raise InvalidInput(f"PerformativeMean({name}): shape {array.shape} for {clients} clients; give one number each")
    if array.ndim != 1 or len(array) == 0 or not np.isfinite(array).all():
        raise InvalidInput(f"PerformativeMean({name}): one finite number per client, not shape {array.shape}")
    return array
