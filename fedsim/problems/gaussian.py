"""The mean of Gaussian data with known covariance, whose posterior is exact.

l^c(theta) = sum_i (theta - x_ci)' Sigma_c^-1 (theta - x_ci) / 2, the potential of FA-LD's section 7.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_array, check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.problems import shards
from fedsim.problems.quadratic_potential import Expansion, centre_of
from fedsim.protocols import GradientKernels, potentials_one_by_one


class GaussianMean:
    """Clients with points x_c (n_c, d), one covariance (d, d) or one per client, and an optional prior.

    The prior N(0, I/prior_precision) is spread over the data points: client c has the share n_c / n of it.
    """

    def __init__(
        self, data: Sequence[Any] | shards.Shards, covariance: npt.ArrayLike, prior_precision: float = 0.0
    ) -> None:
        rows = shards.from_clients("GaussianMean", data, labelled=False)
        self.x, self.offsets, self.sizes = rows.x, rows.offsets, rows.sizes
        self.clients, self.dim = len(self.sizes), self.x.shape[1]
        self.prior_precision = shards.check_prior("GaussianMean", prior_precision)
        self.precision = np.linalg.inv(_covariances(covariance, self.clients, self.dim))  # (1 or clients, d, d)
        self.precision = (self.precision + self.precision.transpose(0, 2, 1)) / 2
        self.share = self.prior_precision / len(self.x)
        self._tables: dict[np.dtype[Any], tuple[Array, Array]] = {}  # a cache of quadratic(), by dtype
        self._expansion: Expansion | None = None  # a cache
        self._centre: Array | None = None  # of all clients, where this problem has some of their rows

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, offsets: npt.ArrayLike, covariance: npt.ArrayLike, prior_precision: float = 0.0
    ) -> GaussianMean:
        """Return the problem of flat data: client c owns rows offsets[c]:offsets[c + 1] of `x`, which is not copied."""
        return cls(shards.from_flat("GaussianMean", x, None, offsets), covariance, prior_precision)

    @classmethod
    def synthetic(
        cls, clients: int, dim: int, heterogeneity: float = 1.0, samples: npt.ArrayLike = 100, seed: int = 0,
        covariance: npt.ArrayLike | None = None,
    ) -> GaussianMean:  # fmt: skip
        """Return a problem whose clients' centres are N(0, heterogeneity I); `covariance` None is the identity."""
        dim = check_int("GaussianMean.synthetic(dim={})", dim)
        offsets = shards.even_offsets("GaussianMean.synthetic", clients, samples, dim)
        clients = len(offsets) - 1
        spread = check_positive("GaussianMean.synthetic(heterogeneity={})", heterogeneity, zero=True)
        sigma = _covariances(np.eye(dim) if covariance is None else covariance, clients, dim)
        factors = np.linalg.cholesky(sigma)
        centres = rng.normal(rng.keys(seed, rng.Stream.DATA, client=np.arange(clients)), dim, 0)
        noise = rng.normal(rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(offsets[-1])), dim, 0)
        x = np.empty_like(noise)
        for c in range(clients):
            own = slice(offsets[c], offsets[c + 1])
            x[own] = np.sqrt(spread) * centres[c] + noise[own] @ factors[c if len(factors) > 1 else 0].T
        return cls.from_arrays(x, offsets, sigma)

    def shard(self, clients: Array) -> GaussianMean:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        rows, part.offsets = shards.rows_of(self.offsets, clients)
        part.x, part._tables, part._expansion = self.x[rows], {}, None
        part._centre = centre_of(self)
        return part

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given; the NumPy reference."""
        x = self.x[slice(*self.offsets[client : client + 2])]
        x = x if rows is None else x[rows]
        p = self.precision[client if len(self.precision) > 1 else 0]
        out = p @ (len(x) * theta - x.sum(axis=0, dtype=theta.dtype)) + self.share * len(x) * theta
        return np.asarray(out, theta.dtype)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `gradient` of many jobs, compiled; `rows` are flat, with the start of each job's."""
        from fedsim.kernels import cpu

        return self.gradients_by(cpu, theta, clients, rows)

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """Return the loss summed over the client's rows, all of them or those given, plus their share of the prior."""
        x = self.x[slice(*self.offsets[client : client + 2])]
        away = np.asarray(theta, np.float64) - (x if rows is None else x[rows])
        p = self.precision[client if len(self.precision) > 1 else 0]
        return float(((away @ p) * away).sum() / 2 + shards.prior_part(self.share, len(away), theta))

    def potentials(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `potential` of many jobs."""
        if rows is not None:
            return potentials_one_by_one(self, theta, clients, rows)
        if self._expansion is None:
            self._expansion = Expansion.of(self, self._centre)
        return self._expansion.potentials(theta, clients, self.gradients(theta, clients))

    def gradients_by(
        self, kernels: GradientKernels, theta: Array, clients: Array, rows: tuple[Array, Array] | None
    ) -> Array:
        """Return `gradients` by the kernels of a backend."""
        out = np.empty_like(theta)
        if rows is None:
            hessian, linear = self.quadratic(theta.dtype)
            kernels.quadratic_full(theta, hessian, linear, clients, out)
        else:
            p, share = self._cast(theta.dtype)
            kernels.gaussian_rows(theta, self.x, self.offsets, p, clients, *rows, share, out)
        return out

    def quadratic(self, dtype: npt.DTypeLike = np.float64) -> tuple[Array, Array]:
        """Return tables (H, b): client c's full gradient is H_c theta - b_c."""
        if np.dtype(dtype) not in self._tables:
            self._tables[np.dtype(dtype)] = self._quadratic(np.dtype(dtype))
        return self._tables[np.dtype(dtype)]

    def _quadratic(self, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        sums = shards.sums_by_client(self.x, self.offsets)
        hessian = self.sizes[:, None, None] * (self.precision + self.share * np.eye(self.dim))
        linear = np.einsum("cij,cj->ci", np.broadcast_to(self.precision, hessian.shape), sums)
        return np.ascontiguousarray(hessian, dtype), np.ascontiguousarray(linear, dtype)

    def exact(self) -> tuple[Array, Array]:
        """Return mean and covariance of the posterior exp(-sum_c l^c)."""
        hessian, linear = self.quadratic()
        covariance = np.linalg.inv(hessian.sum(axis=0))
        return covariance @ linear.sum(axis=0), covariance

    def _cast(self, dtype: npt.DTypeLike) -> tuple[Array, Any]:
        return self.precision.astype(dtype, copy=False), np.asarray(self.share, dtype)[()]


def _covariances(covariance: npt.ArrayLike, clients: int, dim: int) -> Array:
    sigma = check_array("GaussianMean: covariance", covariance)
    sigma = sigma[None] if sigma.ndim == 2 else sigma
    if sigma.shape not in ((1, dim, dim), (clients, dim, dim)):
        raise InvalidInput(
            f"GaussianMean: covariance of shape {np.shape(covariance)}; "
            f"give ({dim}, {dim}) or ({clients}, {dim}, {dim})"
        )
    if not np.isfinite(sigma).all() or not np.allclose(sigma, sigma.transpose(0, 2, 1)):
        raise InvalidInput("GaussianMean: a covariance is a finite symmetric matrix")
    least = np.linalg.eigvalsh(sigma).min()
    if least <= 0:
        raise InvalidInput(f"GaussianMean: covariance has eigenvalue {least:.3g}; it must be positive definite")
    return sigma
