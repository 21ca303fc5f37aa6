"""Exact potentials of quadratic problems, computed from their gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.protocols import ProblemLike
from fedsim.protocols.answers import call


class QuadraticClients(ProblemLike, Protocol):
    """Clients with potentials that are quadratic in theta."""

    offsets: Array

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
    def of(cls, problem: QuadraticClients, centre: Array | None) -> Expansion:
        """Return the potentials of the clients that have rows here; zeros for those at other hosts."""
        point = centre_of(problem) if centre is None else centre
        value, slope = np.zeros(problem.clients), np.zeros((problem.clients, problem.dim))
        for c in np.flatnonzero(np.diff(problem.offsets)).tolist():
            value[c], slope[c] = problem.potential(point, c), problem.gradient(point, c)
        return cls(point, value, slope)

    def potentials(self, theta: Array, clients: Array, gradients: Array) -> Array:
        """Return potentials (jobs,) at theta (jobs, d), given the clients' gradients there."""
        rise = ((theta - self.point) * (gradients + self.slope[clients])).sum(axis=1) / 2
        return np.asarray(self.value[clients] + rise)


def centre_of(problem: QuadraticClients) -> Array:
    """Return the minimum of the sum of all clients' potentials."""
    hessian, linear = (table.sum(axis=0) for table in call(problem, "quadratic"))
    return np.asarray(np.linalg.lstsq(hessian, linear, rcond=None)[0])
