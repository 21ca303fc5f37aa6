"""Any differentiable JAX loss as a problem: theta is its parameters, flat, in the order of the tree's leaves.

jax is an extra (`pip install fedsim-systems[jax]`), loaded when a problem is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import call_function
from fedsim.errors import InvalidInput
from fedsim.problems import loss_reduction, shards
from fedsim.text import short_repr

BLOCK = 4096  # rows per call where all are read
ONE_THREAD = {"xla_cpu_multi_thread_eigen": False}  # sums do not depend on the number of cores


class Jax:
    """Clients with rows (X_c, y_c) and a `loss(parameters, X, y)`, a number, at any tree of arrays.

    The loss is the mean or the sum over rows, `reduction="mean"` or "sum"; None: the constructor compares the loss of
    several rows with the rows' own. A run starts from `parameters`. Metrics evaluate `outputs(parameters, X)`, scores
    of classes (rows, classes), on the rows `test=(X, y)`. A prior N(0, I / prior_precision) is spread over the rows.
    Jobs are computed one after the other, each compiled for its number of rows: a job's bits do not depend on others.
    """

    fresh = True

    def __init__(
        self, loss: Callable[..., Any], data: Sequence[Any], parameters: object,
        outputs: Callable[..., Any] | None = None, test: shards.TestRows = None, prior_precision: float = 0.0,
        reduction: str | None = None,
    ) -> None:  # fmt: skip
        jax = _jax()
        if not callable(loss):
            raise InvalidInput(f"Jax(loss={short_repr(loss, 60)}): give a function of (parameters, X, y)")
        if (test is None) != (outputs is None):
            raise InvalidInput("Jax(outputs=..., test=...): give both, or neither")
        rows = shards.from_clients("Jax", data, labelled=True, narrow=True)
        assert rows.y is not None
        self.x, self.y, self.offsets, self.sizes = rows.x, rows.y, rows.offsets, rows.sizes
        leaves, self._tree = jax.tree_util.tree_flatten(parameters)
        arrays = [shards.numbers("Jax(parameters)", np.asarray(leaf)) for leaf in leaves]
        if not arrays or not all(a.dtype.kind == "f" and np.isfinite(a).all() for a in arrays):
            raise InvalidInput("Jax(parameters): give a tree of arrays of finite floating-point numbers")
        self.shapes = [a.shape for a in arrays]
        self.start = np.concatenate([a.ravel() for a in arrays]).astype(np.float64)
        self.clients, self.dim = len(self.sizes), len(self.start)
        self.prior_precision = shards.check_prior("Jax", prior_precision)
        self.share = self.prior_precision / len(self.x)
        self.criterion, self.outputs, self.test = loss, outputs, None
        if test is not None:
            self.test = shards.from_test("Jax", test, self.x.shape[1])
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._averages = self._check_rows(reduction) == "mean"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": {}}  # compiled functions are not picklable

    @property
    def user_code(self) -> tuple[Any, ...]:
        """The user's functions, whose source a host on another machine may need."""
        return tuple(part for part in (self.criterion, self.outputs) if part is not None)

    def initial(self, seed: int) -> Array:
        """Return the given parameters, for every seed."""
        return np.array(self.start)

    def shard(self, clients: Array) -> Jax:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        rows, part.offsets = shards.rows_of(self.offsets, clients)
        part.x, part.y, part.test = self.x[rows], self.y[rows], None
        return part

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given."""
        own = self.offsets[client] + (np.arange(self.sizes[client]) if rows is None else np.asarray(rows))
        slope = self._call("slope", theta, self.x[own], self.y[own])
        return np.asarray(slope + theta.dtype.type(self.share * len(own)) * theta)

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """Return the loss summed over the client's rows, all of them or those given, plus their share of the prior."""
        own = self.offsets[client] + (np.arange(self.sizes[client]) if rows is None else np.asarray(rows))
        return self._total(np.asarray(theta, np.float64), own) + shards.prior_part(self.share, len(own), theta)

    def loss(self, theta: Array) -> Array:
        """Return the mean loss over all rows plus the prior's share, for every row of `theta` (replicas, d)."""
        data = [self._total(t, np.arange(len(self.x))) for t in theta]
        return np.asarray((data + self.prior_precision / 2 * (theta.astype(np.float64) ** 2).sum(axis=1)) / len(self.x))

    def predict(self, theta: Array) -> Array:
        """Return class probabilities of the test rows at one theta (d,): (rows, classes)."""
        assert self.test is not None
        x = self.test[0]
        return np.concatenate([self._call("classes", theta, x[at : at + BLOCK]) for at in range(0, len(x), BLOCK)])

    def _total(self, theta: Array, rows: Array) -> float:
        """Return the summed loss over these rows, in the precision of theta."""
        blocks = [rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK)]
        return sum(float(self._call("total", theta, self.x[b], self.y[b])) for b in blocks)

    def _check_rows(self, reduction: str | None) -> str:
        """Return whether the loss is the "mean" or the "sum" over rows; refuse one that is neither."""
        rows, tries = loss_reduction.rows_to_try(self.y), []
        for theta in loss_reduction.points_to_try(self.start):
            chosen = (*rows[:, None], rows)
            found = [call_function("Jax(loss)", self._call, "value", theta, self.x[r], self.y[r]) for r in chosen]
            if any(value.shape != () or value.dtype.kind != "f" for value in found):
                kind = f"{found[-1].dtype} of shape {found[-1].shape}"
                raise InvalidInput(f"Jax(loss): it returns {kind}; return one floating-point number")
            tries.append((np.array(found[:-1]), float(found[-1])))
        return loss_reduction.decide("Jax", reduction, tries)

    def _call(self, name: str, theta: Array, x: Array, *y: Array) -> Array:
        """Call a compiled function in the precision of theta."""
        jax = _jax()
        if name not in self._compiled:

            def value(theta: Array, x: Array, y: Array) -> Any:
                return self.criterion(self._named(theta), x, y)

            def total(theta: Array, x: Array, y: Array) -> Any:
                return value(theta, x, y) * (len(x) if self._averages else 1)

            def classes(theta: Array, x: Array) -> Any:
                assert self.outputs is not None
                return jax.nn.softmax(self.outputs(self._named(theta), x))

            made = {"value": value, "total": total, "classes": classes, "slope": jax.grad(total)}[name]
            self._compiled[name] = jax.jit(made, compiler_options=ONE_THREAD)
        with jax.enable_x64(theta.dtype == np.float64):
            labels = [part if part.dtype.kind in "iu" else part.astype(theta.dtype) for part in y]
            return np.asarray(self._compiled[name](theta, x.astype(theta.dtype), *labels))

    def _named(self, theta: Array) -> Any:
        ends = np.cumsum([np.prod(shape, dtype=int) for shape in self.shapes])
        parts = _jax().numpy.split(theta, ends[:-1])
        leaves = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return _jax().tree_util.tree_unflatten(self._tree, leaves)


def _jax() -> Any:
    try:
        import jax
    except ModuleNotFoundError:
        raise InvalidInput("Jax: JAX is not installed; pip install 'fedsim-systems[jax]'") from None
    return jax
