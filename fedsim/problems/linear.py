"""Linear regression with known noise variance: y = x theta + N(0, noise_variance), a Gaussian posterior."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_positive
from fedsim.errors import InvalidInput
from fedsim.problems import shards
from fedsim.problems.quadratic_potential import Expansion, centre_of
from fedsim.protocols import GradientKernels, potentials_one_by_one


class LinearRegression:
    """Clients with rows (X_c, y_c) and an optional N(0, I/prior_precision) prior spread over the rows."""

    def __init__(
        self, data: Sequence[Any] | shards.Shards, noise_variance: float = 1.0, prior_precision: float = 0.0
    ) -> None:
        rows = shards.from_clients("LinearRegression", data, labelled=True)
        labels = shards.labels_of("LinearRegression", rows)
        self.x, self.offsets, self.sizes = rows.x, rows.offsets, rows.sizes
        self.y = labels.astype(rows.x.dtype, copy=False)
        self.clients, self.dim = len(self.sizes), self.x.shape[1]
        self.noise_variance = check_positive("LinearRegression(noise_variance={})", noise_variance)
        self.prior_precision = shards.check_prior("LinearRegression", prior_precision)
        self.share = self.prior_precision / len(self.x)
        self._tabulated = self.dim * self.clients <= len(self.x)  # also of a shard
        self._tables: dict[np.dtype[Any], tuple[Array, Array]] = {}  # a cache of quadratic(), by dtype
        self._expansion: Expansion | None = None  # a cache
        self._centre: Array | None = None  # of all clients, where this problem has some of their rows

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        offsets: npt.ArrayLike,
        noise_variance: float = 1.0,
        prior_precision: float = 0.0,
    ) -> LinearRegression:
        """Return the problem of flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        return cls(shards.from_flat("LinearRegression", x, y, offsets), noise_variance, prior_precision)

    @classmethod
    def synthetic(
        cls, clients: int, dim: int, heterogeneity: float = 1.0, samples: npt.ArrayLike = 100, seed: int = 0,
        noise_variance: float = 1.0,
    ) -> LinearRegression:  # fmt: skip
        """Return a problem with standard normal features; clients' coefficients are N(common, heterogeneity I)."""
        where = "LinearRegression.synthetic"
        noise_variance = check_positive(f"{where}(noise_variance={{}})", noise_variance)
        x, score, offsets = shards.synthetic_regression(where, clients, dim, heterogeneity, samples, seed)
        noise = rng.normal(rng.keys(seed, rng.Stream.DATA, round=3, client=np.arange(len(x))), 1, 0)[:, 0]
        return cls.from_arrays(x, score + np.sqrt(noise_variance) * noise, offsets, noise_variance)

    def shard(self, clients: Array) -> LinearRegression:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        rows, part.offsets = shards.rows_of(self.offsets, clients)
        part.x, part.y, part._tables = self.x[rows], self.y[rows], {}
        part._expansion, part._centre = None, centre_of(self) if self.tabulated else None
        return part

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given; the NumPy reference."""
        x, y = shards.client_rows(self, client, rows)
        out = x.T @ (x @ theta - y) / self.noise_variance + self.share * len(x) * theta
        return np.asarray(out, theta.dtype)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `gradient` of many jobs, compiled."""
        from fedsim.kernels import cpu

        return self.gradients_by(cpu, theta, clients, rows)

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """Return the loss summed over the client's rows, all of them or those given, plus their share of the prior."""
        x, y = shards.client_rows(self, client, rows)
        residual = x @ np.asarray(theta, np.float64) - y
        return float((residual**2).sum() / (2 * self.noise_variance) + shards.prior_part(self.share, len(x), theta))

    def potentials(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `potential` of many jobs."""
        if rows is not None or not self.tabulated:
            return potentials_one_by_one(self, theta, clients, rows)
        if self._expansion is None:
            self._expansion = Expansion.of(self, self._centre)
        return self._expansion.potentials(theta, clients, self.gradients(theta, clients))

    def gradients_by(
        self, kernels: GradientKernels, theta: Array, clients: Array, rows: tuple[Array, Array] | None
    ) -> Array:
        """Return `gradients` by the kernels of a backend."""
        from fedsim.kernels.cpu.sums import ALL_ROWS

        out = np.empty_like(theta)
        if rows is None and self.tabulated:
            hessian, linear = self.quadratic(theta.dtype)
            kernels.quadratic_full(theta, hessian, linear, clients, out)
            return out
        cast = theta.dtype.type
        kernels.linear_model(
            theta, self.x, self.y, self.offsets, clients, *(rows or ALL_ROWS), False,
            cast(1 / self.noise_variance), cast(self.share), out,
        )  # fmt: skip
        return out

    @property
    def tabulated(self) -> bool:
        """True if d x d tables are smaller than the data that they replace."""
        return bool(self._tabulated)

    def quadratic(self, dtype: npt.DTypeLike = np.float64) -> tuple[Array, Array]:
        """Return tables (H, b): client c's full gradient is H_c theta - b_c."""
        dtype = np.dtype(dtype)
        if dtype not in self._tables:
            hessian = np.empty((self.clients, self.dim, self.dim))
            linear = np.empty((self.clients, self.dim))
            for c in range(self.clients):
                x = self.x[self.offsets[c] : self.offsets[c + 1]].astype(np.float64)
                hessian[c] = x.T @ x / self.noise_variance + self.share * len(x) * np.eye(self.dim)
                linear[c] = x.T @ self.y[self.offsets[c] : self.offsets[c + 1]] / self.noise_variance
            hessian = (hessian + hessian.transpose(0, 2, 1)) / 2
            self._tables[dtype] = hessian.astype(dtype), linear.astype(dtype)
        return self._tables[dtype]

    def exact(self) -> tuple[Array, Array]:
        """Return mean and covariance of the posterior."""
        hessian, linear = self.quadratic()
        total = hessian.sum(axis=0)
        if np.linalg.matrix_rank(total) < self.dim:
            raise InvalidInput(
                f"LinearRegression: {len(self.x)} rows do not determine {self.dim} coefficients; "
                "set prior_precision > 0"
            )
        covariance = np.linalg.inv(total)
        return covariance @ linear.sum(axis=0), covariance

    def loss(self, theta: Array) -> Array:
        """Return the mean squared error / (2 noise_variance) over all rows, for every row of `theta` (replicas, d)."""
        residual = self.x @ theta.T - self.y[:, None]
        return np.asarray((residual**2).mean(axis=0) / (2 * self.noise_variance))
