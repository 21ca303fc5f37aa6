"""A data set: rows and labels to learn from and to be judged by, kept as they are stored and converted when used."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import array_of
from fedsim.errors import InvalidInput, is_whole, quoted, shown, whole

BRACES = str.maketrans("{}", "()")  # which mean something in a refusal's text


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows `x` (n, features) with labels `y` 0 ... classes - 1, and test rows, where the set has any.

    Rows may be small integers, memory-mapped: what a model sees is `scale * x + shift`, made as rows are used.
    `shape` is that of one row as an image, `ids` says who a row came from, where that is known.
    """

    x: Array
    y: Array
    test_x: Array | None
    test_y: Array | None
    classes: int
    name: str
    scale: Any = 1.0  # a number, or one per column
    shift: Any = 0.0
    shape: tuple[int, ...] | None = None
    ids: Array | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InvalidInput(f"Dataset(name={quoted(self.name)}): give it a name, as text")
        name = shown(self.name, 60)
        classes = whole(f"Dataset {name.translate(BRACES)}: classes={{}}", self.classes, least=2)
        pairs = [("x", self.x, self.y), ("test_x", self.test_x, self.test_y)]
        for where, x, y in pairs:
            if where == "test_x" and x is None and y is None:
                continue
            arrays = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
            if (
                x is None
                or y is None
                or not arrays
                or x.ndim != 2
                or y.shape != (len(x),)
                or x.dtype.kind not in "biuf"
            ):
                raise InvalidInput(f"{name}: {where} must be rows of numbers (n, features) with one label each")
            if y.dtype.kind not in "biu" or (len(y) and (y.min() < 0 or y.max() >= classes)):
                raise InvalidInput(f"{name}: labels of {where} must be whole numbers from 0 to {classes - 1}")
        if self.test_x is not None and self.test_x.shape[1] != self.x.shape[1]:
            found = f"{self.test_x.shape[1]} columns, x has {self.x.shape[1]}"
            raise InvalidInput(f"{name}: test_x has {found}; make them agree")
        for word, value in (("scale", self.scale), ("shift", self.shift)):
            column = array_of(value)
            if column is None or column.shape not in ((), (self.features,)) or not np.isfinite(column).all():
                given = f"{name}: {word}={quoted(value, 40)}"
                raise InvalidInput(f"{given}; give a finite number, or one for each of {self.features} columns")
        if self.shape is not None:
            sides = isinstance(self.shape, tuple) and all(is_whole(side, 1) for side in self.shape)
            if not sides or math.prod(self.shape) != self.features:
                given = f"{name}: shape={quoted(self.shape, 40)}"
                raise InvalidInput(f"{given}; give whole numbers whose product is {self.features}, the columns")
        if self.ids is not None and (not isinstance(self.ids, np.ndarray) or self.ids.shape != (len(self.x),)):
            raise InvalidInput(f"{name}: ids must be an array with one for each of {len(self.x)} rows")

    @property
    def features(self) -> int:
        return int(self.x.shape[1])

    @property
    def test(self) -> tuple[Array, Array] | None:
        """The test rows and labels, as problems take them."""
        return None if self.test_x is None or self.test_y is None else (self.test_x, self.test_y)

    def values(self, rows: Array, dtype: npt.DTypeLike = np.float64) -> Array:
        """Stored rows, of `x` or of `test_x`, as the numbers that a model sees."""
        kind = np.dtype(dtype).type
        if np.ndim(self.scale) == 0 and np.ndim(self.shift) == 0 and self.scale == 1 and self.shift == 0:
            return np.asarray(rows, dtype)
        return np.asarray(rows.astype(dtype) * np.asarray(self.scale, kind) + np.asarray(self.shift, kind), dtype)

    def only(self, *labels: int) -> Dataset:
        """The rows of these classes, numbered anew in the order given."""
        new = np.full(self.classes, -1)
        if len(labels) < 2 or not all(0 <= k < self.classes for k in labels):
            raise InvalidInput(f"{self.name}.only{labels}: give at least two of the classes 0 to {self.classes - 1}")
        new[list(labels)] = np.arange(len(labels))

        def pick(x: Array | None, y: Array | None) -> tuple[Any, Any]:
            if x is None or y is None:
                return None, None
            kept = new[y] >= 0
            return x[kept], new[y[kept]].astype(y.dtype)

        (x, y), (test_x, test_y) = pick(self.x, self.y), pick(self.test_x, self.test_y)
        ids = None if self.ids is None else self.ids[new[self.y] >= 0]
        name = f"{self.name} {'/'.join(map(str, labels))}"
        return Dataset(x, y, test_x, test_y, len(labels), name, self.scale, self.shift, self.shape, ids)
