"""What samplers that accept or reject need beyond gradients: a single site, potentials, and a coin."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput
from fedsim.kernels.reference import exp

Array = npt.NDArray[Any]
COINS = 2**16  # uniforms begin at this step of the noise key: normals of the same key stay in step 0


def check_single(where: str, problem: Any) -> None:
    """Refuse data that are spread over clients."""
    if problem.clients != 1:
        raise InvalidInput(
            f"{where} is a reference sampler for one machine, the problem has {problem.clients} clients; "
            "pass fs.problems.pooled(problem)"
        )


def check_potential(where: str, problem: Any) -> None:
    """Refuse a problem that cannot say how likely a point is."""
    if not (hasattr(problem, "potential") or hasattr(problem, "quadratic")):
        raise InvalidInput(
            f"{where} on {type(problem).__name__}: to accept or reject takes problem.potential(theta); use SGLD"
        )


def potential(job: Any, theta: Array) -> Array:
    """f, up to a constant, at theta: float64 (1,), or (jobs, 1)."""
    setting = getattr(job, "_setting", None)
    if setting is None:  # the job without data, which only measures replies
        return np.zeros((*theta.shape[:-1], 1))
    problem, rows = setting.problem, np.atleast_2d(theta).astype(np.float64)
    if hasattr(problem, "potential"):
        out = np.concatenate(
            [problem.potential(row[None]) for row in rows]
        )  # one product each: bits know no neighbours
    else:
        linear = problem.quadratic()[1][0]
        gradient = setting.backend.gradients(problem, rows, np.zeros(len(rows), np.int64), None)
        out = (rows * (gradient - linear)).sum(axis=1) / 2  # H theta = gradient + linear
    return np.asarray(out.reshape(*theta.shape[:-1], 1))


def accepted(job: Any, step: int, log_ratio: Array) -> Array:
    """Metropolis: True with probability min(1, exp(log_ratio)); a ratio that left the real line is a no."""
    setting = getattr(job, "_setting", None)
    if setting is None:
        return np.zeros(log_ratio.shape, bool)
    coin = setting.backend.uniform(job.noise_key, 1, COINS + step).reshape(log_ratio.shape)
    return np.asarray(coin < exp(np.nan_to_num(np.minimum(log_ratio, 0.0), nan=-np.inf)))


def square(v: Array) -> Array:
    """|v|^2 with the last axis kept, in float64."""
    v = v.astype(np.float64)
    return np.asarray((v * v).sum(axis=-1, keepdims=True))
