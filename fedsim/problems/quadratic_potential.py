"""Exact potentials of quadratic problems, computed from their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.protocols import ProblemLike


class QuadraticClients(ProblemLike, Protocol):
    """Clients with potentials that are quadratic in theta."""

    def quadratic(self, dtype: npt.DTypeLike = ...) -> tuple[Array, Array]: ...
    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array: ...
    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float: ...


@dataclass(frozen=True, eq=False)
class Expansion:
    """All clients' potentials and gradients at one point.

    With a linear gradient g, f(theta) = f(m) + (theta - m)' (g(theta) + g(m)) / 2 for any point m. At the minimum of
    the sum of all potentials, differences of f do not cancel where the data lie far from zero.
    """

    point: Array  # (d,)
    value: Array  # (clients,)
    slope: Array  # (clients, d)

    @classmethod
    def of(cls, problem: QuadraticClients) -> Expansion:
        hessian, linear = (table.sum(axis=0) for table in problem.quadratic())
        point = np.linalg.lstsq(hessian, linear, rcond=None)[0]
        clients = range(problem.clients)
        return cls(
            point,
            np.array([problem.potential(point, c) for c in clients]),
            np.array([problem.gradient(point, c) for c in clients]),
        )

    def potentials(self, theta: Array, clients: Array, gradients: Array) -> Array:
        """Return potentials (jobs,) at theta (jobs, d), given the clients' gradients there."""
        rise = ((theta - self.point) * (gradients + self.slope[clients])).sum(axis=1) / 2
        return np.asarray(self.value[clients] + rise)
