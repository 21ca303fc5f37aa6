"""Rows with class labels, stored in their own dtype (bytes, for images) and converted when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_int
from fedsim.errors import InvalidInput
from fedsim.kernels.reference import exp
from fedsim.problems import shards
from fedsim.rng.elementary import log64
from fedsim.text import short_repr

BLOCK = 4096  # rows converted at once where all are walked through

Probabilities = Callable[[Array, Array], Array]  # theta (d,) and rows (n, features) to (n, classes)
Scores = Callable[[Array, Array], Array]  # the same before the softmax


@dataclass(frozen=True, eq=False)
class Labelled:
    """The clients' rows and the test rows; the input of a model is `scale * x + shift`, or `x` without a scale."""

    x: Array  # (n, features)
    y: Array  # int64 (n,)
    offsets: Array  # client c has rows offsets[c]:offsets[c + 1]
    sizes: Array
    classes: int
    scale: Array | None  # (features,)
    shift: Array | None
    test: tuple[Array, Array] | None

    def __post_init__(self) -> None:
        """Make all arrays read-only, as at a Ray host: kernels are compiled for one kind of array."""
        for name in ("x", "y", "offsets", "sizes", "scale", "shift"):
            column = getattr(self, name)
            if column is not None and column.flags.writeable:
                column = column.view()
                column.flags.writeable = False
                object.__setattr__(self, name, column)

    def values(self, x: Array, dtype: npt.DTypeLike) -> Array:
        """Return stored rows as the input of a model."""
        x = x.astype(dtype, copy=False)
        if self.scale is None or self.shift is None:
            return x
        return np.asarray(x * self.scale.astype(dtype) + self.shift.astype(dtype))

    def columns(self, dtype: npt.DTypeLike) -> tuple[Array | None, Array | None]:
        """Return scale and shift in the precision of a run."""
        if self.scale is None or self.shift is None:
            return None, None
        return self.scale.astype(dtype), self.shift.astype(dtype)

    def own(self, client: int, rows: Array | None, dtype: npt.DTypeLike) -> tuple[Array, Array]:
        """Return a client's rows and labels, all of them or those given."""
        x, y = shards.client_rows(self, client, rows)
        return self.values(x, dtype), y

    def potential(self, theta: Array, client: int, rows: Array | None, scores: Scores, share: float) -> float:
        """Return the cross-entropy summed over a client's rows, all or those given, plus their share of the prior."""
        theta = np.asarray(theta, np.float64)
        x, y = shards.client_rows(self, client, rows)
        total = 0.0
        for at in range(0, len(x), BLOCK):
            z = scores(theta, self.values(x[at : at + BLOCK], np.float64))
            z -= z[np.arange(len(z)), y[at : at + BLOCK]][:, None]
            top = z.max(axis=1, keepdims=True)
            total += float(log64(exp(z - top).sum(axis=1)).sum() + top.sum())
        return total + shards.prior_part(share, len(x), theta)

    def loss(self, theta: Array, probabilities: Probabilities, share: float) -> Array:
        """Return mean cross-entropy over all rows plus the prior's share, for every row of `theta` (replicas, d)."""
        out = np.empty(len(theta))
        for r, t in enumerate(theta):
            total = sum(_cross_entropy(probabilities(t, x), y) for x, y in self._blocks(t.dtype))
            out[r] = total / len(self.x) + share / 2 * (t**2).sum()
        return out

    def predict(self, theta: Array, probabilities: Probabilities) -> Array:
        """Return class probabilities of the test rows at one theta (d,): (rows, classes)."""
        return np.concatenate([probabilities(theta, x) for x in self._test_blocks(theta.dtype)])

    def _blocks(self, dtype: npt.DTypeLike) -> Iterator[tuple[Array, Array]]:
        """Yield all rows with their labels, BLOCK at a time."""
        for at in range(0, len(self.x), BLOCK):
            yield self.values(self.x[at : at + BLOCK], dtype), self.y[at : at + BLOCK]

    def _test_blocks(self, dtype: npt.DTypeLike) -> Iterator[Array]:
        assert self.test is not None
        for at in range(0, len(self.test[0]), BLOCK):
            yield self.values(self.test[0][at : at + BLOCK], dtype)

    def shard(self, clients: Array) -> Labelled:
        """Return the rows of these clients alone, without test rows, with the sizes of all clients."""
        rows, offsets = shards.rows_of(self.offsets, clients)
        return replace(self, x=self.x[rows], y=self.y[rows], offsets=offsets, test=None)


def check(
    name: str,
    data: shards.Shards,
    classes: int,
    test: shards.TestRows,
    scale: npt.ArrayLike | None = None,
    shift: npt.ArrayLike | None = None,
) -> Labelled:
    """Check rows, labels and scale."""
    labels = shards.labels_of(name, data)
    remedy = "needs at least 2, an integer, and at most a million"
    classes = check_int(f"{name}(classes={{}})", classes, 2, remedy, 10**6)
    y = _labels(name, labels, classes)
    features = data.x.shape[1]
    tested = None
    if test is not None:
        test_x, test_y = shards.from_test(name, test, features, narrow=True)
        tested = (test_x, _labels(f"{name}(test)", test_y, classes))
    return Labelled(data.x, y, data.offsets, data.sizes, classes, *columns(name, scale, shift, (features,)), tested)


def columns(
    name: str, scale: npt.ArrayLike | None, shift: npt.ArrayLike | None, shape: tuple[int, ...]
) -> tuple[Array | None, Array | None]:
    """Return scale and shift of every number of a row, flat; None for both where there is no scale."""
    if scale is None and shift is None:
        return None, None
    return (
        _column(f"{name}(scale=...)", 1.0 if scale is None else scale, shape),
        _column(f"{name}(shift=...)", 0.0 if shift is None else shift, shape),
    )


def arguments(dataset: object, parts: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of `from_arrays` for a `fs.data` set split into `parts`."""
    from fedsim.data.dataset import Dataset
    from fedsim.data.distribution import check as check_parts

    if not isinstance(dataset, Dataset):
        given = f"of({short_repr(dataset, 60)}, ...)"
        raise InvalidInput(f"{given}: give a fs.data set, as fs.data.load('digits') or fs.data.from_arrays(x, y)")
    own = check_parts(parts, len(dataset.x))
    order = np.concatenate(own)
    plain = np.ndim(dataset.scale) == 0 and np.ndim(dataset.shift) == 0 and (dataset.scale, dataset.shift) == (1, 0)
    return {
        "x": dataset.x[order], "y": dataset.y[order], "offsets": np.cumsum([0, *map(len, own)]),
        "classes": dataset.classes, "test": dataset.test,
        "scale": None if plain else dataset.scale, "shift": None if plain else dataset.shift,
    }  # fmt: skip


def _column(where: str, value: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    column = shards.numbers(where, value)
    remedy = f"give one finite number, or one for each of {' x '.join(map(str, shape))} columns"
    if not np.isfinite(column).all():
        raise InvalidInput(f"{where}: it contains a NaN or an infinity; {remedy}")
    try:
        return np.broadcast_to(column.astype(np.float64), shape).ravel()
    except ValueError:
        raise InvalidInput(f"{where}: shape {column.shape}; {remedy}") from None


def _cross_entropy(p: Array, y: Array) -> float:
    """Return -sum log p(y), without a logarithm of zero."""
    picked = p[np.arange(len(p)), y].astype(np.float64)
    return float(-log64(np.maximum(picked, np.finfo(p.dtype).tiny)).sum())


def _labels(name: str, y: Array, classes: int) -> Array:
    if np.any(y != np.floor(y)) or y.min() < 0 or y.max() >= classes:
        found = f"found {y.min()} to {y.max()}"
        raise InvalidInput(f"{name}: labels must be integers from 0 to {classes - 1}, {found}")
    return y.astype(np.int64, copy=False)
