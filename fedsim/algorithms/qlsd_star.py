"""QLSD*: QLSD with the minimiser of U as a fixed control point (Vono et al., AISTATS 2022; Algorithm S1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsim.algorithms import qlsd
from fedsim.algorithms.common.quantised_langevin import compiled
from fedsim.arrays import Array, Arrays
from fedsim.checks import check_array
from fedsim.codecs import Identity
from fedsim.errors import InvalidInput
from fedsim.participation import Received
from fedsim.protocols import Backend, Exact, Job, Kernel, ProblemLike, Replies, Rng, Visitors, as_problem
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
    | theta*  | `optimum`    | argmin U, the prior included, known to all beforehand; None: the mean of `exact()` |
    | n_i     | `batch_size` | rows per gradient, drawn without replacement; None: all of them                    |
    | C, C_i  | `codec`      | unbiased quantiser, or a tuple of one per client; `Identity()` gives LSD*          |
    | empty A | `empty`      | "noise": no gradient but the prior's, and noise as ever; "hold": theta stays       |
    | b / |A| | `weighting`  | "count": b / |A|, biased where some answer more often; "inverse": 1 / p_i          |
    | p_i     | `activity`   | the chance that i's message arrives, for "inverse": one number, or one per client  |

    Both gradients use the same minibatch (C6): where their
    difference does not depend on the row, as for Gaussian means, minibatches make no noise at all (C12). Wire: up
    C(H_i) from the active, down theta (d) to all b clients. Memory: theta* (d), which everybody has beforehand.
    Participation: bernoulli(p) in the paper.

    Differs from paper: the server's prior is taken relative to theta* like everything else (C14); empty A as in C1.

    What a code such as (C6) stands for: `fedsim explain C6`.
    """

    step_size: StepSize
    optimum: Any = None
    batch_size: Any = None
    codec: Any = field(default=Identity())
    empty: str = "noise"
    weighting: str = "count"
    activity: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    broadcast_to = "all"
    own_weights = True  # b / |A| or 1 / p_i, whatever the policy's
    known = beforehand = ("optimum",)  # never sent: everybody has it before the first iteration
    local_steps = 1
    sums = True  # its server needs no more than sums of messages: over tiers the edges add them up

    def __post_init__(self) -> None:
        qlsd.check_arguments("QLSDStar", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        qlsd.check_population("QLSDStar", self, problem)
        optimum = _minimiser(problem, self.optimum).astype(initial.dtype)
        return {"theta": initial, "optimum": optimum, "precision": qlsd.prior_precision(problem, initial)}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"], "optimum": state["optimum"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        gradient = job.gradient(message["theta"], 0, self.batch_size, prior=False)
        gradient = gradient - job.gradient(message["optimum"], 0, self.batch_size, prior=False)
        return {"gradient": job.encode(self.codec, gradient)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        gradient = qlsd.estimate(self, replies) + state["precision"] * (state["theta"] - state["optimum"])
        return {"theta": qlsd.langevin(self, state["theta"], gradient, replies, rng)}

    def weigh(self, arrived: Received) -> Array:
        return qlsd.by_count(self, arrived)

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        send = compiled(self, problem, backend)
        if send is None:
            return None
        return lambda job, message, memory: (
            {"gradient": send(job, message["theta"], message["optimum"])[0]},
            memory,
        )


def _minimiser(problem: ProblemLike, given: object) -> Array:
    """theta*, refused unless the gradient there is as good as zero: the rest of it would bias every sample."""
    if given is None:
        if not isinstance(problem, Exact):
            raise InvalidInput(
                f"QLSDStar: {type(problem).__name__} does not know its minimiser; give optimum=, or use "
                "QLSDPlusPlus, which needs none"
            )
        given = problem.exact()[0]
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
    """How far the minimum is, in posterior standard deviations along the gradient: |g| / sqrt(curvature)."""

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
