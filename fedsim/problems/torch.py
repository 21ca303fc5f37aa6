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
from fedsim.errors import InvalidInput, shown
from fedsim.problems import shards

if TYPE_CHECKING:
    import torch

SIZE = 4  # under vmap a job's rows are padded to a multiple of this


class Torch:
    """Clients with rows (X_c, y_c), a `torch.nn.Module` that maps rows to outputs, and a loss(outputs, y).

    Rows may have any shape that the module takes; small integers are kept so and count as `scale * x + shift`. The loss
    is a mean or a sum over rows, such as `torch.nn.functional.cross_entropy`. A prior N(0, I / prior_precision) is
    spread over the rows. `test=(X, y)` rows are judged by the softmax of the outputs. A run starts from the module's
    parameters.
    """

    def __init__(
        self, module: torch.nn.Module, loss: Callable[..., Any], data: Sequence[Any], test: shards.TestRows = None,
        prior_precision: float = 0.0, scale: npt.ArrayLike | None = None, shift: npt.ArrayLike | None = None,
    ) -> None:  # fmt: skip
        try:
            pairs = [(np.asarray(x), np.asarray(y)) for x, y in data]
        except (TypeError, ValueError):
            raise InvalidInput(f"Torch(data={shown(data, 40)}): give a list of pairs (X, y), one per client") from None
        for c, (x, y) in enumerate(pairs):
            if x.ndim < 2 or x.dtype.kind not in "biuf" or len(x) != len(y) or not len(x):
                raise InvalidInput(
                    f"Torch: data[{c}] has X {x.shape} and y {y.shape}; give at least a row, a label each"
                )
            if x.shape[1:] != pairs[0][0].shape[1:]:
                raise InvalidInput(f"Torch: data[{c}] has rows {x.shape[1:]}, data[0] {pairs[0][0].shape[1:]}")
        if not pairs:
            raise InvalidInput("Torch: data is empty; give one pair (X, y) per client")
        x, y = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
        self._build(module, loss, x, y, np.array([len(x) for x, _ in pairs]), test, prior_precision, scale, shift)

    @classmethod
    def of(
        cls, module: Any, dataset: Any, parts: Sequence[Any], loss: Callable[..., Any] | None = None,
        prior_precision: float = 0.0,
    ) -> Torch:  # fmt: skip
        """A `fs.data` set, its rows given to clients by `fs.data.dirichlet(...)` or its like, with its test rows."""
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
            test, prior_precision, scale, shift,
        )  # fmt: skip
        return self

    def _build(
        self, module: torch.nn.Module, loss: Callable[..., Any], x: Array, y: Array, sizes: Array,
        test: shards.TestRows,
        prior_precision: float, scale: npt.ArrayLike | None, shift: npt.ArrayLike | None,
    ) -> None:  # fmt: skip
        maths = _maths()
        if not callable(loss):
            raise InvalidInput(f"Torch(loss={loss!r:.60}): give a function such as torch.nn.functional.cross_entropy")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise InvalidInput("Torch: the data hold a NaN or an infinity; clean them")
        self.criterion, self.layers = loss, repr(module)
        self.x, self.y, self.sizes = x, _labels(y), sizes
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.scale, self.shift = (None if part is None else np.asarray(part, np.float64) for part in (scale, shift))
        self.clients, self.prior_precision = len(sizes), shards.check_prior("Torch", prior_precision)
        self.share = self.prior_precision / len(x)
        self._maths = maths.Maths(module, loss)
        self.dim, self.start = self._maths.dim, self._maths.start()
        with maths.quiet():
            few = slice(0, len(x), -(-len(x) // 32))
            self._maths.settle(*self._rows(self.x[few], self.y[few], np.dtype(np.float64)))
        self.test = None
        if test is not None:
            test_x, test_y = (np.asarray(part) for part in test)
            if test_x.shape[1:] != x.shape[1:] or len(test_x) != len(test_y) or not len(test_x):
                found = f"X {test_x.shape} and y {test_y.shape}"
                raise InvalidInput(f"Torch(test): {found}; give rows like the clients' {x.shape[1:]}, a label each")
            self.test = (test_x, _labels(test_y))

    def initial(self, seed: int) -> Array:
        """The module's own parameters, whatever the seed."""
        return np.array(self.start)

    @property
    def brought(self) -> tuple[Any, ...]:
        """What the user has written, whose source a host on another machine may need."""
        return (self.criterion, *self._maths.module.modules())

    def shard(self, clients: Array) -> Torch:
        """The same problem with the rows of these clients alone, for the host that computes for them."""
        held = np.zeros(self.clients, np.int64)
        held[clients] = self.sizes[clients]
        rows = np.concatenate([np.arange(self.offsets[c], self.offsets[c + 1]) for c in sorted(clients)])
        part = copy(self)
        part.x, part.y, part.test = self.x[rows], self.y[rows], None
        part.offsets = np.concatenate([[0], np.cumsum(held)])
        return part

    def pooled(self) -> Torch:
        """The same problem with one client that owns every row."""
        whole = copy(self)
        whole.clients, whole.sizes, whole.offsets = 1, np.array([len(self.x)]), np.array([0, len(self.x)])
        return whole

    # --- Gradients ------------------------------------------------------------------------------------------

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """The sum over the client's rows, all of them or those given, by plain autograd."""
        own = self._own(client, rows)
        with _maths().quiet():
            out = self._alone(theta, own)
        return np.asarray(out + theta.dtype.type(self.share * len(own)) * theta)

    def gradients(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None = None) -> Array:
        """The same for a flat batch of jobs: small ones in blocks under vmap, large ones one after the other."""
        maths = _maths()
        own = self._all(clients, rows)
        counts = np.array([len(r) for r in own])
        out = np.empty_like(theta)
        with maths.quiet():
            alone = np.ones(len(own), bool)
            if self._maths.stackable:
                padded = -(-counts // SIZE) * SIZE
                kinds = sorted({(int(a), int(a) > b) for a, b in zip(padded, counts, strict=True) if b <= maths.ROWS})
                for size, masked in kinds:
                    jobs = np.flatnonzero((padded == size) & ((padded > counts) == masked))
                    for block in np.split(jobs, range(maths.BLOCK, len(jobs), maths.BLOCK)):
                        alone[block] = not self._block(theta, own, block, size, maths.BLOCK, out)
            for j in np.flatnonzero(alone):
                out[j] = self._alone(theta[j], own[j])
        return np.asarray(out + (self.share * counts).astype(theta.dtype)[:, None] * theta)

    def clipped(self, theta: Array, clients: Array, rows: tuple[Array, Array] | None, clip: float) -> Array:
        """Sums of every row's own gradient, its share of the prior included, scaled down to norm `clip`."""
        out = np.empty_like(theta)
        with _maths().quiet():
            for j, own in enumerate(self._all(clients, rows)):
                t = _tensor(theta[j])
                x, y = self._rows(self.x[own], self.y[own], theta.dtype)
                out[j] = self._maths.clipped(t, x, y, clip, self.share * t).numpy()
        return out

    def _alone(self, theta: Array, own: Array) -> Array:
        x, y = self._rows(self.x[own], self.y[own], theta.dtype)
        return np.asarray(self._maths.gradient(_tensor(theta), x, y).numpy())

    def _block(self, theta: Array, own: list[Array], jobs: Array, size: int, block: int, out: Array) -> bool:
        """Up to a block of jobs with at most `size` rows each; False, and nothing done, where vmap is not trusted."""
        filled = np.concatenate([jobs, np.repeat(jobs[:1], block - len(jobs))])
        counts = np.array([len(own[j]) for j in filled])
        at = np.stack([np.concatenate([own[j], np.repeat(own[j][:1], size - len(own[j]))]) for j in filled])
        x, y = self._rows(self.x[at], self.y[at], theta.dtype)
        present = None
        if (counts < size).any():  # then all of them have fewer
            present = _tensor((np.arange(size) < counts[:, None]).astype(theta.dtype))
        found = self._maths.stacked(_tensor(theta[filled]), x, y, present)
        if found is None:
            return False
        out[jobs] = found[: len(jobs)].numpy()
        return True

    def _all(self, clients: Array, rows: tuple[Array, Array] | None) -> list[Array]:
        """Every job's rows, as numbers of the whole."""
        if rows is None:
            return [self._own(int(c), None) for c in clients]
        flat, start = rows
        return [self._own(int(c), flat[a:b]) for c, a, b in zip(clients, start[:-1], start[1:], strict=True)]

    def _own(self, client: int, rows: Array | None) -> Array:
        first = self.offsets[client]
        return np.asarray(first + (np.arange(self.sizes[client]) if rows is None else rows), np.int64)

    def _rows(self, x: Array, y: Array, dtype: np.dtype[Any]) -> tuple[Any, Any]:
        """Stored rows as the tensors that the module sees."""
        values = x.astype(dtype, copy=False)
        for part, join in ((self.scale, np.multiply), (self.shift, np.add)):
            values = values if part is None else join(values, part.astype(dtype))
        return _tensor(values), _tensor(y if y.dtype.kind == "i" else y.astype(dtype))

    # --- Judging --------------------------------------------------------------------------------------------

    def potential(self, theta: Array) -> Array:
        """-log posterior up to a constant, for every row of `theta` (replicas, d)."""
        out = np.empty(len(theta))
        with _maths().quiet():
            for r, t in enumerate(theta):
                parts = (slice(at, at + 512) for at in range(0, len(self.x), 512))
                data = sum(self._maths.loss(_tensor(t), *self._rows(self.x[p], self.y[p], t.dtype)) for p in parts)
                out[r] = data + self.prior_precision / 2 * float((t.astype(np.float64) ** 2).sum())
        return out

    def loss(self, theta: Array) -> Array:
        """Mean loss over all rows plus the prior's share, for every row of `theta`."""
        return np.asarray(self.potential(theta) / len(self.x))

    def predict(self, theta: Array, x: Array | None = None) -> Array:
        """Class probabilities of the test rows, or of other rows, under one theta (d,): (rows, classes)."""
        if x is None:
            assert self.test is not None
            x = self.test[0]
        none, out = np.zeros(0, np.int64), []
        with _maths().quiet():
            for at in range(0, len(x), 512):
                rows, _ = self._rows(x[at : at + 512], none, theta.dtype)
                out.append(self._maths.outputs(_tensor(theta), rows).softmax(dim=-1).numpy())
        return np.concatenate(out)


def _maths() -> Any:
    try:
        from fedsim.problems import torch_maths
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InvalidInput("Torch: PyTorch is not installed; pip install 'fedsim-systems[torch]'") from None
    return torch_maths


def _cross_entropy() -> Callable[..., Any]:
    made: Callable[..., Any] = _maths().torch.nn.functional.cross_entropy
    return made


def _tensor(array: Array) -> Any:
    """A copy: torch wants memory of its own, that it may write to."""
    return _maths().torch.tensor(np.ascontiguousarray(array))


def _labels(y: Array) -> Array:
    return y.astype(np.int64) if y.dtype.kind in "biu" else np.asarray(y)
