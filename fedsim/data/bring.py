"""Data of your own: arrays, pandas frames, Hugging Face data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.data.dataset import Dataset
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd


def from_arrays(
    x: npt.ArrayLike, y: npt.ArrayLike, test_x: npt.ArrayLike | None = None, test_y: npt.ArrayLike | None = None,
    classes: int | None = None, name: str = "data", scale: npt.ArrayLike | None = None, shift: npt.ArrayLike = 0.0,
) -> Dataset:  # fmt: skip
    """Rows of any shape, flattened, and labels 0, 1, ...; `scale` None is 1/255 for bytes and 1 for all else."""
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
    for column in (label, *((ids,) if ids else ())):
        if column not in frame.columns:
            raise InvalidInput(f"from_frame: no column {column!r}; it has {', '.join(map(str, frame.columns))[:80]}")
    features = [c for c in frame.columns if c not in (label, ids)]
    words = [c for c in features if frame[c].dtype.kind not in "biuf"]
    if words:
        raise InvalidInput(f"from_frame: column {words[0]!r} is not numeric; encode it or drop it")
    values = np.unique(frame[label].to_numpy())

    def part(of: Any) -> tuple[Array, Array]:
        place = np.searchsorted(values, of[label].to_numpy())
        if np.any(place >= len(values)) or np.any(values[place] != of[label].to_numpy()):
            raise InvalidInput(f"from_frame: test has labels in {label!r} that the frame does not have")
        return of[features].to_numpy(np.float64), place

    (x, y), (test_x, test_y) = part(frame), (None, None) if test is None else part(test)
    who = frame[ids].to_numpy() if ids else None
    return Dataset(x, y, test_x, test_y, max(2, len(values)), name, ids=who)


def from_huggingface(dataset: Any, features: str | None = None, label: str | None = None) -> Dataset:
    """A `datasets.Dataset`, or a `DatasetDict` of train and test; columns are found by their usual names."""
    train, test = (dataset["train"], dataset.get("test")) if hasattr(dataset, "keys") else (dataset, None)
    names = list(train.column_names)
    features = features or next((n for n in ("image", "img", "x", "features", "pixels") if n in names), None)
    label = label or next((n for n in ("label", "labels", "fine_label", "y", "target") if n in names), None)
    if features not in names or label not in names:
        raise InvalidInput(f"from_huggingface: columns {names}; say which with features=... and label=...")

    def part(split: Any) -> tuple[Array, Array]:
        rows = split.with_format("numpy")
        return np.asarray(rows[features][:]), np.asarray(rows[label][:])

    (x, y), (test_x, test_y) = part(train), (None, None) if test is None else part(test)
    return from_arrays(x, y, test_x, test_y, name="huggingface")


def _numbers(name: str, where: str, value: npt.ArrayLike) -> Array:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf" or array.ndim < 2 or not len(array):
        raise InvalidInput(f"{name}: {where} must be an array of numbers, (rows, ...), all rows of one shape")
    return array


def _labels(name: str, value: npt.ArrayLike) -> Array:
    y = np.asarray(value)
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    if y.dtype.kind not in "biu" or y.ndim != 1:
        raise InvalidInput(f"{name}: labels must be whole numbers, one per row")
    return y.astype(np.uint8) if y.dtype.kind == "b" else y


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)
