"""Problems: the clients' data, their local sum gradients and weights, and, where there is one, the true answer.

A problem of your own needs `clients`, `dim`, `sizes` and `gradient(theta, client, rows=None) -> (d,)`, a sum over the
client's rows. Optional: `weights` (p_c, default sizes / total), a batched `gradients(theta, clients, rows)` (and
`gradients_by(kernels, ...)` to run on any backend), `exact() -> (mean, covariance)`, `quadratic(dtype)` tables for the
fused kernels, `potential(theta, client, rows=None) -> float`, the client's summed loss with its share of the prior,
whose slope is `gradient(theta, client, rows)`, a batched `potentials(theta, clients, rows)` -> (jobs,), `share`, the
prior precision of a row where the gradient contains a prior, `loss(theta)` (R, d) -> (R,), the mean over all rows, with
or without the prior, `predict(theta)` (d,) -> (rows, classes) with `test`, `initial(seed)` -> (d,), where a run begins
unless its scenario says. `fs.testing.check` compares slopes and gradients.
`shard(clients)` gives the same problem with these clients' rows alone, for a host that computes for them.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput
from fedsim.problems.credit import StrategicCredit
from fedsim.problems.gaussian import GaussianMean
from fedsim.problems.jax import Jax
from fedsim.problems.linear import LinearRegression
from fedsim.problems.logistic import LogisticRegression
from fedsim.problems.neural_network import NeuralNetwork
from fedsim.problems.payload import Payload
from fedsim.problems.performative import PerformativeMean
from fedsim.problems.pooled import pooled
from fedsim.problems.softmax import SoftmaxRegression
from fedsim.problems.torch import Torch
from fedsim.protocols import ProblemLike, as_problem

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
    "reweighted",
    "weights_of",
]


def weights_of(problem: ProblemLike) -> npt.NDArray[np.float64]:
    """p_c: the problem's own, or in proportion to the clients' data."""
    own = as_problem(problem).weights
    return np.asarray(problem.sizes / problem.sizes.sum() if own is None else own, np.float64)


def reweighted(problem: ProblemLike, weights: npt.NDArray[np.float64]) -> ProblemLike:
    """The same problem whose clients weigh otherwise: what `weights_of` gives, in compiled tables too."""
    other = copy(problem)
    try:
        object.__setattr__(other, "weights", weights)
    except AttributeError:
        raise InvalidInput(
            f"{type(problem).__name__}.weights cannot be set, and sites that gossip weigh their clients otherwise; "
            "make it a plain attribute"
        ) from None
    return other
