"""What samplers that accept or reject need beyond gradients: a single site, potentials, and uniforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput
from fedsim.rng import Stream

Array = npt.NDArray[Any]


def check_single(where: str, problem: Any) -> None:
    """Refuse data that are spread over clients."""
    if problem.clients != 1:
        raise InvalidInput(
            f"{where} is a reference sampler for one machine, the problem has {problem.clients} clients; "
            "pass fs.problems.pooled(problem)"
        )


def check_potential(where: str, problem: Any) -> None:
    if not (hasattr(problem, "potential") or hasattr(problem, "quadratic")):
        raise InvalidInput(
            f"{where} on {type(problem).__name__}: accepting and rejecting needs problem.potential(theta); use SGLD"
        )


def accepted(job: Any, step: int, log_ratio: Array) -> Array:
    """Metropolis: True with probability min(1, exp(log_ratio)), bool in the shape of `log_ratio`."""
    return np.asarray(np.log(job.uniform(step)) < log_ratio)
