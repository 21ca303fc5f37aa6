"""Problems: the clients' data, their local sum gradients and weights, and the exact posterior where it is known.

A problem of your own needs `clients`, `dim`, `sizes` and `gradient(theta, client, rows=None) -> (d,)`, a sum over the
client's rows. Optional members:

    weights                              p_c; default sizes / total
    share                                prior precision per row, where the gradient contains a prior
    potential(theta, client, rows=None)  the client's summed loss and share of the prior, whose slope is `gradient`
    gradients, potentials                the same for many jobs: (theta, clients, rows) -> (jobs, ...)
    gradients_by(kernels, ...)           gradients on any backend
    quadratic(dtype)                     tables for the fused kernels
    exact()                              mean and covariance of the posterior
    loss(theta)                          (replicas, d) to (replicas,), the mean over all rows
    predict(theta), test                 class probabilities (rows, classes) of the test rows
    initial(seed)                        where a run starts unless its scenario has an `initial`
    shard(clients)                       the problem with these clients' rows alone, for their host

`fs.protocols` has their types; `fs.testing.check` compares slopes and gradients.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.problems.credit import StrategicCredit
from fedsim.problems.gaussian import GaussianMean
from fedsim.problems.jax import Jax
from fedsim.problems.linear import LinearRegression
from fedsim.problems.logistic import LogisticRegression
from fedsim.problems.neural_network import NeuralNetwork
from fedsim.problems.payload import Payload
from fedsim.problems.performative import PerformativeMean
from fedsim.problems.softmax import SoftmaxRegression
from fedsim.problems.torch import Torch
from fedsim.protocols import Backend, Clips, ProblemLike, Rows, as_problem, call

__all__ = [
    "GaussianMean",
    "Jax",
    "LinearRegression",
    "LogisticRegression",
    "NeuralNetwork",
    "Payload",
    "PerformativeMean",
    "SoftmaxRegression",
    "StrategicCredit",
    "Torch",
    "pooled",
    "weights_of",
]

CLIPPED = 2**24  # numbers in the gradients of single rows that are computed in one call


def weights_of(problem: ProblemLike) -> npt.NDArray[np.float64]:
    """Return p_c: the problem's own weights, or in proportion to the clients' rows."""
    own = as_problem(problem).weights
    return np.asarray(problem.sizes / problem.sizes.sum() if own is None else own, np.float64)


def reweighted(problem: ProblemLike, weights: npt.NDArray[np.float64]) -> ProblemLike:
    """Return the problem with other weights p_c, in compiled tables too."""
    other = copy(problem)
    try:
        object.__setattr__(other, "weights", weights)
    except AttributeError:
        raise InvalidInput(
            f"{type(problem).__name__}.weights cannot be set, and gossip gives clients other weights; make it a plain "
            "attribute"
        ) from None
    return other


def pooled(problem: ProblemLike) -> Any:
    """Return the problem with one client that owns all rows, which are not copied; the posterior is the same."""
    offsets = [0, len(getattr(problem, "x", ()))]
    if isinstance(problem, GaussianMean):
        if len(problem.precision) > 1 and np.ptp(problem.precision, axis=0).any():
            raise InvalidInput(
                "pooled(GaussianMean): the clients' covariances differ and one client has only one; "
                "take problem.exact() as reference"
            )
        return GaussianMean.from_arrays(
            problem.x, offsets, np.linalg.inv(problem.precision[0]), problem.prior_precision
        )
    if isinstance(problem, LinearRegression):
        return LinearRegression.from_arrays(
            problem.x, problem.y, offsets, problem.noise_variance, problem.prior_precision
        )
    if isinstance(problem, LogisticRegression):
        return LogisticRegression.from_arrays(problem.x, problem.y, offsets, problem.prior_precision, problem.test)
    if isinstance(problem, NeuralNetwork):
        return NeuralNetwork.from_arrays(
            problem.x, problem.y, offsets, problem.widths, problem.classes, problem.test, problem.prior_precision,
            problem.scale, problem.shift,
        )  # fmt: skip
    if isinstance(problem, SoftmaxRegression):
        return SoftmaxRegression.from_arrays(
            problem.x, problem.y, offsets, problem.classes, problem.bias, problem.test, problem.prior_precision,
            problem.scale, problem.shift,
        )  # fmt: skip
    if isinstance(problem, Torch):
        return problem.pooled()
    raise InvalidInput(
        f"pooled({type(problem).__name__}): only GaussianMean, the regressions and NeuralNetwork are pooled; build the "
        "problem with one client"
    )


def clipped_gradients(
    problem: ProblemLike, theta: Array, clients: Array, rows: Rows, clip: float, backend: Backend
) -> Array:
    """Return sums of per-row gradients, each scaled down to norm `clip`, by the problem's `clipped` if it has one."""
    if isinstance(problem, Clips):
        return np.asarray(call(problem, "clipped", theta, clients, rows, clip))
    if rows is None:
        sizes = problem.sizes[clients]
        rows = (np.concatenate([np.arange(n) for n in sizes]), np.concatenate([[0], np.cumsum(sizes)]))
    chosen, start = rows
    out = np.empty_like(theta)
    a = 0
    while a < len(clients):  # as many jobs as their rows' gradients fit in CLIPPED numbers
        b = max(a + 1, int(np.searchsorted(start, start[a] + CLIPPED // theta.shape[1], side="right")) - 1)
        part, begin = chosen[start[a] : start[b]], start[a : b + 1] - start[a]
        owner = np.repeat(np.arange(a, b), np.diff(begin))
        each = backend.gradients(problem, theta[owner], clients[owner], (part, np.arange(len(part) + 1)))
        norms = np.sqrt((each * each).sum(axis=1))
        scale = np.where(norms > clip, clip / np.maximum(norms, np.finfo(norms.dtype).tiny), 1.0)
        out[a:b] = backend.segment_sum(each, scale, begin)
        a = b
    return out
