"""Multinomial logistic (softmax) regression with cross-entropy loss.

theta holds the weights (features, classes) row by row, then, with `bias`, one bias per class.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_bool, check_int
from fedsim.kernels import reference
from fedsim.problems import labelled, shards
from fedsim.protocols import GradientKernels


class SoftmaxRegression:
    """Clients with rows (X_c, y_c), labels 0 ... classes - 1, and an optional prior spread over the rows.

    Rows of small integers are stored as they are and read as `scale * x + shift` (a number each, or one per column).
    """

    def __init__(
        self, data: Sequence[Any] | shards.Shards, classes: int = 10, bias: bool = True, test: shards.TestRows = None,
        prior_precision: float = 0.0, scale: npt.ArrayLike | None = None, shift: npt.ArrayLike | None = None,
    ) -> None:  # fmt: skip
        stacked = shards.from_clients("SoftmaxRegression", data, labelled=True, narrow=True)
        rows = labelled.check("SoftmaxRegression", stacked, classes, test, scale, shift)
        self.bias, self.features = check_bool("SoftmaxRegression(bias={})", bias), rows.x.shape[1]
        self.prior_precision = shards.check_prior("SoftmaxRegression", prior_precision)
        self.share = self.prior_precision / len(rows.x)
        self._hold(rows)

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, y: npt.ArrayLike, offsets: npt.ArrayLike, classes: int = 10, bias: bool = True,
        test: shards.TestRows = None, prior_precision: float = 0.0,
        scale: npt.ArrayLike | None = None, shift: npt.ArrayLike | None = None,
    ) -> SoftmaxRegression:  # fmt: skip
        """Return the problem of flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        rows = shards.from_flat("SoftmaxRegression", x, y, offsets, narrow=True)
        return cls(rows, classes, bias, test, prior_precision, scale, shift)

    @classmethod
    def of(
        cls, dataset: object, parts: Sequence[Any], bias: bool = True, prior_precision: float = 0.0
    ) -> SoftmaxRegression:
        """Return the problem of a `fs.data` set and a partition such as `fs.data.iid(...)`, with its test rows."""
        return cls.from_arrays(**labelled.arguments(dataset, parts), bias=bias, prior_precision=prior_precision)

    @classmethod
    def synthetic(
        cls, clients: int, features: int, classes: int = 10, samples: npt.ArrayLike = 100, seed: int = 0,
        bias: bool = True, dtype: npt.DTypeLike = np.float32, test_samples: int = 1000,
    ) -> SoftmaxRegression:  # fmt: skip
        """Return a problem with standard normal features and label = argmax of a random linear map."""
        features = check_int("SoftmaxRegression.synthetic(features={})", features)
        classes = check_int("SoftmaxRegression.synthetic(classes={})", classes, least=2, most=10**6)
        test_samples = check_int("SoftmaxRegression.synthetic(test_samples={})", test_samples, least=0, most=2**31)
        offsets = shards.even_offsets("SoftmaxRegression.synthetic", clients, samples, features + classes)
        shards.even_offsets("SoftmaxRegression.synthetic: test", 1, max(1, test_samples), features + classes)
        n = int(offsets[-1])
        row = rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(n + test_samples))
        x = rng.normal(row, features, 0, dtype)
        mapping = rng.normal(rng.keys(seed, rng.Stream.DATA, client=np.arange(features)), classes, 0, dtype)
        y = (x @ mapping).argmax(axis=1)
        test = (x[n:], y[n:]) if test_samples else None
        return cls.from_arrays(x[:n], y[:n], offsets, classes, bias, test)

    def _hold(self, rows: labelled.Labelled) -> None:
        self._rows = rows
        self.x, self.y, self.offsets, self.sizes, self.test = rows.x, rows.y, rows.offsets, rows.sizes, rows.test
        self.clients, self.classes, self.scale, self.shift = len(rows.sizes), rows.classes, rows.scale, rows.shift
        self.dim = (self.features + self.bias) * self.classes

    def shard(self, clients: Array) -> SoftmaxRegression:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        part._hold(self._rows.shard(clients))
        return part

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given; the NumPy reference."""
        x, y = self._rows.own(client, rows, theta.dtype)
        residual = self._probabilities(theta, x)
        residual[np.arange(len(x)), y] -= 1
        parts = [(x.T @ residual).ravel(), residual.sum(axis=0)] if self.bias else [(x.T @ residual).ravel()]
        return np.asarray(np.concatenate(parts) + theta.dtype.type(self.share * len(x)) * theta)

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
        kernels.softmax_gradient(
            theta, self.x, self.y, self.offsets, clients, *(rows or ALL_ROWS), self.classes, self.bias,
            theta.dtype.type(self.share), out, *self._rows.columns(theta.dtype),
        )  # fmt: skip
        return out

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """Return the loss summed over the client's rows, all of them or those given, plus their share of the prior."""
        return self._rows.potential(theta, client, rows, self._scores, self.share)

    def loss(self, theta: Array) -> Array:
        """Return mean cross-entropy over all rows plus the prior's share, for every row of `theta` (replicas, d)."""
        return self._rows.loss(theta, self._probabilities, self.share)

    def predict(self, theta: Array) -> Array:
        """Return class probabilities of the test rows at one theta (d,): (rows, classes)."""
        return self._rows.predict(theta, self._probabilities)

    def _probabilities(self, theta: Array, x: Array) -> Array:
        return softmax(self._scores(theta, x))

    def _scores(self, theta: Array, x: Array) -> Array:
        split = self.features * self.classes
        z = x @ theta[:split].reshape(self.features, self.classes)
        if self.bias:
            z += theta[split:]
        return np.asarray(z)


def softmax(scores: Array) -> Array:
    """Return class probabilities of every row of scores."""
    e = reference.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))
