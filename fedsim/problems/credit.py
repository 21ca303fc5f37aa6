"""Strategic credit scoring: logistic regression on applicants who adapt three features to the published score.

Client i's applicants answer theta with x_S' = x_S - eps_i theta_S on the strategic features S, as in the credit
benchmark of Perdomo, Zrnic, Mendler-Duenner and Hardt (ICML 2020) that P-FedAvg takes up (D12). The loss is
log(1 + exp(x' theta)) - y x' theta plus regularisation |theta|^2 / 2, without the intercept's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.checks import floats_of, numbers, path_of
from fedsim.errors import CorruptData, InvalidInput, flag, shown, whole
from fedsim.kernels import reference
from fedsim.problems import shards

Array = npt.NDArray[Any]
STRATEGIC = (0, 5, 7)  # revolving utilisation, open credit lines, real-estate loans


class StrategicCredit:
    """Clients with rows (X_c, y_c), y 1 for a default, and sensitivities eps_c (one, or one per client).

    `intercept` says that the last column of X is constant; `regularisation` None is 1 / rows.
    """

    reactive = True

    def __init__(
        self, data: Sequence[Any], sensitivities: Any, strategic: Sequence[int] = STRATEGIC,
        regularisation: float | None = None, intercept: bool = True,
    ) -> None:  # fmt: skip
        stacked = shards.from_clients("StrategicCredit", data, labelled=True)
        self._build(stacked, sensitivities, strategic, regularisation, intercept)

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, offsets: Any, sensitivities: Any, strategic: Sequence[int] = STRATEGIC,
        regularisation: float | None = None, intercept: bool = True,
    ) -> StrategicCredit:  # fmt: skip
        """Flat data: client c owns rows offsets[c]:offsets[c + 1], which are not copied."""
        self = cls.__new__(cls)
        stacked = shards.from_flat("StrategicCredit", x, y, offsets)
        self._build(stacked, sensitivities, strategic, regularisation, intercept)
        return self

    @classmethod
    def from_csv(cls, path: str | Path, clients: int = 10, seed: int = 0) -> StrategicCredit:
        """The file `cs-training.csv` of Kaggle's GiveMeSomeCredit, dealt to clients of equal size at random.

        Complete rows only, all defaults and the first 10,000 others, features standardised, an intercept added;
        sensitivities are uniform on [0.9, 1.1].
        """
        file, clients = path_of("StrategicCredit.from_csv(path)", path), whole("from_csv(clients={})", clients)
        x, y = _read_csv(file)
        kept = np.concatenate([np.flatnonzero(y == label)[:10_000] for label in (1, 0)])
        x, y = x[kept], y[kept]
        flat = np.flatnonzero(np.ptp(x, axis=0) == 0) if len(x) else np.zeros(1, int)
        if len(x) < clients or flat.size:
            why = (
                f"{len(x)} complete rows with a label 0 or 1"
                if len(x) < clients
                else f"column {flat[0] + 1} is constant"
            )
            raise InvalidInput(f"{shown(file)}: {why}, for {clients} clients; give GiveMeSomeCredit's cs-training.csv")
        x = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(len(x))])
        order = np.argsort(rng.uniform(rng.keys(seed, rng.Stream.DATA), len(x))[0], kind="stable")
        each = len(x) // clients
        eps = 0.9 + 0.2 * rng.uniform(rng.keys(seed, rng.Stream.DATA, round=1), clients)[0]
        dealt = order[: each * clients]
        return cls.from_arrays(x[dealt], y[dealt], each * np.arange(clients + 1), eps)

    def _build(
        self, data: shards.Shards, sensitivities: Any, strategic: Sequence[int], regularisation: float | None,
        intercept: bool,
    ) -> None:  # fmt: skip
        if data.y is None:
            raise InvalidInput("StrategicCredit: y is None; give a label for every row")
        self.x, self.y, self.offsets, self.sizes = data.x, data.y, data.offsets, data.sizes
        self.clients, self.dim = len(self.sizes), self.x.shape[1]
        if not np.isin(self.y, (0, 1)).all():
            raise InvalidInput("StrategicCredit: labels must be 0 (paid back) or 1 (default)")
        eps = numbers("StrategicCredit(sensitivities)", sensitivities, remedy="give one number, or one per client")
        if eps.shape not in ((), (self.clients,)) or not np.isfinite(eps).all():
            raise InvalidInput(f"StrategicCredit: sensitivities of shape {eps.shape}; give one, or {self.clients}")
        self.sensitivities = np.broadcast_to(eps, (self.clients,)).copy()
        chosen = floats_of(strategic)
        if chosen is None or chosen.ndim != 1 or not np.isin(chosen, np.arange(self.dim)).all():
            given = f"StrategicCredit(strategic={shown(strategic)})"
            raise InvalidInput(f"{given}: columns are numbered 0 to {self.dim - 1}")
        self.strategic = np.zeros(self.dim)
        self.strategic[chosen.astype(np.int64)] = 1
        self.regularisation = shards.check_prior(
            "StrategicCredit", 1 / len(self.x) if regularisation is None else regularisation
        )
        self.shrunk = np.full(self.dim, self.regularisation)
        if flag("StrategicCredit(intercept={})", intercept):
            self.shrunk[-1] = 0

    def react(self, theta: Array, clients: Array, key: Array, step: int, batch_size: Any, backend: Any) -> Array:
        """Sum gradients (jobs, d) over rows that have answered `theta`: a fresh minibatch scaled up, or all."""
        sizes = self.sizes[clients]
        m = sizes if batch_size is None else shards.rows_per_batch(batch_size, sizes, clients)
        start = np.concatenate([[0], np.cumsum(m)])
        job = np.repeat(np.arange(len(clients)), m)
        whole = batch_size is None
        rows = np.arange(start[-1]) - start[job] if whole else backend.choose_rows(key, sizes, start, step)
        rows = rows + self.offsets[clients][job]
        x = self._answered(self.x[rows], self.sensitivities[clients][job], theta[job])
        score = x[:, 0] * theta[job, 0]
        for j in range(1, self.dim):  # in this order, so that no BLAS decides it
            score = score + x[:, j] * theta[job, j]
        residual = 1 / (1 + reference.exp(-score)) - self.y[rows]
        scale = (sizes / m).astype(theta.dtype)[:, None]
        shrink = (sizes[:, None] * self.shrunk).astype(theta.dtype)
        return np.asarray(scale * backend.segment_sum(x, residual, start) + shrink * theta)

    def performatively_stable(self) -> Array:
        """The theta at which the gradient on the data it brings about vanishes, found by SciPy from zero."""
        from scipy.optimize import root

        eps = np.repeat(self.sensitivities, self.sizes)

        def pull(theta: Array) -> Array:
            x = self._answered(self.x, eps, theta)
            residual = 1 / (1 + reference.exp(-(x @ theta))) - self.y
            return np.asarray(x.T @ residual / len(x) + self.shrunk * theta)

        found = root(pull, np.zeros(self.dim), tol=1e-12)
        if np.abs(pull(found.x)).max() > 1e-8:
            raise InvalidInput(f"StrategicCredit: no stable point found ({found.message}); lower the sensitivities")
        return np.asarray(found.x)

    def loss(self, theta: Array) -> Array:
        """The mean loss over all rows after they have answered, for every row of `theta` (replicas, d)."""
        out = np.empty(len(theta))
        eps = np.repeat(self.sensitivities, self.sizes)
        for r, t in enumerate(np.asarray(theta, np.float64)):
            score = self._answered(self.x, eps, t) @ t
            out[r] = (np.logaddexp(0, score) - self.y * score).mean() + self.shrunk @ t**2 / 2
        return out

    def _answered(self, x: Array, sensitivity: Array, theta: Array) -> Array:
        """Rows as they become when `theta` (d,), or (rows, d), is published."""
        return np.asarray(x - sensitivity[:, None] * self.strategic * theta, theta.dtype)


def _read_csv(path: Path) -> tuple[Array, Array]:
    """The features and the labels of the complete rows."""
    import pandas as pd

    name = shown(path)
    try:
        frame = pd.read_csv(path, index_col=0).dropna()
    except OSError as error:
        raise InvalidInput(f"{name}: cannot be read ({error.strerror}); give the path of cs-training.csv") from error
    except ValueError as error:  # not UTF-8, not a table, empty: all of pandas' own are ValueErrors
        raise CorruptData(
            f"{name}: not a CSV table ({shown(error)}); give GiveMeSomeCredit's cs-training.csv"
        ) from error
    if "SeriousDlqin2yrs" not in frame or frame.shape[1] < 9:
        raise CorruptData(f"{name}: no column SeriousDlqin2yrs beside 8 features or more; give cs-training.csv")
    y, x = (floats_of(part.to_numpy()) for part in (frame["SeriousDlqin2yrs"], frame.drop(columns="SeriousDlqin2yrs")))
    if x is None or y is None or not np.isfinite(x).all():
        raise CorruptData(
            f"{name}: holds something else than numbers; give GiveMeSomeCredit's cs-training.csv as it is"
        )
    return x, y
