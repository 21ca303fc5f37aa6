"""What samplers that accept or reject need beyond gradients: a single site, potentials, and a coin."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.kernels.reference import exp
from fedsim.protocols import Job, ProblemLike


def check_single(where: str, problem: ProblemLike) -> None:
    """Refuse data that are spread over clients."""
    if problem.clients != 1:
        raise InvalidInput(
            f"{where} is a reference sampler for one machine, the problem has {problem.clients} clients; "
            "pass fs.problems.pooled(problem)"
        )


def accepted(job: Job, step: int, log_ratio: Array) -> Array:
    """Metropolis: True with probability min(1, exp(log_ratio)); a ratio that left the real line is a no."""
    return np.asarray(job.uniform(step) < exp(np.nan_to_num(np.minimum(log_ratio, 0.0), nan=-np.inf)))


def nothing_proposed() -> Arrays:
    """The memory of a sampler that has not begun: the share of its proposals that it accepted, of how many."""
    return {"accepted": np.zeros(1), "proposed": np.zeros(1)}


def counted(memory: Arrays, accepted: Array, proposed: int) -> Arrays:
    """The memory after another `proposed` proposals, of which `accepted` (..., 1) were taken."""
    total = memory["proposed"] + proposed
    share = memory["accepted"] + (accepted - memory["accepted"] * proposed) / total
    return {"accepted": np.asarray(share, total.dtype), "proposed": total}


def square(v: Array) -> Array:
    """|v|^2 with the last axis kept, in float64."""
    v = v.astype(np.float64)
    return np.asarray((v * v).sum(axis=-1, keepdims=True))
