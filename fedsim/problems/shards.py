"""The clients' data as one flat array with offsets: client c owns rows offsets[c]:offsets[c + 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Shards:
    """Ragged data of all clients; `x` and `y` are the caller's own arrays where they come flat."""

    x: Array  # (n, features)
    y: Array | None  # (n,)
    offsets: Array  # int64 (clients + 1,)

    @property
    def sizes(self) -> Array:
        return np.diff(self.offsets)

    def rows(self, client: int) -> slice:
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))


def from_clients(name: str, data: Sequence[Any], labelled: bool) -> Shards:
    """Stack `data=[x0, x1, ...]`, or `[(X0, y0), ...]` where `labelled`."""
    if len(data) == 0:
        raise InvalidInput(f"{name}: data is empty; give one array per client")
    xs, ys = [], []
    for c, item in enumerate(data):
        if labelled:
            if not (isinstance(item, (tuple, list)) and len(item) == 2):
                raise InvalidInput(f"{name}: data[{c}] must be a pair (X, y), not {type(item).__name__}")
            x, y = _array(name, c, item[0]), np.asarray(item[1])
            if y.shape != (len(x),):
                raise InvalidInput(f"{name}: data[{c}] has {len(x)} rows but labels of shape {y.shape}")
            ys.append(y)
        else:
            x = _array(name, c, item)
        if xs and x.shape[1] != xs[0].shape[1]:
            raise InvalidInput(
                f"{name}: data[{c}] has {x.shape[1]} columns, data[0] has {xs[0].shape[1]}; give all clients the same"
            )
        xs.append(x)
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in xs])])
    return from_flat(name, np.concatenate(xs), np.concatenate(ys) if labelled else None, offsets)


def from_flat(name: str, x: Any, y: Any, offsets: Any) -> Shards:
    """Check flat arrays and keep them as they are, without a copy."""
    x = np.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    offsets = np.asarray(offsets, np.int64)
    if x.ndim != 2:
        raise InvalidInput(f"{name}: x must have two axes (rows, columns), not shape {x.shape}")
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(x):
        raise InvalidInput(f"{name}: offsets must run from 0 to the number of rows, {len(x)}, one more than clients")
    if np.any(np.diff(offsets) < 1):
        empty = int(np.argmax(np.diff(offsets) < 1))
        raise InvalidInput(f"{name}: client {empty} has no data; leave it out or give it at least one row")
    if not np.isfinite(x).all():
        row = int(np.argmax(~np.isfinite(x).all(axis=1)))
        client = int(np.searchsorted(offsets, row, side="right") - 1)
        raise InvalidInput(f"{name}: client {client} has a NaN or infinity in row {row - offsets[client]}; clean the data")
    if y is not None:
        y = np.asarray(y)
        if y.shape != (len(x),):
            raise InvalidInput(f"{name}: y has shape {y.shape}; give one label per row, ({len(x)},)")
        if not np.isfinite(y).all():
            raise InvalidInput(f"{name}: y holds a NaN or infinity in row {int(np.argmin(np.isfinite(y)))}; clean the data")
    return Shards(x, y, offsets)


def even_offsets(name: str, clients: int, samples: Any) -> Array:
    """Offsets for `samples` rows each (one number, or one per client)."""
    sizes = np.broadcast_to(np.asarray(samples, np.int64), (clients,))
    if clients < 1 or np.any(sizes < 1):
        raise InvalidInput(f"{name}: clients={clients}, samples={samples}: both must be at least 1")
    return np.concatenate([[0], np.cumsum(sizes)])


def check_prior(name: str, precision: float) -> float:
    if not (np.isscalar(precision) and np.isfinite(precision) and precision >= 0):  # type: ignore[arg-type]
        raise InvalidInput(f"{name}(prior_precision={precision}): must be zero (flat prior) or a positive number")
    return float(precision)


def _array(name: str, client: int, item: Any) -> Array:
    try:
        x = np.asarray(item)
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name}: data[{client}] is not a rectangular array of numbers") from None
    if x.ndim != 2:
        raise InvalidInput(f"{name}: data[{client}] must have two axes (rows, columns), not shape {x.shape}")
    return x
