"""QLSD*: QLSD with the minimiser of U as a fixed control point (Vono et al., AISTATS 2022; Algorithm S1)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from fedsim.algorithms.common import quantised_langevin as family
from fedsim.arrays import Array, Arrays
from fedsim.checks import check_array
from fedsim.codecs import Identity
from fedsim.errors import InvalidInput
from fedsim.protocols import (
    Backend,
    Exact,
    Job,
    Kernel,
    ProblemLike,
    Received,
    Replies,
    Rng,
    Visitors,
    as_problem,
    call,
)
from fedsim.schedules import StepSize

FAR = 0.1  # posterior standard deviations from the minimum at which a control point is refused


@dataclass(frozen=True)
class QLSDStar:
    """QLSD*: QLSD with the minimiser of U as a fixed control point (Vono et al., AISTATS 2022; Algorithm S1).

        client i in A:  m_i = C((N_i / n_i) sum over a minibatch of grad U_ij(theta) - grad U_ij(theta*))
        server:         theta <- theta - gamma (b / |A|) sum_{i in A} m_i + sqrt(2 gamma) xi

    | symbol  | argument     | meaning                                                                            |
    |---------|--------------|------------------------------------------------------------------------------------|
    | gamma   | `step_size`  | a number, or a schedule of the iteration                                           |
    | theta*  | `optimum`    | argmin U, the prior included, known to all clients; None: the mean of `exact()`    |
    | n_i     | `batch_size` | rows per gradient, drawn without replacement; None: all of them                    |
    | C, C_i  | `codec`      | unbiased quantiser, or a tuple of one per client; `Identity()` gives LSD*          |
    | empty A | `empty`      | "noise": the step has only prior and noise; "hold": theta stays                    |
    | b / |A| | `weighting`  | "count": b / |A|, biased where activities differ; "inverse": 1 / p_i, unbiased     |
    | p_i     | `activity`   | probability that i's message arrives, for "inverse": one, or one per client        |

    Both gradients use the same minibatch (C6): where their difference does not depend on the row, as for Gaussian
    means, minibatches add no noise (C12). Wire: up C(H_i) from the active, down theta (d) to all b clients. Memory:
    theta* (d), which all clients have before the first round. Participation: bernoulli(p) in the paper.

    Differs from paper: the server adds the prior, relative to theta* (C14); for an empty A the sum is zero (C1).

    `fedsim explain C6` explains a code such as (C6).
    """

    step_size: StepSize
    _: KW_ONLY
    optimum: Any = None
    batch_size: Any = None
    codec: Any = field(default=Identity())
    empty: str = "noise"
    weighting: str = "count"
    activity: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    broadcast_to = "all"
    own_weights = True  # b / |A| or 1 / p_i
    known = beforehand = ("optimum",)  # all clients have it before the first round
    local_steps = 1
    sums = True  # its server needs only sums of messages: over tiers the edges add them up

    def __post_init__(self) -> None:
        family.check_arguments("QLSDStar", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        family.check_population("QLSDStar", self, problem)
        optimum = _minimiser(problem, self.optimum).astype(initial.dtype)
        return {"theta": initial, "optimum": optimum, "precision": family.prior_precision(problem, initial)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"], "optimum": state["optimum"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        gradient = job.gradient(message["theta"], 0, self.batch_size, prior=False)
        gradient = gradient - job.gradient(message["optimum"], 0, self.batch_size, prior=False)
        return {"gradient": job.encode(self.codec, gradient)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        gradient = family.estimate(self, replies) + state["precision"] * (state["theta"] - state["optimum"])
        return {"theta": family.langevin(self, state["theta"], gradient, replies, rng)}

    def weigh(self, received: Received) -> Array:
        return family.by_count(self, received)

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        send = family.compiled(self, problem, backend)
        if send is None:
            return None
        return lambda job, message, memory: (
            {"gradient": send(job, message["theta"], message["optimum"])[0]},
            memory,
        )


def _minimiser(problem: ProblemLike, given: object) -> Array:
    """Return theta*; refuse one whose gradient is not close to zero, which would bias every sample."""
    if given is None:
        if not isinstance(problem, Exact):
            raise InvalidInput(
                f"QLSDStar: {type(problem).__name__} has no exact(), which gives its minimiser; give optimum=, or "
                "use QLSDPlusPlus, which needs none"
            )
        given = call(problem, "exact")[0]
    at = check_array("QLSDStar(optimum)", given)
    if at.shape != (problem.dim,) or not np.isfinite(at).all():
        raise InvalidInput(f"QLSDStar(optimum of shape {at.shape}): give {problem.dim} finite numbers")
    far = _distance(problem, at)
    if not far <= FAR:
        raise InvalidInput(
            f"QLSDStar(optimum): the gradient there is not zero, the minimum about {far:.2g} posterior "
            "standard deviations away; minimise further, the prior included"
        )
    return at


def _distance(problem: ProblemLike, at: Array) -> float:
    """Return the distance to the minimum in posterior standard deviations along the gradient: |g| / sqrt(curvature)."""
    slope = as_problem(problem).gradient

    def gradient(theta: Array) -> Array:
        return np.asarray(np.sum([slope(theta, c) for c in range(problem.clients)], axis=0))

    g = gradient(at)
    size = float(np.sqrt(g @ g))
    if size == 0:
        return 0.0
    step = 1e-4 * (1 + float(np.abs(at).max()))
    curvature = float((gradient(at + step * g / size) - g) @ g) / (size * step)
    return float(size / np.sqrt(curvature)) if curvature > 0 else np.inf
