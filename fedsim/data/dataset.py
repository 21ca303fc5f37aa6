"""Data sets: rows and labels for training and testing, from arrays, pandas frames or Hugging Face data sets.

Rows are stored in their own type and converted when they are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array, check_int, is_int
from fedsim.errors import InvalidInput
from fedsim.text import short_repr, short_str

BRACES = str.maketrans("{}", "()")  # for str.format in the messages of checks


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows `x` (n, features) with labels `y` 0 ... classes - 1, and test rows, if there are any.

    Rows may be small integers, memory-mapped; a model gets `scale * x + shift`, computed when rows are used. `shape` is
    that of one row as an image, `ids` are the users of the rows, if known.
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
            raise InvalidInput(f"Dataset(name={short_repr(self.name)}): give a string")
        name = short_str(self.name, 60)
        classes = check_int(f"Dataset {name.translate(BRACES)}: classes={{}}", self.classes, least=2)
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
                raise InvalidInput(f"{name}: labels of {where} must be integers from 0 to {classes - 1}")
        if self.test_x is not None and self.test_x.shape[1] != self.x.shape[1]:
            found = f"{self.test_x.shape[1]} columns, x has {self.x.shape[1]}"
            raise InvalidInput(f"{name}: test_x has {found}; make them agree")
        for word, value in (("scale", self.scale), ("shift", self.shift)):
            column = as_array(value)
            if column is None or column.shape not in ((), (self.features,)) or not np.isfinite(column).all():
                given = f"{name}: {word}={short_repr(value, 40)}"
                raise InvalidInput(f"{given}; give a finite number, or one for each of {self.features} columns")
        if self.shape is not None:
            sides = isinstance(self.shape, tuple) and all(is_int(side, 1) for side in self.shape)
            if not sides or math.prod(self.shape) != self.features:
                given = f"{name}: shape={short_repr(self.shape, 40)}"
                raise InvalidInput(f"{given}; give integers whose product is {self.features}, the columns")
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
        """Return stored rows, of `x` or of `test_x`, as the numbers that a model gets."""
        kind = np.dtype(dtype).type
        if np.ndim(self.scale) == 0 and np.ndim(self.shift) == 0 and self.scale == 1 and self.shift == 0:
            return np.asarray(rows, dtype)
        return np.asarray(rows.astype(dtype) * np.asarray(self.scale, kind) + np.asarray(self.shift, kind), dtype)

    def only(self, *labels: int) -> Dataset:
        """Return the rows of these classes, renumbered in the given order."""
        new = np.full(self.classes, -1)
        if len(labels) < 2 or not all(0 <= k < self.classes for k in labels):
            raise InvalidInput(f"{self.name}.only{labels}: give at least two of the classes 0 to {self.classes - 1}")
        new[list(labels)] = np.arange(len(labels))

        def select(x: Array | None, y: Array | None) -> tuple[Any, Any]:
            if x is None or y is None:
                return None, None
            chosen = new[y] >= 0
            return x[chosen], new[y[chosen]].astype(y.dtype)

        (x, y), (test_x, test_y) = select(self.x, self.y), select(self.test_x, self.test_y)
        ids = None if self.ids is None else self.ids[new[self.y] >= 0]
        name = f"{self.name} {'/'.join(map(str, labels))}"
        return Dataset(x, y, test_x, test_y, len(labels), name, self.scale, self.shift, self.shape, ids)


if TYPE_CHECKING:
    import pandas as pd


@runtime_checkable
class Columns(Protocol):
    """The members of a Hugging Face data set that are used."""

    column_names: Sequence[str]

    def with_format(self, kind: str) -> Any: ...


def from_arrays(
    x: npt.ArrayLike, y: npt.ArrayLike, test_x: npt.ArrayLike | None = None, test_y: npt.ArrayLike | None = None,
    classes: int | None = None, name: str = "data", scale: npt.ArrayLike | None = None, shift: npt.ArrayLike = 0.0,
) -> Dataset:  # fmt: skip
    """Return a data set of rows of any shape and labels 0, 1, ...; `scale` None is 1/255 for bytes, else 1."""
    if not isinstance(name, str):
        raise InvalidInput(f"from_arrays(name={short_repr(name)}): give a word")
    x, y = _numbers(name, "x", x), _labels(name, y)
    shape = x.shape[1:] if x.ndim > 2 else None
    rows, test_rows = _flat(x), None if test_x is None else _flat(_numbers(name, "test_x", test_x))
    tested = None if test_y is None else _labels(name, test_y)
    found = max([int(labels.max()) for labels in (y, tested) if labels is not None and len(labels)], default=0) + 1
    scale = (1 / 255 if x.dtype == np.uint8 else 1.0) if scale is None else scale
    return Dataset(rows, y, test_rows, tested, max(2, found) if classes is None else classes, name, scale, shift, shape)


def from_frame(
    frame: pd.DataFrame, label: str, test: pd.DataFrame | None = None, ids: str | None = None, name: str = "frame"
) -> Dataset:
    """Return a data set of a pandas frame; the values of `label` are numbered, all other columns are features."""
    from pandas import DataFrame

    if not isinstance(frame, DataFrame) or not isinstance(test, DataFrame | None):
        given = frame if not isinstance(frame, DataFrame) else test
        raise InvalidInput(f"from_frame({short_repr(given, 60)}): give a pandas DataFrame")
    for column in (label, *(() if ids is None else (ids,))):
        if not isinstance(column, str | int) or column not in frame.columns:
            known = short_str(", ".join(map(str, frame.columns)), 80)
            raise InvalidInput(f"from_frame: no column {short_repr(column, 40)}; it has {known}")
    features = [c for c in frame.columns if c not in (label, ids)]
    words = [c for c in features if frame[c].dtype.kind not in "biuf"]
    if words:
        raise InvalidInput(f"from_frame: column {words[0]!r} is not numeric; encode it or drop it")
    try:
        values = np.unique(frame[label].to_numpy())
    except TypeError:  # numbers and words, or gaps
        raise InvalidInput(f"from_frame: column {label!r} has labels of several types; use one type") from None

    def part(of: Any) -> tuple[Array, Array]:
        absent = next((c for c in (*features, label) if c not in of.columns), None)
        if absent is not None:
            raise InvalidInput(f"from_frame: test has no column {absent!r}; give it the columns of the frame")
        place = np.minimum(np.searchsorted(values, of[label].to_numpy()), len(values) - 1)
        if np.any(values[place] != of[label].to_numpy()):
            raise InvalidInput(f"from_frame: test has labels in {label!r} that the frame does not have")
        try:
            return of[features].to_numpy(np.float64), place
        except (TypeError, ValueError):
            raise InvalidInput("from_frame: a feature has gaps or words; fill or drop them") from None

    (x, y), (test_x, test_y) = part(frame), (None, None) if test is None else part(test)
    users = None if ids is None else frame[ids].to_numpy()
    return Dataset(x, y, test_x, test_y, max(2, len(values)), name, ids=users)


def from_huggingface(dataset: Any, features: str | None = None, label: str | None = None) -> Dataset:
    """Return a data set of a `datasets.Dataset` or a `DatasetDict`; columns are found by their usual names."""
    train, test = (dataset.get("train"), dataset.get("test")) if isinstance(dataset, Mapping) else (dataset, None)
    if not isinstance(train, Columns) or not (test is None or isinstance(test, Columns)):
        given = f"from_huggingface({short_repr(dataset, 60)})"
        raise InvalidInput(f"{given}: give a datasets.Dataset, or a DatasetDict with a split named train")
    names = list(train.column_names)
    if features is None:
        features = next((n for n in ("image", "img", "x", "features", "pixels") if n in names), None)
    if label is None:
        label = next((n for n in ("label", "labels", "fine_label", "y", "target") if n in names), None)
    if not (isinstance(features, str) and isinstance(label, str) and features in names and label in names):
        known = short_str(", ".join(map(str, names)), 80)
        raise InvalidInput(f"from_huggingface: the columns are {known}; choose with features=... and label=...")

    def part(split: Any) -> tuple[Array, Array]:
        rows = split.with_format("numpy")
        return np.asarray(rows[features][:]), np.asarray(rows[label][:])

    (x, y), (test_x, test_y) = part(train), (None, None) if test is None else part(test)
    return from_arrays(x, y, test_x, test_y, name="huggingface")


def _numbers(name: str, where: str, value: npt.ArrayLike) -> Array:
    try:
        array = np.empty(0, object) if isinstance(value, range) else np.asarray(value)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf" or array.ndim < 2 or not len(array):
        raise InvalidInput(f"{name}: {where} must be an array of numbers, (rows, ...), all rows of one shape")
    return array


MAX_EXACT = 2.0**53  # largest integer range of float64


def _labels(name: str, value: npt.ArrayLike) -> Array:
    y = np.empty(0, object) if isinstance(value, range) else np.asarray(value)
    if y.dtype.kind == "f" and (np.abs(y).astype(np.float64) < MAX_EXACT).all() and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    if y.dtype.kind not in "biu" or y.ndim != 1:
        raise InvalidInput(f"{name}: labels must be integers, one per row")
    return y.astype(np.uint8) if y.dtype.kind == "b" else y


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)
