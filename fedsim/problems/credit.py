"""Strategic credit scoring: logistic regression on applicants who adapt three features to the published score.

Client i's applicants react to theta with x_S' = x_S - eps_i theta_S on the strategic features S, as in the credit
benchmark of Perdomo, Zrnic, Mendler-Duenner and Hardt (ICML 2020) that P-FedAvg uses (D12). The loss is
log(1 + exp(x' theta)) - y x' theta plus regularisation |theta|^2 / 2, without the intercept's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import as_float_array, check_array, check_bool, check_int, check_path
from fedsim.errors import InvalidInput
from fedsim.kernels import reference
from fedsim.problems import shards
from fedsim.protocols import Backend, BatchSize
from fedsim.text import short_repr, short_str

STRATEGIC = (0, 5, 7)  # revolving utilisation, open credit lines, real-estate loans


class StrategicCredit:
    """Clients with rows (X_c, y_c), y 1 for a default, and sensitivities eps_c (one, or one per client).

    With `intercept` the last column of X is constant; `regularisation` None is 1 / rows.
    """

    def __init__(
        self, data: Sequence[Any] | shards.Shards, sensitivities: npt.ArrayLike | None,
        strategic: Sequence[int] = STRATEGIC, regularisation: float | None = None, intercept: bool = True,
    ) -> None:  # fmt: skip
        rows = shards.from_clients("StrategicCredit", data, labelled=True)
        if rows.y is None:
            raise InvalidInput("StrategicCredit: y is None; give a label for every row")
        self.x, self.y, self.offsets, self.sizes = rows.x, rows.y, rows.offsets, rows.sizes
        self.clients, self.dim = len(self.sizes), self.x.shape[1]
        if not np.isin(self.y, (0, 1)).all():
            raise InvalidInput("StrategicCredit: labels must be 0 (paid back) or 1 (default)")
        eps = check_array("StrategicCredit(sensitivities)", sensitivities, remedy="give one number, or one per client")
        if eps.shape not in ((), (self.clients,)) or not np.isfinite(eps).all():
            raise InvalidInput(f"StrategicCredit: sensitivities of shape {eps.shape}; give one, or {self.clients}")
        self.sensitivities = np.broadcast_to(eps, (self.clients,)).copy()
        chosen = as_float_array(strategic)
        if chosen is None or chosen.ndim != 1 or not np.isin(chosen, np.arange(self.dim)).all():
            given = f"StrategicCredit(strategic={short_str(strategic)})"
            raise InvalidInput(f"{given}: columns are numbered 0 to {self.dim - 1}")
        self.strategic = np.zeros(self.dim)
        self.strategic[chosen.astype(np.int64)] = 1
        self.regularisation = shards.check_prior(
            "StrategicCredit", 1 / len(self.x) if regularisation is None else regularisation
        )
        self.shrunk = np.full(self.dim, self.regularisation)
        if check_bool("StrategicCredit(intercept={})", intercept):
            self.shrunk[-1] = 0

    @classmethod
    def from_arrays(
        cls, x: npt.ArrayLike, y: npt.ArrayLike, offsets: npt.ArrayLike, sensitivities: npt.ArrayLike | None,
        strategic: Sequence[int] = STRATEGIC,
        regularisation: float | None = None, intercept: bool = True,
    ) -> StrategicCredit:  # fmt: skip
        """Return the problem of flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        rows = shards.from_flat("StrategicCredit", x, y, offsets)
        return cls(rows, sensitivities, strategic, regularisation, intercept)

    @classmethod
    def from_csv(cls, path: str | Path, clients: int = 10, seed: int = 0) -> StrategicCredit:
        """Return the problem of Kaggle's `cs-training.csv`, plain or gzipped, as `fs.data.load("credit")` has it."""
        from fedsim import readers
        from fedsim.data import catalogue

        x, y = catalogue.prepare(readers.table(check_path("StrategicCredit.from_csv(path)", path)))
        return cls._dealt(x, y, clients, None, None, seed)

    @classmethod
    def of(
        cls, dataset: Any, clients: Any = 10, sensitivities: npt.ArrayLike | None = None,
        regularisation: float | None = None,
        seed: int = 0,
    ) -> StrategicCredit:  # fmt: skip
        """Return the problem of `fs.data.load("credit")`, for a number of equal clients or a list of row numbers each.

        The rows are in random order; equal clients take consecutive ones, and the remainder is dropped.
        `sensitivities` None draws them uniformly on [0.9, 1.1].
        """
        from fedsim.data.dataset import Dataset

        if not isinstance(dataset, Dataset):
            raise InvalidInput(f"StrategicCredit.of({short_repr(dataset)}): give a data set, fs.data.load('credit')")
        x = dataset.values(dataset.x)
        return cls._dealt(x, np.asarray(dataset.y, np.float64), clients, sensitivities, regularisation, seed)

    @classmethod
    def _dealt(
        cls,
        x: Array,
        y: Array,
        clients: Any,
        sensitivities: npt.ArrayLike | None,
        regularisation: float | None,
        seed: int,
    ) -> StrategicCredit:
        from fedsim.data.distribution import check

        if not isinstance(clients, Sequence):
            count = check_int("StrategicCredit.of(clients={})", clients, most=len(x))
            parts = [np.arange(c, c + len(x) // count) for c in range(0, len(x) // count * count, len(x) // count)]
        else:
            parts = check(clients, len(x))
        order = np.concatenate(parts)
        eps = sensitivities
        if eps is None:
            eps = 0.9 + 0.2 * rng.uniform(rng.keys(seed, rng.Stream.DATA, round=1), len(parts))[0]
        offsets = np.cumsum([0, *map(len, parts)])
        return cls.from_arrays(x[order], y[order].astype(np.float64), offsets, eps, regularisation=regularisation)

    def shard(self, clients: Array) -> StrategicCredit:
        """Return the problem with the rows of these clients alone, for the host that computes for them."""
        part = copy(self)
        rows, part.offsets = shards.rows_of(self.offsets, clients)
        part.x, part.y = self.x[rows], self.y[rows]
        return part

    def react(
        self, theta: Array, clients: Array, key: Array, step: int, batch_size: BatchSize, backend: Backend
    ) -> Array:
        """Return sum gradients (jobs, d) over rows that reacted to `theta`: a fresh minibatch scaled up, or all."""
        sizes = self.sizes[clients]
        m = sizes if batch_size is None else shards.rows_per_batch(batch_size, sizes, clients)
        start = np.concatenate([[0], np.cumsum(m)])
        job = np.repeat(np.arange(len(clients)), m)
        all_rows = batch_size is None
        rows = np.arange(start[-1]) - start[job] if all_rows else backend.choose_rows(key, sizes, start, step)
        rows = rows + self.offsets[clients][job]
        x = self._reacted(self.x[rows], self.sensitivities[clients][job], theta[job])
        score = x[:, 0] * theta[job, 0]
        for j in range(1, self.dim):  # in a fixed order, which BLAS does not have
            score = score + x[:, j] * theta[job, j]
        residual = 1 / (1 + reference.exp(-score)) - self.y[rows]
        scale = (sizes / m).astype(theta.dtype)[:, None]
        shrink = (sizes[:, None] * self.shrunk).astype(theta.dtype)
        return np.asarray(scale * backend.segment_sum(x, residual, start) + shrink * theta)

    def performatively_stable(self, deployments: int = 1000, tolerance: float = 1e-10) -> Array:
        """Return theta_PS by repeated minimisation on the rows that reacted to the latest theta."""
        theta = np.zeros(self.dim)
        for _ in range(check_int("performatively_stable(deployments={})", deployments)):
            moved = self._minimiser(theta)
            if not np.isfinite(moved).all():
                break
            if np.abs(moved - theta).max() < tolerance * max(1.0, np.abs(moved).max()):
                return moved
            theta = moved
        raise InvalidInput(
            f"StrategicCredit: repeated minimisation does not converge (sensitivities up to "
            f"{np.abs(self.sensitivities).max():.3g}); lower them or raise the regularisation"
        )

    def performatively_optimal(self) -> Array:
        """Return theta_PO: the least performative loss that BFGS finds from theta = 0 and theta_PS."""
        from scipy.optimize import minimize

        starts = [np.zeros(self.dim)]
        with suppress(InvalidInput):
            starts.append(self.performatively_stable())
        found = [
            minimize(lambda t: float(self.loss(t[None])[0]), t0, jac=self._performative_slope, tol=1e-10)
            for t0 in starts
        ]
        return np.asarray(min(found, key=lambda f: float(f.fun)).x)

    def _performative_slope(self, theta: Array) -> Array:
        """Return the slope of the performative loss: on the rows that reacted, plus that of their reaction."""
        eps = np.repeat(self.sensitivities, self.sizes)
        x = self._reacted(self.x, eps, theta)
        residual = 1 / (1 + reference.exp(-(x @ theta))) - self.y
        return np.asarray((x.T @ residual - self.strategic * theta * (eps @ residual)) / len(x) + self.shrunk * theta)

    def _minimiser(self, published: Array) -> Array:
        """Return the minimiser on the rows that reacted to `published`, by Newton's steps, halved if they climb."""
        x = self._reacted(self.x, np.repeat(self.sensitivities, self.sizes), published)

        def value(t: Array) -> float:
            score = x @ t
            return float((np.logaddexp(0, score) - self.y * score).mean() + self.shrunk @ t**2 / 2)

        theta = published.copy()
        now = value(theta)
        for _ in range(100):
            p = 1 / (1 + reference.exp(-(x @ theta)))
            slope = x.T @ (p - self.y) / len(x) + self.shrunk * theta
            hessian = (x.T * (p * (1 - p))) @ x / len(x) + np.diag(self.shrunk)
            step = np.linalg.lstsq(hessian, slope, rcond=None)[0]
            length = 1.0
            while length > 1e-8 and not value(theta - length * step) <= now:
                length /= 2
            theta = theta - length * step
            now = value(theta)
            if np.abs(slope).max() < 1e-13 or length <= 1e-8:
                break
        return theta

    def loss(self, theta: Array) -> Array:
        """Return the mean loss over all rows that reacted, for every row of `theta` (replicas, d)."""
        out = np.empty(len(theta))
        eps = np.repeat(self.sensitivities, self.sizes)
        for r, t in enumerate(np.asarray(theta, np.float64)):
            score = self._reacted(self.x, eps, t) @ t
            out[r] = (np.logaddexp(0, score) - self.y * score).mean() + self.shrunk @ t**2 / 2
        return out

    def _reacted(self, x: Array, sensitivity: Array, theta: Array) -> Array:
        """Return the rows as they react to `theta` (d,), or (rows, d)."""
        return np.asarray(x - sensitivity[:, None] * self.strategic * theta, theta.dtype)
