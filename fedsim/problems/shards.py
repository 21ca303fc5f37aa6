"""The clients' data as one flat array with offsets: client c owns rows offsets[c]:offsets[c + 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import as_array, check_allocation, check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.protocols import BatchSize
from fedsim.text import short_str

NARROW = (np.uint8, np.int8, np.uint16, np.int16)  # stored as they are where rows are converted when they are read
DRAWN = 45  # bytes, as measured, of a number while it is drawn; it takes 8 afterwards

TestRows = tuple[npt.ArrayLike, npt.ArrayLike] | None  # test rows and labels


@dataclass(frozen=True)
class Shards:
    """Data of all clients; `x` and `y` are the caller's own arrays where they were flat."""

    x: Array  # (n, features)
    y: Array | None  # (n,)
    offsets: Array  # int64 (clients + 1,)

    @property
    def sizes(self) -> Array:
        return np.diff(self.offsets)


class LabelledRows(Protocol):
    """An object with the clients' rows and labels."""

    @property
    def x(self) -> Array: ...
    @property
    def y(self) -> Array: ...
    @property
    def offsets(self) -> Array: ...


def client_rows(held: LabelledRows, client: int, rows: Array | None) -> tuple[Array, Array]:
    """Return a client's rows and labels, all of them or those given."""
    own = slice(*held.offsets[client : client + 2])
    x, y = held.x[own], held.y[own]
    return (x, y) if rows is None else (x[rows], y[rows])


def labels_of(name: str, data: Shards) -> Array:
    """Return the labels; refuse data without labels."""
    if data.y is None:
        raise InvalidInput(f"{name}: y is None; give a label for every row")
    return data.y


def from_clients(name: str, data: Sequence[Any] | Shards, labelled: bool, narrow: bool = False) -> Shards:
    """Stack `data=[x0, x1, ...]`, or `[(X0, y0), ...]` where `labelled`; return shards as they are."""
    if isinstance(data, Shards):
        return data
    try:
        clients = list(data)
    except Exception:  # a user's __iter__ may raise anything
        raise InvalidInput(f"{name}: data={short_str(data)}; give a list with one entry per client") from None
    if not clients:
        raise InvalidInput(f"{name}: data is empty; give one array per client")
    xs: list[Array] = []
    ys: list[Array] = []
    for c, item in enumerate(clients):
        if labelled:
            if not (isinstance(item, (tuple, list)) and len(item) == 2):
                raise InvalidInput(f"{name}: data[{c}] must be a pair (X, y), not {type(item).__name__}")
            x = numbers(f"{name}: data[{c}]", item[0], 2)
            y = numbers(f"{name}: y of data[{c}]", item[1])
            if y.shape != (len(x),):
                raise InvalidInput(f"{name}: data[{c}] has {len(x)} rows but labels of shape {y.shape}")
            ys.append(y)
        else:
            x = numbers(f"{name}: data[{c}]", item, 2)
        if xs and x.shape[1] != xs[0].shape[1]:
            differ = f"data[{c}] has {x.shape[1]} columns, data[0] has {xs[0].shape[1]}"
            raise InvalidInput(f"{name}: {differ}; give all clients the same")
        xs.append(x)
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in xs])])
    return from_flat(name, np.concatenate(xs), np.concatenate(ys) if labelled else None, offsets, narrow)


def from_flat(
    name: str, x: npt.ArrayLike, y: npt.ArrayLike | None, offsets: npt.ArrayLike, narrow: bool = False
) -> Shards:
    """Check flat arrays, which are not copied; `narrow` allows small integers."""
    x = numbers(f"{name}: x", x, 2)
    if x.dtype not in (np.float32, np.float64, *(NARROW if narrow else ())):
        x = x.astype(np.float64)
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    if x.shape[1] == 0:
        raise InvalidInput(f"{name}: x has no columns; give at least one")
    offsets = numbers(f"{name}: offsets", offsets)
    if offsets.ndim != 1 or len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(x) or not _integral(offsets):
        raise InvalidInput(
            f"{name}: offsets must be integers from 0 to the number of rows, {len(x)}, one more of them than clients"
        )
    offsets = offsets.astype(np.int64, copy=False)
    if np.any(np.diff(offsets) < 1):
        empty = int(np.argmax(np.diff(offsets) < 1))
        raise InvalidInput(f"{name}: client {empty} has no data; leave it out or give it at least one row")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argmax(~np.isfinite(x).all(axis=1)))
        client = int(np.searchsorted(offsets, row, side="right") - 1)
        where = f"client {client} has a NaN or infinity in row {row - offsets[client]}"
        raise InvalidInput(f"{name}: {where}; clean the data")
    if y is not None:
        y = numbers(f"{name}: y", y)
        if y.shape != (len(x),):
            raise InvalidInput(f"{name}: y has shape {y.shape}; give one label per row, ({len(x)},)")
        if not np.isfinite(y).all():
            row = int(np.argmin(np.isfinite(y)))
            raise InvalidInput(f"{name}: y holds a NaN or infinity in row {row}; clean the data")
    return Shards(x, y, offsets)


def from_test(name: str, test: TestRows, columns: int, narrow: bool = False) -> tuple[Array, Array]:
    """Check test rows (X, y), which have the clients' number of columns."""
    if not (isinstance(test, (tuple, list)) and len(test) == 2):
        raise InvalidInput(f"{name}(test={short_str(test, 40)}): give a pair (X, y)")
    x = numbers(f"{name}(test): X", test[0], 2)
    if not len(x):
        raise InvalidInput(f"{name}(test): X has no rows; give some, or leave test out")
    if test[1] is None:
        raise InvalidInput(f"{name}(test): y is None; give a label for every row")
    checked = from_flat(f"{name}(test)", x, test[1], [0, len(x)], narrow)
    if checked.x.shape[1] != columns:
        found = checked.x.shape[1]
        raise InvalidInput(f"{name}(test): {found} columns, the clients have {columns}; make them agree")
    assert checked.y is not None
    return checked.x, checked.y


def even_offsets(name: str, clients: int, samples: npt.ArrayLike, columns: int = 1) -> Array:
    """Return the offsets of clients with `samples` rows (one number, or one per client), if they fit in memory."""
    clients = check_int(f"{name}(clients={{}})", clients)
    sizes = numbers(f"{name}: samples", samples)
    if sizes.shape not in ((), (clients,)) or not _integral(sizes) or np.any(sizes < 1):
        given = f"{name}(samples={short_str(samples, 40)})"
        raise InvalidInput(f"{given}: give an integer of at least 1, or one for each of {clients} clients")
    rows = float(sizes.sum(dtype=np.float64)) * (1.0 if sizes.ndim else clients)
    size = DRAWN * (rows * (columns + 4) + clients * (columns + 4))
    what = f"{name}({clients:,} clients with {rows:,.0f} rows of {columns:,} numbers)"
    check_allocation(what, size, "ask for fewer clients, samples or columns")
    return np.concatenate([[0], np.cumsum(np.broadcast_to(sizes.astype(np.int64), (clients,)))])


def synthetic_regression(
    where: str, clients: int, dim: int, heterogeneity: float, samples: npt.ArrayLike, seed: int
) -> tuple[Array, Array, Array]:
    """Return standard normal features, their scores, and offsets; coefficients are N(common, heterogeneity I)."""
    dim = check_int(f"{where}(dim={{}})", dim)
    offsets = even_offsets(where, clients, samples, dim)
    spread = check_positive(f"{where}(heterogeneity={{}})", heterogeneity, zero=True)
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    common = rng.normal(rng.keys(seed, rng.Stream.DATA), dim, 0)
    own = rng.normal(rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(len(offsets) - 1)), dim, 0)
    x = rng.normal(rng.keys(seed, rng.Stream.DATA, round=2, client=np.arange(offsets[-1])), dim, 0)
    return x, np.einsum("ni,ni->n", x, (common + np.sqrt(spread) * own)[owner]), offsets


def rows_per_batch(batch_size: BatchSize, sizes: Array, clients: Array) -> Array:
    """Return the rows of a minibatch: an int, a fraction (rounded down, at least 1) or one per client; at most n_c."""
    if isinstance(batch_size, (float, np.floating)) and batch_size < 1:
        share = float(batch_size) * (1 + 1e-9)  # so that 0.6 / 3 of 50 rows are 10, not 9
        m = np.maximum(1, np.floor(share * sizes).astype(np.int64))
    elif isinstance(batch_size, Real):
        m = np.full(len(sizes), int(batch_size), np.int64)
    else:
        m = np.asarray(batch_size, np.int64)[clients]
    return np.minimum(m, sizes)


def check_prior(name: str, precision: float) -> float:
    remedy = "must be zero (flat prior) or a positive number"
    return check_positive(f"{name}(prior_precision={{}})", precision, zero=True, remedy=remedy)


def prior_part(share: float, rows: int, theta: Array) -> float:
    """Return the share of -log prior that `rows` rows have, up to its constant."""
    theta = np.asarray(theta, np.float64)
    return float(share * rows / 2 * (theta @ theta))


def numbers(where: str, value: object, axes: int | None = None) -> Array:
    """Return `value` as an array of numbers with this many axes (None: any); an array is not copied."""
    array = as_array(value)
    if array is None:
        raise InvalidInput(f"{where} is not a rectangular array of numbers")
    if axes == 2 and array.ndim != 2:
        raise InvalidInput(f"{where} must have two axes (rows, columns), not shape {array.shape}")
    return array


def _integral(array: Array) -> bool:
    return bool(np.all(np.isfinite(array) & (array == np.floor(array))))


def rows_of(offsets: Array, clients: Array) -> tuple[Any, Array]:
    """Return the rows of these clients, in order, and offsets into them in which all other clients have no rows.

    Consecutive clients' rows are a slice, so that their data are not copied.
    """
    held = np.zeros(len(offsets) - 1, np.int64)
    held[clients] = np.diff(offsets)[clients]
    rows: Any = np.concatenate([np.arange(offsets[c], offsets[c + 1]) for c in sorted(clients)])
    if rows[-1] - rows[0] + 1 == len(rows):
        rows = slice(int(rows[0]), int(rows[-1]) + 1)
    return rows, np.concatenate([[0], np.cumsum(held)])


def sums_by_client(x: Array, offsets: Array) -> Array:
    """Return the sum of each client's rows in float64, zero for clients without rows."""
    held = np.flatnonzero(np.diff(offsets))
    out = np.zeros((len(offsets) - 1, x.shape[1]))
    out[held] = np.add.reduceat(x.astype(np.float64), offsets[held], axis=0)
    return out
