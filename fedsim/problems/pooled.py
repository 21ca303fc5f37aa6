"""All clients' data on one machine: what the reference samplers (SGLD, MALA, HMC) run on."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.errors import InvalidInput
from fedsim.problems.gaussian import GaussianMean
from fedsim.problems.linear import LinearRegression
from fedsim.problems.logistic import LogisticRegression
from fedsim.problems.neural_network import NeuralNetwork
from fedsim.problems.softmax import SoftmaxRegression
from fedsim.problems.torch import Torch
from fedsim.protocols import ProblemLike


def pooled(problem: ProblemLike) -> Any:
    """The same problem with one client that owns every row; nothing is copied, the posterior is the same."""
    whole = [0, len(getattr(problem, "x", ()))]
    if isinstance(problem, GaussianMean):
        if len(problem.precision) > 1 and np.ptp(problem.precision, axis=0).any():
            raise InvalidInput(
                "pooled(GaussianMean): the clients' covariances differ and one client has only one; "
                "take problem.exact() as reference"
            )
        return GaussianMean.from_arrays(problem.x, whole, np.linalg.inv(problem.precision[0]), problem.prior_precision)
    if isinstance(problem, LinearRegression):
        return LinearRegression.from_arrays(
            problem.x, problem.y, whole, problem.noise_variance, problem.prior_precision
        )
    if isinstance(problem, LogisticRegression):
        return LogisticRegression.from_arrays(problem.x, problem.y, whole, problem.prior_precision, problem.test)
    if isinstance(problem, NeuralNetwork):
        return NeuralNetwork.from_arrays(
            problem.x, problem.y, whole, problem.widths, problem.classes, problem.test, problem.prior_precision,
            problem.scale, problem.shift,
        )  # fmt: skip
    if isinstance(problem, SoftmaxRegression):
        return SoftmaxRegression.from_arrays(
            problem.x, problem.y, whole, problem.classes, problem.bias, problem.test, problem.prior_precision,
            problem.scale, problem.shift,
        )  # fmt: skip
    if isinstance(problem, Torch):
        return problem.pooled()
    raise InvalidInput(
        f"pooled({type(problem).__name__}): only GaussianMean, the regressions and NeuralNetwork are pooled; build the "
        "problem with one client"
    )
