"""Linear regression with known noise variance: y = x theta + N(0, noise_variance), a Gaussian posterior."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.problems import shards
from fedsim.problems.expansion import Expansion
from fedsim.protocols import GradientKernels, potentials_one_by_one


class LinearRegression:
    """Clients with rows (X_c, y_c) and an optional N(0, I/prior_precision) prior spread over the rows."""

    def __init__(self, data: Sequence[Any], noise_variance: float = 1.0, prior_precision: float = 0.0) -> None:
        stacked = shards.from_clients("LinearRegression", data, labelled=True)
        self._build(stacked, noise_variance, prior_precision)

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        offsets: npt.ArrayLike,
        noise_variance: float = 1.0,
        prior_precision: float = 0.0,
    ) -> LinearRegression:
        """Flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        self = cls.__new__(cls)
        self._build(shards.from_flat("LinearRegression", x, y, offsets), noise_variance, prior_precision)
        return self

    @classmethod
    def synthetic(
        cls, clients: int, dim: int, heterogeneity: float = 1.0, samples: npt.ArrayLike = 100, seed: int = 0,
        noise_variance: float = 1.0,
    ) -> LinearRegression:  # fmt: skip
        """Standard normal features; every client's true coefficients are N(common, heterogeneity I)."""
        dim = check_int("LinearRegression.synthetic(dim={})", dim)
        offsets = shards.even_offsets("LinearRegression.synthetic", clients, samples, dim)
        clients = len(offsets) - 1
        spread = check_positive("LinearRegression.synthetic(heterogeneity={})", heterogeneity, zero=True)
        noise_variance = check_positive("LinearRegression.synthetic(noise_variance={})", noise_variance)
        owner = np.repeat(np.arange(clients), np.diff(offsets))
        row = np.arange(offsets[-1])
        truth = rng.normal(rng.keys(seed, rng.Stream.DATA), dim, 0)
        own = rng.normal(rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(clients)), dim, 0)
        x = rng.normal(rng.keys(seed, rng.Stream.DATA, round=2, client=row), dim, 0)
        noise = rng.normal(rng.keys(seed, rng.Stream.DATA, round=3, client=row), 1, 0)[:, 0]
        coefficients = truth + np.sqrt(spread) * own
        y = np.einsum("ni,ni->n", x, coefficients[owner]) + np.sqrt(noise_variance) * noise
        return cls.from_arrays(x, y, offsets, noise_variance)

    def _build(self, data: shards.Shards, noise_variance: float, prior_precision: float) -> None:
        labels = shards.labels_of("LinearRegression", data)
        self.x, self.offsets, self.sizes = data.x, data.offsets, data.sizes
        self.y = labels.astype(data.x.dtype, copy=False)
        self.clients, self.dim = len(self.sizes), self.x.shape[1]
        self.noise_variance = check_positive("LinearRegression(noise_variance={})", noise_variance)
        self.prior_precision = shards.check_prior("LinearRegression", prior_precision)
        self.share = self.prior_precision / len(self.x)
        self._tables: dict[np.dtype[Any], tuple[Array, Array]] = {}  # a cache: what quadratic() gave, by dtype
        self._expansion: Expansion | None = None  # a cache, too

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """The NumPy reference: the sum over the client's rows, all of them or those given."""
        x, y = shards.client_rows(self, client, rows)
        out = x.T @ (x @ theta - y) / self.noise_variance + self.share * len(x) * theta
        return np.asarray(out, theta.dtype)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """The same for a flat batch of jobs, compiled."""
        from fedsim.kernels import cpu

        return self.gradients_by(cpu, theta, clients, rows)

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """The loss summed over the client's rows, all of them or those given, and their share of the prior."""
        x, y = shards.client_rows(self, client, rows)
        residual = x @ np.asarray(theta, np.float64) - y
        return float((residual**2).sum() / (2 * self.noise_variance) + shards.prior_part(self.share, len(x), theta))

    def potentials(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """The same for a flat batch of jobs."""
        if rows is not None or not self.tabulated:
            return potentials_one_by_one(self, theta, clients, rows)
        if self._expansion is None:
            self._expansion = Expansion.of(self)
        return self._expansion.potentials(theta, clients, self.gradients(theta, clients))

    def gradients_by(
        self, kernels: GradientKernels, theta: Array, clients: Array, rows: tuple[Array, Array] | None
    ) -> Array:
        """`gradients` by a backend's own kernels."""
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
        """Whether d x d tables are smaller than the data they stand for."""
        return bool(self.dim * self.clients <= len(self.x))

    def quadratic(self, dtype: npt.DTypeLike = np.float64) -> tuple[Array, Array]:
        """Tables (H, b) with which client c's full gradient is H_c theta - b_c."""
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
        """Mean and covariance of the posterior."""
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
        """Mean squared error / (2 noise_variance) over all rows, for every row of `theta` (replicas, d)."""
        residual = self.x @ theta.T - self.y[:, None]
        return np.asarray((residual**2).mean(axis=0) / (2 * self.noise_variance))
