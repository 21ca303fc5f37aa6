"""The accept/reject step of the Metropolis-adjusted samplers on one machine."""

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
    """Return True with probability min(1, exp(log_ratio)); False where the ratio is NaN."""
    return np.asarray(job.uniform(step) < exp(np.nan_to_num(np.minimum(log_ratio, 0.0), nan=-np.inf)))


def no_proposals() -> Arrays:
    """Return the memory before the first proposal: the share that was accepted, and the number of proposals."""
    return {"accepted": np.zeros(1), "proposed": np.zeros(1)}


def counted(memory: Arrays, accepted: Array, proposed: int) -> Arrays:
    """Return the memory after another `proposed` proposals, of which `accepted` (..., 1) were accepted."""
    total = memory["proposed"] + proposed
    share = memory["accepted"] + (accepted - memory["accepted"] * proposed) / total
    return {"accepted": np.asarray(share, total.dtype), "proposed": total}


def square(v: Array) -> Array:
    """Return |v|^2 in float64, with a last axis of length 1."""
    v = v.astype(np.float64)
    return np.asarray((v * v).sum(axis=-1, keepdims=True))
