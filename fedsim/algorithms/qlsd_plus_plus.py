"""QLSD++: QLSD with a moving control point and memory (Vono et al., AISTATS 2022; Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsim.algorithms import qlsd
from fedsim.algorithms.common.arguments import check_count, check_number
from fedsim.algorithms.common.quantised_langevin import compiled
from fedsim.arrays import Array, Arrays
from fedsim.codecs import Identity
from fedsim.participation import Received
from fedsim.protocols import (
    Backend,
    Job,
    Kernel,
    ProblemLike,
    Replies,
    Rng,
    Visitors,
)
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class QLSDPlusPlus:
    """QLSD++: QLSD with a moving control point and memory (Vono et al., AISTATS 2022; Algorithm 2).

        zeta <- theta whenever l divides the iteration, before the step
        client i in A:
            H_i = (N_i / n_i) sum over a minibatch of [grad U_ij(theta) - grad U_ij(zeta)] + grad U_i(zeta)
            m_i = C(H_i - e_i),  e_i <- e_i + alpha m_i
        server:
            G = e + (b / |A|) sum_{i in A} m_i,  e <- e + alpha sum_{i in A} m_i
            theta <- theta - gamma G + sqrt(2 gamma) xi

    | symbol  | argument        | meaning                                                                           |
    |---------|-----------------|-----------------------------------------------------------------------------------|
    | gamma   | `step_size`     | a number, or a schedule of the iteration                                          |
    | l       | `refresh_every` | iterations between control points, each of which costs a pass over the data       |
    | n_i     | `batch_size`    | rows per gradient, drawn without replacement; None: all of them                   |
    | C, C_i  | `codec`         | unbiased quantiser, or a tuple of one per client; `Identity()` gives LSD++        |
    | alpha   | `memory_rate`   | None: 1 / (1 + omega), of the codec with the largest omega; 0: no memory          |
    | empty A | `empty`         | "noise": no message, and noise as ever; "hold": theta stays                       |
    | b / |A| | `weighting`     | "count": b / |A|, biased where some answer more often; "inverse": 1 / p_i         |
    | p_i     | `activity`      | the chance that i's message arrives, for "inverse": one number, or one per client |

    e_i and e = sum_i e_i start at zero (C4) and change
    for the active only (C3). Both gradients of a minibatch use the same rows (C6). If nobody comes, G = e (C1).
    Wire: up C(H_i - e_i) from the active, down theta (d) to all b clients, who so know zeta, unsent (C5). Memory:
    a client's e_i (d), with minibatches also grad U_i(zeta) (d) and which zeta that was, and the server's e and
    zeta (2d). Participation: bernoulli(p) in the paper.

    Differs from paper: the prior is the server's, outside of H_i and of the memory (C14); with weighting="inverse"
    G alone has the 1 / p_i, the memories keep Algorithm 2's rule (C3).

    What a code such as (C4) stands for: `fedsim explain C4`.
    """

    step_size: StepSize
    refresh_every: int
    memory_rate: float | None = None
    batch_size: Any = None
    codec: Any = field(default=Identity())
    empty: str = "noise"
    weighting: str = "count"
    activity: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    broadcast_to = "all"
    own_weights = True  # b / |A| or 1 / p_i, whatever the policy's
    known = ("zeta",)  # never sent: it is a theta that everybody received, hence no broadcast_to="selected"
    local_steps = 1

    @property
    def sums(self) -> bool:
        """One sum serves the step and the memory, unless the step divides by chances of arrival."""
        return self.weighting == "count"

    def __post_init__(self) -> None:
        qlsd.check_arguments("QLSDPlusPlus", self)
        check_count("QLSDPlusPlus", self, "refresh_every")
        if self.memory_rate is not None:
            check_number("QLSDPlusPlus", self, "memory_rate", 0, 1)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        qlsd.check_population("QLSDPlusPlus", self, problem)
        precision = qlsd.prior_precision(problem, initial)
        return {"theta": initial, "zeta": initial, "e": np.zeros_like(initial), "precision": precision}

    def memory(self, problem: ProblemLike) -> Arrays:
        """e_i, and, where minibatches need it, grad U_i(zeta) and which control point that was."""
        zero = np.zeros(problem.dim)
        return {"e": zero} | ({} if self.batch_size is None else {"anchor": zero, "point": np.array([-1.0])})

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"], "zeta": state["zeta"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        theta, zeta, e = message["theta"], message["zeta"], memory["e"]
        gradient, kept = job.gradient(theta, 0, self.batch_size, prior=False), memory
        if self.batch_size is not None:  # of all rows the control variate takes away what it adds
            kept = self._anchored(job, zeta, memory)
            gradient = gradient - job.gradient(zeta, 0, self.batch_size, prior=False) + kept["anchor"]
        sent = job.encode(self.codec, gradient - e)
        return {"gradient": sent}, kept | {"e": e + self._rate(theta) * sent.value}

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        theta, zeta, e = state["theta"], state["zeta"], state["e"]
        gradient = e + qlsd.estimate(self, replies) + state["precision"] * theta
        theta = qlsd.langevin(self, theta, gradient, replies, rng)
        refresh = replies.round % self.refresh_every == 0
        return {
            "theta": theta,
            "zeta": theta if refresh else zeta,
            "e": e + self._rate(theta) * replies.sum("gradient"),
        }

    def weigh(self, arrived: Received) -> Array:
        return qlsd.by_count(self, arrived)

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        send = compiled(self, problem, backend)
        if send is None:
            return None

        def kernel(job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
            theta, e, kept = message["theta"], memory["e"], memory
            control, anchor = None, None
            if self.batch_size is not None:
                kept = self._anchored(job, message["zeta"], memory)
                control, anchor = message["zeta"], kept["anchor"]
            sent, e = send(job, theta, control, anchor, e, self._rate(theta))
            return {"gradient": sent}, kept | {"e": e}

        return kernel

    def _anchored(self, job: Job, zeta: Array, memory: Arrays) -> Arrays:
        """The memory with grad U_i(zeta) in it: computed by whoever takes part first since zeta was renewed."""
        number = (job.round - 1) // self.refresh_every
        old = memory["point"] != number
        if not old.any():
            return memory
        anchor = np.where(old, job.gradient(zeta, 0, prior=False), memory["anchor"])
        return memory | {"anchor": anchor, "point": np.full_like(memory["point"], number)}

    def _rate(self, theta: Array) -> float:
        if self.memory_rate is not None:
            return float(self.memory_rate)
        codecs = self.codec if isinstance(self.codec, tuple) else (self.codec,)
        return 1 / (1 + max(float(codec.omega(theta.shape[-1])) for codec in codecs))
