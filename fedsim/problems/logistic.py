"""Binary logistic regression: labels 0/1 (or -1/+1), loss log(1 + exp(-y x theta))."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.kernels import reference
from fedsim.problems import shards
from fedsim.protocols import GradientKernels


class LogisticRegression:
    """Clients with rows (X_c, y_c) and an optional N(0, I/prior_precision) prior spread over the rows."""

    def __init__(
        self, data: Sequence[Any] | shards.Shards, prior_precision: float = 0.0, test: shards.TestRows = None
    ) -> None:
        rows = shards.from_clients("LogisticRegression", data, labelled=True)
        labels = shards.labels_of("LogisticRegression", rows)
        self.x, self.offsets, self.sizes = rows.x, rows.offsets, rows.sizes
        self.y = _binary("LogisticRegression", labels).astype(rows.x.dtype, copy=False)
        self.clients, self.dim = len(self.sizes), self.x.shape[1]
        self.prior_precision = shards.check_prior("LogisticRegression", prior_precision)
        self.share = self.prior_precision / len(self.x)
        self.test = None
        if test is not None:
            x, y = shards.from_test("LogisticRegression", test, self.dim)
            self.test = (x, _binary("LogisticRegression(test)", y).astype(np.int64))

    @classmethod
    def from_arrays(
        cls,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        offsets: npt.ArrayLike,
        prior_precision: float = 0.0,
        test: shards.TestRows = None,
    ) -> LogisticRegression:
        """Return the problem of flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        return cls(shards.from_flat("LogisticRegression", x, y, offsets), prior_precision, test)

    @classmethod
    def synthetic(
        cls, clients: int, dim: int, heterogeneity: float = 0.0, samples: npt.ArrayLike = 100, seed: int = 0,
        prior_precision: float = 1.0,
    ) -> LogisticRegression:  # fmt: skip
        """Return a problem with normal features; clients' coefficients are N(common, heterogeneity I) (B17)."""
        where = "LogisticRegression.synthetic"
        x, score, offsets = shards.synthetic_regression(where, clients, dim, heterogeneity, samples, seed)
        u = rng.uniform(rng.keys(seed, rng.Stream.DATA, round=3, client=np.arange(len(x))), 1)[:, 0]
        return cls.from_arrays(x, (u < 1 / (1 + reference.exp(-score))).astype(float), offsets, prior_precision)

    def shard(self, clients: Array) -> LogisticRegression:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        rows, part.offsets = shards.rows_of(self.offsets, clients)
        part.x, part.y, part.test = self.x[rows], self.y[rows], None
        return part

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given; the NumPy reference."""
        x, y = shards.client_rows(self, client, rows)
        score = np.asarray(x @ theta, theta.dtype)
        out = x.T @ (1 / (1 + reference.exp(-score)) - y) + self.share * len(x) * theta
        return np.asarray(out, theta.dtype)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `gradient` of many jobs, compiled."""
        from fedsim.kernels import cpu

        return self.gradients_by(cpu, theta, clients, rows)

    def gradients_by(
        self, kernels: GradientKernels, theta: Array, clients: Array, rows: tuple[Array, Array] | None
    ) -> Array:
        """Return `gradients` by the kernels of a backend."""
        from fedsim.kernels.cpu.sums import ALL_ROWS

        out = np.empty_like(theta)
        cast = theta.dtype.type
        kernels.linear_model(
            theta, self.x, self.y, self.offsets, clients, *(rows or ALL_ROWS), True, cast(1), cast(self.share), out
        )
        return out

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """Return the loss summed over the client's rows, all of them or those given, plus their share of the prior."""
        x, y = shards.client_rows(self, client, rows)
        score = x @ np.asarray(theta, np.float64)
        return float(np.logaddexp(0, (1 - 2 * y) * score).sum() + shards.prior_part(self.share, len(x), theta))

    def potentials(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `potential` of many jobs, compiled."""
        from fedsim.kernels.cpu.sums import ALL_ROWS, logistic_potentials

        out = np.empty(len(theta))
        logistic_potentials(
            theta.astype(np.float64, copy=False), self.x, self.y, self.offsets, clients, *(rows or ALL_ROWS),
            self.share, out,
        )  # fmt: skip
        return out

    def loss(self, theta: Array) -> Array:
        """Return the mean log loss over all rows plus the prior's share, for every row of `theta` (replicas, d)."""
        score = self.x @ theta.T
        data = np.logaddexp(0, score) - self.y[:, None] * score
        return np.asarray((data.sum(axis=0) + self.prior_precision / 2 * (theta**2).sum(axis=1)) / len(self.x))

    def predict(self, theta: Array) -> Array:
        """Return class probabilities of the test rows at one theta (d,): (rows, 2)."""
        assert self.test is not None
        p = 1 / (1 + reference.exp(np.asarray(-(self.test[0] @ theta), np.float64)))
        return np.stack([1 - p, p], axis=-1)


def _binary(name: str, y: Array) -> Array:
    values = np.unique(y)
    if np.isin(values, (0, 1)).all():
        return y
    if np.isin(values, (-1, 1)).all():
        return (y + 1) / 2
    raise InvalidInput(f"{name}: labels must be 0/1 or -1/+1, found {values[:5].tolist()}")
