"""Data of your own: arrays, pandas frames, Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.data.dataset import Dataset
from fedsim.errors import InvalidInput, quoted, shown

if TYPE_CHECKING:
    import pandas as pd


@runtime_checkable
class Columns(Protocol):
    """What is asked of a Hugging Face data set."""

    column_names: Sequence[str]

    def with_format(self, kind: str) -> Any: ...


def from_arrays(
    x: npt.ArrayLike, y: npt.ArrayLike, test_x: npt.ArrayLike | None = None, test_y: npt.ArrayLike | None = None,
    classes: int | None = None, name: str = "data", scale: npt.ArrayLike | None = None, shift: npt.ArrayLike = 0.0,
) -> Dataset:  # fmt: skip
    """Rows of any shape, flattened, and labels 0, 1, ...; `scale` None is 1/255 for bytes and 1 for all else."""
    if not isinstance(name, str):
        raise InvalidInput(f"from_arrays(name={quoted(name)}): give a word")
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
    """A pandas frame: numeric columns are features, `label` is any column, its values numbered in their order."""
    from pandas import DataFrame

    if not isinstance(frame, DataFrame) or not isinstance(test, DataFrame | None):
        given = frame if not isinstance(frame, DataFrame) else test
        raise InvalidInput(f"from_frame({quoted(given, 60)}): give a pandas DataFrame")
    for column in (label, *(() if ids is None else (ids,))):
        if not isinstance(column, str | int) or column not in frame.columns:
            known = shown(", ".join(map(str, frame.columns)), 80)
            raise InvalidInput(f"from_frame: no column {quoted(column, 40)}; it has {known}")
    features = [c for c in frame.columns if c not in (label, ids)]
    words = [c for c in features if frame[c].dtype.kind not in "biuf"]
    if words:
        raise InvalidInput(f"from_frame: column {words[0]!r} is not numeric; encode it or drop it")
    try:
        values = np.unique(frame[label].to_numpy())
    except TypeError:  # numbers and words, or gaps
        raise InvalidInput(f"from_frame: column {label!r} holds labels of several kinds; make them all alike") from None

    def part(of: Any) -> tuple[Array, Array]:
        lacking = next((c for c in (*features, label) if c not in of.columns), None)
        if lacking is not None:
            raise InvalidInput(f"from_frame: test has no column {lacking!r}; give it the columns of the frame")
        place = np.minimum(np.searchsorted(values, of[label].to_numpy()), len(values) - 1)
        if np.any(values[place] != of[label].to_numpy()):
            raise InvalidInput(f"from_frame: test has labels in {label!r} that the frame does not have")
        try:
            return of[features].to_numpy(np.float64), place
        except (TypeError, ValueError):
            raise InvalidInput("from_frame: a feature has gaps or words; fill or drop them") from None

    (x, y), (test_x, test_y) = part(frame), (None, None) if test is None else part(test)
    who = None if ids is None else frame[ids].to_numpy()
    return Dataset(x, y, test_x, test_y, max(2, len(values)), name, ids=who)


def from_huggingface(dataset: Any, features: str | None = None, label: str | None = None) -> Dataset:
    """A `datasets.Dataset`, or a `DatasetDict` of train and test; columns are found by their usual names."""
    train, test = (dataset.get("train"), dataset.get("test")) if isinstance(dataset, Mapping) else (dataset, None)
    if not isinstance(train, Columns) or not (test is None or isinstance(test, Columns)):
        given = f"from_huggingface({quoted(dataset, 60)})"
        raise InvalidInput(f"{given}: give a datasets.Dataset, or a DatasetDict with a split named train")
    names = list(train.column_names)
    if features is None:
        features = next((n for n in ("image", "img", "x", "features", "pixels") if n in names), None)
    if label is None:
        label = next((n for n in ("label", "labels", "fine_label", "y", "target") if n in names), None)
    if not (isinstance(features, str) and isinstance(label, str) and features in names and label in names):
        known = shown(", ".join(map(str, names)), 80)
        raise InvalidInput(f"from_huggingface: columns {known}; say which with features=... and label=...")

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


WHOLE = 2.0**53  # up to it floating-point numbers tell whole ones apart


def _labels(name: str, value: npt.ArrayLike) -> Array:
    y = np.empty(0, object) if isinstance(value, range) else np.asarray(value)
    if y.dtype.kind == "f" and (np.abs(y).astype(np.float64) < WHOLE).all() and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    if y.dtype.kind not in "biu" or y.ndim != 1:
        raise InvalidInput(f"{name}: labels must be whole numbers, one per row")
    return y.astype(np.uint8) if y.dtype.kind == "b" else y


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)
