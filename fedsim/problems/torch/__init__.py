"""Any `torch.nn.Module` as a problem: theta is its trainable parameters, flat, in the module's own order.

torch is an extra (`pip install fedsim-systems[torch]`), loaded when a problem is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_array
from fedsim.errors import InvalidInput
from fedsim.problems import loss_reduction, shards
from fedsim.problems.labelled import columns
from fedsim.text import short_str

if TYPE_CHECKING:
    import torch

ROWS = 512  # rows per call where all are read


class Torch:
    """Clients with rows (X_c, y_c), a `torch.nn.Module` that maps rows to outputs, and a loss(outputs, y).

    Rows may have any shape that the module takes; small integers are stored as they are and read as `scale * x +
    shift`. A row's outputs depend on that row alone. The loss is the mean or the sum over rows, `reduction="mean"` or
    "sum"; None: the constructor compares the loss of several rows with the rows' own. A prior N(0, I / prior_precision)
    is spread over the rows. Metrics evaluate the softmax of the outputs on the rows `test=(X, y)`. A run starts from
    the module's parameters.
    """

    fresh = True

    def __init__(
        self, module: torch.nn.Module, loss: Callable[..., Any], data: Sequence[Any], test: shards.TestRows = None,
        prior_precision: float = 0.0, scale: npt.ArrayLike | None = None, shift: npt.ArrayLike | None = None,
        reduction: str | None = None,
    ) -> None:  # fmt: skip
        try:
            given = list(data)
        except Exception:  # a user's __iter__ may raise anything
            raise InvalidInput(
                f"Torch(data={short_str(data, 40)}): give a list of pairs (X, y), one per client"
            ) from None
        if not given:
            raise InvalidInput("Torch: data is empty; give one pair (X, y) per client")
        pairs = [_pair(f"data[{c}]", pair) for c, pair in enumerate(given)]
        for c, (x, y) in enumerate(pairs):
            if x.shape[1:] != pairs[0][0].shape[1:]:
                raise InvalidInput(f"Torch: data[{c}] has rows {x.shape[1:]}, data[0] {pairs[0][0].shape[1:]}")
            if y.shape[1:] != pairs[0][1].shape[1:]:
                raise InvalidInput(f"Torch: data[{c}] has labels {y.shape[1:]}, data[0] {pairs[0][1].shape[1:]}")
        x, y = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
        sizes = np.array([len(x) for x, _ in pairs])
        self._build(module, loss, x, y, sizes, test, prior_precision, scale, shift, reduction)

    @classmethod
    def of(
        cls, module: Any, dataset: Any, parts: Sequence[Any], loss: Callable[..., Any] | None = None,
        prior_precision: float = 0.0, reduction: str | None = None,
    ) -> Torch:  # fmt: skip
        """Return the problem of a `fs.data` set and a partition such as `fs.data.dirichlet(...)`."""
        own = [np.asarray(part, np.int64) for part in parts]
        empty = next((c for c, part in enumerate(own) if not len(part)), None)
        if not own or empty is not None:
            raise InvalidInput(f"Torch.of: client {empty or 0} has no data; leave it out or give it at least one row")
        order = np.concatenate(own)
        if order.min() < 0 or order.max() >= len(dataset.x):
            raise InvalidInput(f"Torch.of: a row {order.max()} of {len(dataset.x)}; rows are numbered from 0")
        self = cls.__new__(cls)
        test = None if dataset.test_x is None else (dataset.test_x, dataset.test_y)
        scale, shift = getattr(dataset, "scale", None), getattr(dataset, "shift", None)
        self._build(
            module, loss or _cross_entropy(), dataset.x[order], dataset.y[order], np.array([len(part) for part in own]),
            test, prior_precision, scale, shift, reduction,
        )  # fmt: skip
        return self

    def _build(
        self, module: torch.nn.Module, loss: Callable[..., Any], x: Array, y: Array, sizes: Array,
        test: shards.TestRows, prior_precision: float, scale: npt.ArrayLike | None, shift: npt.ArrayLike | None,
        reduction: str | None,
    ) -> None:  # fmt: skip
        maths = _maths()
        from fedsim.problems.torch.vmap import Blocks

        if not callable(loss):
            raise InvalidInput(f"Torch(loss={loss!r:.60}): give a function such as torch.nn.functional.cross_entropy")
        for part in (x, y):
            if part.dtype.kind == "f" and not np.isfinite(part).all():
                raise InvalidInput("Torch: the data hold a NaN or an infinity; clean them")
        self.criterion, self.layers = loss, repr(module)
        self.x, self.y, self.sizes = x, _labels(y), sizes
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.scale, self.shift = columns("Torch", scale, shift, x.shape[1:])
        self.clients, self.prior_precision = len(sizes), shards.check_prior("Torch", prior_precision)
        self.share = self.prior_precision / len(x)
        maths.check_module(module)
        self._maths = maths.Maths(module, loss)
        self._blocks = Blocks(self._maths)
        self.stack = max(self._blocks.sizes, default=1)
        self.dim = self._maths.dim
        with maths.quiet():  # on one thread: those of a parent do not exist in a forked child
            self.start = self._maths.start()
            few = self._rows(loss_reduction.rows_to_try(self.y), np.dtype(np.float64))
            self._maths.averages = maths.check_rows(self._maths, reduction, *few) == "mean"
        self.test = None
        if test is not None:
            test_x, test_y = _pair("test", test)
            if test_x.shape[1:] != x.shape[1:]:
                found = f"X {test_x.shape} and y {test_y.shape}"
                raise InvalidInput(f"Torch(test): {found}; give rows like the clients' {x.shape[1:]}, a label each")
            self.test = (test_x, _labels(test_y))

    def initial(self, seed: int) -> Array:
        """Return the module's own parameters, for every seed."""
        return np.array(self.start)

    @property
    def user_code(self) -> tuple[Any, ...]:
        """The user's functions, whose source a host on another machine may need."""
        return (self.criterion, *self._maths.module.modules())

    def shard(self, clients: Array) -> Torch:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        rows, part.offsets = shards.rows_of(self.offsets, clients)
        part.x, part.y, part.test = self.x[rows], self.y[rows], None
        return part

    def pooled(self) -> Torch:
        """Return the problem with one client that owns every row."""
        one = copy(self)
        one.clients, one.sizes, one.offsets = 1, np.array([len(self.x)]), np.array([0, len(self.x)])
        return one

    # --- Gradients ------------------------------------------------------------------------------------------

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient summed over the client's rows, all of them or those given, by plain autograd."""
        own, out = self._own(client, rows), np.empty_like(theta)
        with _maths().quiet():
            self._alone(theta, own, out)
        return np.asarray(out + theta.dtype.type(self.share * len(own)) * theta)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """Return `gradient` of many jobs: small ones in blocks under vmap, large ones one after the other."""
        own = self._all(clients, rows)
        counts = np.array([len(r) for r in own])
        out = np.empty_like(theta)
        with _maths().quiet():
            for j in np.flatnonzero(~self._in_blocks(theta, own, counts, out)):
                self._alone(theta[j], own[j], out[j])
        if self.share:
            out += (self.share * counts).astype(theta.dtype)[:, None] * theta
        return out

    def _in_blocks(self, theta: Array, own: list[Array], counts: Array, out: Array) -> Array:
        """Compute small jobs in blocks; return a mask of them, (jobs,)."""
        from fedsim.problems.torch import vmap

        done = np.zeros(len(own), bool)
        if not self._blocks.sizes:
            return done
        padded = -(-counts // vmap.PAD) * vmap.PAD
        kinds = 2 * padded + (padded > counts)  # a job's kind depends on its own rows alone
        for kind in np.unique(kinds[counts <= vmap.ROWS]):
            jobs = np.flatnonzero(kinds == kind)
            at = 0
            while at < len(jobs):
                size = self._blocks.size(len(jobs) - at)
                block = jobs[at : at + size]
                if not self._block(theta, [own[j] for j in block], block, size, int(padded[block[0]]), out):
                    break
                done[block] = True
                at += size
        return done

    def _block(self, theta: Array, own: list[Array], jobs: Array, size: int, rows: int, out: Array) -> bool:
        """Compute up to `size` jobs, padded to `rows` rows; return False where blocks of this shape are not exact."""
        torch = _maths().torch
        filled = np.concatenate([jobs, np.repeat(jobs[:1], size - len(jobs))])
        at = np.empty((size, rows), np.int64)
        for j, chosen in enumerate(own):
            at[j, : len(chosen)], at[j, len(chosen) :] = chosen, chosen[0]
        at[len(own) :] = at[0]
        counts = np.array([len(chosen) for chosen in own] + [len(own[0])] * (size - len(own)))
        present = None
        if counts[0] < rows:  # then all jobs of the block have fewer
            present = torch.from_numpy((np.arange(rows) < counts[:, None]).astype(theta.dtype))
        neighbours = size == len(jobs) == jobs[-1] - jobs[0] + 1
        own_theta = theta[jobs[0] : jobs[-1] + 1] if neighbours and theta.flags.writeable else theta[filled]
        found = self._blocks.gradients(torch.from_numpy(own_theta), *self._rows(at, theta.dtype), present)
        if found is None:
            return False
        out[jobs] = found[: len(jobs)].numpy()
        return True

    def clipped(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None, clip: float) -> Array:
        """Return sums of every row's gradient, with its share of the prior, scaled down to norm `clip`."""
        out = np.empty_like(theta)
        with _maths().quiet():
            for j, own in enumerate(self._all(clients, rows)):
                t = _tensor(theta[j])
                x, y = self._rows(own, theta.dtype)
                out[j] = self._maths.clipped(t, x, y, clip, self.share * t).numpy()
        return out

    def _alone(self, theta: Array, own: Array, out: Array) -> None:
        self._maths.gradient(_tensor(theta), *self._rows(own, theta.dtype), _maths().torch.from_numpy(out))

    def _all(self, clients: Array, rows: tuple[Array, Array] | None) -> list[Array]:
        """Return every job's row numbers."""
        if rows is None:
            return [self._own(int(c), None) for c in clients]
        flat, start = rows
        return [self._own(int(c), flat[a:b]) for c, a, b in zip(clients, start[:-1], start[1:], strict=True)]

    def _own(self, client: int, rows: Array | None) -> Array:
        first = self.offsets[client]
        return np.asarray(first + (np.arange(self.sizes[client]) if rows is None else rows), np.int64)

    def _rows(self, at: Array, dtype: np.dtype[Any]) -> tuple[Any, Any]:
        """Return rows by number, any shape, as the module's tensors; they are valid until the next call."""
        y = self.y[at]
        return self._inputs(self.x, at, dtype), _tensor(y if y.dtype.kind == "i" else y.astype(dtype))

    def _inputs(self, x: Array, at: Array, dtype: np.dtype[Any]) -> Any:
        from fedsim.kernels.cpu.rows import gather

        found = gather(x.reshape(len(x), -1), at.reshape(-1), dtype, self.scale, self.shift)
        return _maths().torch.from_numpy(found.reshape(*at.shape, *x.shape[1:]))

    # --- Evaluation -----------------------------------------------------------------------------------------

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float:
        """Return the loss summed over the client's rows, all of them or those given, plus their share of the prior."""
        own = self._own(client, rows)
        return self._summed(np.asarray(theta, np.float64), own) + shards.prior_part(self.share, len(own), theta)

    def loss(self, theta: Array) -> Array:
        """Return the mean loss over all rows plus the prior's share, for every row of `theta` (replicas, d)."""
        rows, squares = np.arange(len(self.x)), (theta.astype(np.float64) ** 2).sum(axis=1)
        return np.asarray([self._summed(t, rows) for t in theta] + self.prior_precision / 2 * squares) / len(rows)

    def _summed(self, theta: Array, rows: Array) -> float:
        """Return the loss summed over these rows, in the precision of theta."""
        parts = (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))
        with _maths().quiet():
            return float(sum(self._maths.loss(_tensor(theta), *self._rows(part, theta.dtype)) for part in parts))

    def predict(self, theta: Array, x: Array | None = None) -> Array:
        """Class probabilities of the test rows, or of other rows, under one theta (d,): (rows, classes)."""
        if x is None:
            assert self.test is not None
            x = self.test[0]
        out = []
        with _maths().quiet():
            for at in range(0, len(x), ROWS):
                rows = self._inputs(x, np.arange(at, min(at + ROWS, len(x))), theta.dtype)
                out.append(self._maths.outputs(_tensor(theta), rows).softmax(dim=-1).numpy())
        return np.concatenate(out)


def _pair(where: str, pair: object) -> tuple[Array, Array]:
    """Return rows and labels; refuse anything but two arrays of real numbers with a label for each row."""
    parts = [as_array(part) for part in pair] if isinstance(pair, tuple | list) and len(pair) == 2 else [None]
    x, y = parts if len(parts) == 2 else (None, None)
    if x is None or y is None:
        raise InvalidInput(f"Torch({where}={short_str(pair, 40)}): give a pair (X, y) of arrays of real numbers")
    if x.ndim < 2 or not y.ndim or len(x) != len(y) or not len(x):
        raise InvalidInput(f"Torch: {where} has X {x.shape} and y {y.shape}; give at least a row, a label each")
    return x, y


def _maths() -> Any:
    try:
        from fedsim.problems.torch import gradients as torch_maths
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InvalidInput("Torch: PyTorch is not installed; pip install 'fedsim-systems[torch]'") from None
    return torch_maths


def _cross_entropy() -> Callable[..., Any]:
    made: Callable[..., Any] = _maths().torch.nn.functional.cross_entropy
    return made


def _tensor(array: Array) -> Any:
    """Return a copy, because torch needs writable memory."""
    return _maths().torch.tensor(np.ascontiguousarray(array))


def _labels(y: Array) -> Array:
    return y.astype(np.int64) if y.dtype.kind in "biu" else np.asarray(y)
