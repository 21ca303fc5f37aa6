"""A fully connected ReLU network with softmax cross-entropy, Bayesian if it has a prior.

theta holds, layer by layer, the weights (in, out) row by row and then the biases.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import invalid_argument, is_int
from fedsim.problems import labelled, shards
from fedsim.problems.softmax import softmax
from fedsim.protocols import GradientKernels


class NeuralNetwork:
    """Clients with rows (X_c, y_c), hidden layers of these `widths`, and an optional N(0, I/prior_precision) prior.

    The prior is spread over the rows. Rows of small integers are stored as they are and read as `scale * x + shift`. A
    run starts at `initial(seed)` unless its scenario has an `initial`.
    """

    def __init__(
        self, data: Sequence[Any] | shards.Shards, widths: Sequence[int] = (64, 32), classes: int = 10,
        test: shards.TestRows = None, prior_precision: float = 0.0,
        scale: npt.ArrayLike | None = None, shift: npt.ArrayLike | None = None,
    ) -> None:  # fmt: skip
        stacked = shards.from_clients("NeuralNetwork", data, labelled=True, narrow=True)
        rows = labelled.check("NeuralNetwork", stacked, classes, test, scale, shift)
        try:
            given = [int(w) if is_int(w, 1, 10**6) else 0 for w in tuple(widths)]
        except Exception:  # a user's __iter__ may raise anything
            given = [0]
        if 0 in given:
            raise invalid_argument("NeuralNetwork(widths={})", widths, "give integers of at least 1, as (64, 32)")
        self.widths, self.features = tuple(given), rows.x.shape[1]
        self._widths = (self.features, *given, rows.classes)
        self.dim = int(sum((wide + 1) * high for wide, high in pairwise(self.layers.tolist())))
        self.prior_precision = shards.check_prior("NeuralNetwork", prior_precision)
        self.share = self.prior_precision / len(rows.x)
        self._hold(rows)

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, y: npt.ArrayLike, offsets: npt.ArrayLike, widths: Sequence[int] = (64, 32),
        classes: int = 10, test: shards.TestRows = None, prior_precision: float = 0.0,
        scale: npt.ArrayLike | None = None, shift: npt.ArrayLike | None = None,
    ) -> NeuralNetwork:  # fmt: skip
        """Return the problem of flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        rows = shards.from_flat("NeuralNetwork", x, y, offsets, narrow=True)
        return cls(rows, widths, classes, test, prior_precision, scale, shift)

    @classmethod
    def of(
        cls, dataset: object, parts: Sequence[Any], widths: Sequence[int] = (64, 32), prior_precision: float = 0.0
    ) -> NeuralNetwork:
        """Return the problem of a `fs.data` set and a partition such as `fs.data.iid(...)`, with its test rows."""
        return cls.from_arrays(**labelled.arguments(dataset, parts), widths=widths, prior_precision=prior_precision)

    def _hold(self, rows: labelled.Labelled) -> None:
        self._rows = rows
        self.x, self.y, self.offsets, self.sizes, self.test = rows.x, rows.y, rows.offsets, rows.sizes, rows.test
        self.clients, self.classes, self.scale, self.shift = len(rows.sizes), rows.classes, rows.scale, rows.shift

    @property
    def layers(self) -> Array:
        """The numbers of inputs, hidden units and classes; a new array, because arrays at a Ray host are read-only."""
        return np.array(self._widths, np.int64)

    def shard(self, clients: Array) -> NeuralNetwork:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        part._hold(self._rows.shard(clients))
        return part

    def initial(self, seed: int) -> Array:
        """Return the start of He et al. (2015): weights N(0, 2 / inputs), biases zero."""
        theta: Array = rng.normal(rng.keys(seed, rng.Stream.DATA, round=1), self.dim)[0]
        for weights, bias in self._split(theta):
            weights *= np.sqrt(2 / len(weights))
            bias[:] = 0
        return theta

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given; the NumPy reference."""
        x, y = self._rows.own(client, rows, theta.dtype)
        layers, inputs = self._split(theta), [x]
        for weights, bias in layers[:-1]:
            inputs.append(np.maximum(inputs[-1] @ weights + bias, 0))
        slope = softmax(inputs[-1] @ layers[-1][0] + layers[-1][1])
        slope[np.arange(len(x)), y] -= 1
        parts: list[Array] = []
        for (weights, _), below in zip(reversed(layers), reversed(inputs), strict=True):
            parts = [(below.T @ slope).ravel(), slope.sum(axis=0), *parts]
            slope = (slope @ weights.T) * (below > 0)
        return np.asarray(np.concatenate(parts) + theta.dtype.type(self.share * len(x)) * theta)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `gradient` of many jobs, compiled around BLAS products of one job each."""
        from fedsim.kernels import cpu

        return self.gradients_by(cpu, theta, clients, rows)

    def gradients_by(
        self, kernels: GradientKernels, theta: Array, clients: Array, rows: tuple[Array, Array] | None
    ) -> Array:
        """Return `gradients` by the kernels of a backend."""
        from fedsim.kernels.cpu.sums import ALL_ROWS

        out = np.empty_like(theta)
        kernels.network_gradient(
            theta, self.x, self.y, self.offsets, clients, *(rows or ALL_ROWS), self.layers,
            theta.dtype.type(self.share), out, self.scale, self.shift,
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
        *hidden, (weights, bias) = self._split(theta)
        for w, b in hidden:
            x = np.maximum(x @ w + b, 0)
        return np.asarray(x @ weights + bias)

    def _split(self, theta: Array) -> list[tuple[Array, Array]]:
        """Return weights (in, out) and biases of every layer, as views of theta."""
        out, at = [], 0
        for wide, high in pairwise(self.layers.tolist()):
            end = at + wide * high
            out.append((theta[at:end].reshape(wide, high), theta[end : end + high]))
            at = end + high
        return out
