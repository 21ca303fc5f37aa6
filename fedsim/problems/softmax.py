"""Multinomial logistic (softmax) regression with cross-entropy loss.

theta holds the weights (features, classes) row by row, then, with `bias`, one bias per class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.errors import InvalidInput, flag, whole
from fedsim.kernels import reference
from fedsim.problems import shards

Array = npt.NDArray[Any]


class SoftmaxRegression:
    """Clients with rows (X_c, y_c), labels 0 ... classes - 1, and an optional prior spread over the rows."""

    def __init__(
        self, data: Sequence[Any], classes: int = 10, bias: bool = True, test: Any = None,
        prior_precision: float = 0.0,
    ) -> None:  # fmt: skip
        stacked = shards.from_clients("SoftmaxRegression", data, labelled=True)
        self._build(stacked, classes, bias, test, prior_precision)

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, offsets: Any, classes: int = 10, bias: bool = True, test: Any = None,
        prior_precision: float = 0.0,
    ) -> SoftmaxRegression:  # fmt: skip
        """Flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        self = cls.__new__(cls)
        self._build(shards.from_flat("SoftmaxRegression", x, y, offsets), classes, bias, test, prior_precision)
        return self

    @classmethod
    def synthetic(
        cls, clients: int, features: int, classes: int = 10, samples: Any = 100, seed: int = 0,
        bias: bool = True, dtype: npt.DTypeLike = np.float32, test_samples: int = 1000,
    ) -> SoftmaxRegression:  # fmt: skip
        """Standard normal features, label = argmax of a random linear map."""
        features = whole("SoftmaxRegression.synthetic(features={})", features)
        classes = _classes(classes)
        test_samples = whole("SoftmaxRegression.synthetic(test_samples={})", test_samples, least=0, most=2**31)
        offsets = shards.even_offsets("SoftmaxRegression.synthetic", clients, samples, features + classes)
        shards.even_offsets("SoftmaxRegression.synthetic: test", 1, max(1, test_samples), features + classes)
        n = int(offsets[-1])
        row = rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(n + test_samples))
        x = rng.normal(row, features, 0, dtype)
        mapping = rng.normal(rng.keys(seed, rng.Stream.DATA, client=np.arange(features)), classes, 0, dtype)
        y = (x @ mapping).argmax(axis=1)
        test = (x[n:], y[n:]) if test_samples else None
        return cls.from_arrays(x[:n], y[:n], offsets, classes, bias, test)

    def _build(self, data: shards.Shards, classes: int, bias: bool, test: Any, prior_precision: float) -> None:
        if data.y is None:
            raise InvalidInput("SoftmaxRegression: y is None; give a label for every row")
        self.x, self.offsets, self.sizes = data.x, data.offsets, data.sizes
        self.classes, self.bias = _classes(classes), flag("SoftmaxRegression(bias={})", bias)
        self.y = self._labels("SoftmaxRegression", data.y)
        self.clients, self.features = len(self.sizes), self.x.shape[1]
        self.dim = (self.features + self.bias) * self.classes
        self.prior_precision = shards.check_prior("SoftmaxRegression", prior_precision)
        self.share = self.prior_precision / len(self.x)
        self.test = None
        if test is not None:
            x, y = shards.from_test("SoftmaxRegression", test, self.features)
            self.test = (x, self._labels("SoftmaxRegression(test)", y))

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """The NumPy reference: the sum over the client's rows, all of them or those given."""
        own = slice(*self.offsets[client : client + 2])
        x, y = self.x[own], self.y[own]
        x, y = (x, y) if rows is None else (x[rows], y[rows])
        x = x.astype(theta.dtype, copy=False)
        residual = self._probabilities(theta, x)
        residual[np.arange(len(x)), y] -= 1
        parts = [(x.T @ residual).ravel(), residual.sum(axis=0)] if self.bias else [(x.T @ residual).ravel()]
        return np.asarray(np.concatenate(parts) + theta.dtype.type(self.share * len(x)) * theta)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """The same for a flat batch of jobs, compiled around one pair of BLAS products a job."""
        from fedsim.kernels import softmax

        return self.gradients_by(softmax, theta, clients, rows)

    def gradients_by(self, kernels: Any, theta: Array, clients: Array, rows: tuple[Array, Array] | None) -> Array:
        """`gradients` by a backend's own kernels."""
        from fedsim.kernels.gradients import NO_ROWS, NO_START

        out = np.empty_like(theta)
        flat, start = rows if rows is not None else (NO_ROWS, NO_START)
        kernels.softmax_gradient(
            theta, self.x, self.y, self.offsets, clients, flat, start, self.classes, self.bias,
            theta.dtype.type(self.share), out,
        )  # fmt: skip
        return out

    def loss(self, theta: Array) -> Array:
        """Mean cross-entropy over all rows plus the prior's share, for every row of `theta` (replicas, d)."""
        out = np.empty(len(theta))
        for r, t in enumerate(theta):
            p = self._probabilities(t, self.x.astype(t.dtype, copy=False))
            picked = p[np.arange(len(p)), self.y]
            out[r] = -np.log(np.maximum(picked, np.finfo(p.dtype).tiny)).mean() + self.share / 2 * (t**2).sum()
        return out

    def predict(self, theta: Array) -> Array:
        """Class probabilities of the test rows under one theta (d,): (rows, classes)."""
        assert self.test is not None
        return self._probabilities(theta, self.test[0].astype(theta.dtype, copy=False))

    def _probabilities(self, theta: Array, x: Array) -> Array:
        split = self.features * self.classes
        z = x @ theta[:split].reshape(self.features, self.classes)
        if self.bias:
            z += theta[split:]
        e = reference.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))

    def _labels(self, name: str, y: Array) -> Array:
        if np.any(y != np.floor(y)) or y.min() < 0 or y.max() >= self.classes:
            found = f"found {y.min()} to {y.max()}"
            raise InvalidInput(f"{name}: labels must be whole numbers from 0 to {self.classes - 1}, {found}")
        return y.astype(np.int64, copy=False)


def _classes(classes: int) -> int:
    remedy = "needs at least 2, a whole number, and at most a million"
    return whole("SoftmaxRegression(classes={})", classes, 2, remedy, 10**6)
