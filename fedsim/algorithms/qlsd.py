"""QLSD: quantised Langevin stochastic dynamics (Vono, Plassier, Durmus, Dieuleveut and Moulines, AISTATS 2022)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from fedsim.algorithms.common import quantised_langevin as family
from fedsim.algorithms.common.qlsd_block import block_kernel
from fedsim.arrays import Array, Arrays
from fedsim.codecs import Identity
from fedsim.protocols import (
    Backend,
    BlockKernel,
    Job,
    Kernel,
    ProblemLike,
    Received,
    Replies,
    Rng,
    Visitors,
)
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class QLSD:
    """QLSD: quantised Langevin stochastic dynamics (Vono, Plassier, Durmus, Dieuleveut and Moulines, AISTATS 2022).

        client i in A:  m_i = C(H_i(theta)),  H_i(theta) = (N_i / n_i) sum over a minibatch of grad U_ij(theta)
        server:         theta <- theta - gamma (b / |A|) sum_{i in A} m_i + sqrt(2 gamma) xi          (Algorithm 1)

    | symbol  | argument     | meaning                                                                             |
    |---------|--------------|-------------------------------------------------------------------------------------|
    | gamma   | `step_size`  | a number, or a schedule of the iteration                                            |
    | n_i     | `batch_size` | rows per gradient, drawn without replacement (QLSD#); None: all of them             |
    | C, C_i  | `codec`      | unbiased quantiser, or a tuple of one per client; `Identity()` gives LSD            |
    | empty A | `empty`      | "noise": the step has only prior and noise; "hold": theta stays                     |
    | b / |A| | `weighting`  | "count": b / |A|, biased where activities differ; "inverse": 1 / p_i, unbiased      |
    | p_i     | `activity`   | probability that i's message arrives, for "inverse": one, or one per client         |

    The server adds the noise, once per iteration. Wire: up C(H_i) from the active, down theta (d) to all b clients.
    Memory: none. Participation: bernoulli(p) in the paper.

    Differs from paper: for an empty A the sum is zero, where the paper divides by |A| = 0 (C1). The server adds the
    prior exactly, uncompressed (C14). Algorithm 1 divides by |A|, the theorems on generalised QLSD by p_i: `weighting`
    has both (C2).

    `fedsim explain C1` explains a code such as (C1).
    """

    step_size: StepSize
    _: KW_ONLY
    batch_size: Any = None
    codec: Any = field(default=Identity())
    empty: str = "noise"
    weighting: str = "count"
    activity: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    broadcast_to = "all"
    own_weights = True  # b / |A| or 1 / p_i
    local_steps = 1
    sums = True  # its server needs only sums of messages: over tiers the edges add them up

    def __post_init__(self) -> None:
        family.check_arguments("QLSD", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        family.check_population("QLSD", self, problem)
        return {"theta": initial, "precision": family.prior_precision(problem, initial)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        gradient = job.gradient(message["theta"], 0, self.batch_size, prior=False)
        return {"gradient": job.encode(self.codec, gradient)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        gradient = family.estimate(self, replies) + state["precision"] * state["theta"]
        return {"theta": family.langevin(self, state["theta"], gradient, replies, rng)}

    def weigh(self, received: Received) -> Array:
        return family.by_count(self, received)

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        send = family.compiled(self, problem, backend)
        return send and (lambda job, message, memory: ({"gradient": send(job, message["theta"])[0]}, memory))

    def fused_rounds(self, problem: ProblemLike, backend: Backend) -> BlockKernel | None:
        return block_kernel(self, problem, backend)
