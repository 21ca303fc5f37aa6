"""QLSD++: QLSD with a moving control point and memory (Vono et al., AISTATS 2022; Algorithm 2)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from fedsim.algorithms.common import quantised_langevin as family
from fedsim.algorithms.common.arguments import check_count, check_number
from fedsim.arrays import Array, Arrays
from fedsim.codecs import Identity
from fedsim.protocols import Backend, Job, Kernel, ProblemLike, Received, Replies, Rng, Visitors, call
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
    | empty A | `empty`         | "noise": the step has only e, prior and noise; "hold": theta stays                |
    | b / |A| | `weighting`     | "count": b / |A|, biased where activities differ; "inverse": 1 / p_i, unbiased    |
    | p_i     | `activity`      | probability that i's message arrives, for "inverse": one, or one per client       |

    e_i and e = sum_i e_i start at zero (C4) and change for the active only (C3). Both gradients of a minibatch use the
    same rows (C6). For an empty A, G = e (C1). Wire: up C(H_i - e_i) from the active, down theta (d) to all b clients,
    which therefore have zeta without a transfer (C5). Memory: a client's e_i (d), with minibatches also grad U_i(zeta)
    (d) and the number of that zeta, and the server's e and zeta (2d). Participation: bernoulli(p) in the paper.

    Differs from paper: the server adds the prior, which is not in H_i or the memory (C14); with weighting="inverse"
    only G has the 1 / p_i, the memories follow Algorithm 2 (C3).

    `fedsim explain C4` explains a code such as (C4).
    """

    step_size: StepSize
    _: KW_ONLY
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
    own_weights = True  # b / |A| or 1 / p_i
    known = ("zeta",)  # not sent: an earlier broadcast, which all clients received
    local_steps = 1

    @property
    def sums(self) -> bool:
        """One sum serves the step and the memory, unless the step divides by activities."""
        return self.weighting == "count"

    def __post_init__(self) -> None:
        family.check_arguments("QLSDPlusPlus", self)
        check_count("QLSDPlusPlus", self, "refresh_every")
        if self.memory_rate is not None:
            check_number("QLSDPlusPlus", self, "memory_rate", 0, 1)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        family.check_population("QLSDPlusPlus", self, problem)
        precision = family.prior_precision(problem, initial)
        return {"theta": initial, "zeta": initial, "e": np.zeros_like(initial), "precision": precision}

    def memory(self, problem: ProblemLike) -> Arrays:
        """Return e_i and, with minibatches, grad U_i(zeta) and the number of that control point."""
        zero = np.zeros(problem.dim)
        return {"e": zero} | ({} if self.batch_size is None else {"anchor": zero, "point": np.array([-1.0])})

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"], "zeta": state["zeta"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        theta, zeta, e = message["theta"], message["zeta"], memory["e"]
        gradient = job.gradient(theta, 0, self.batch_size, prior=False)
        if self.batch_size is not None:  # over all rows the control variate cancels
            memory = self._anchored(job, zeta, memory)
            gradient = gradient - job.gradient(zeta, 0, self.batch_size, prior=False) + memory["anchor"]
        sent = job.encode(self.codec, gradient - e)
        return {"gradient": sent}, memory | {"e": e + self._rate(theta) * sent.value}

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        theta, zeta, e = state["theta"], state["zeta"], state["e"]
        gradient = e + family.estimate(self, replies) + state["precision"] * theta
        theta = family.langevin(self, theta, gradient, replies, rng)
        refresh = replies.round % self.refresh_every == 0
        return {
            "theta": theta,
            "zeta": theta if refresh else zeta,
            "e": e + self._rate(theta) * replies.sum("gradient"),
        }

    def weigh(self, received: Received) -> Array:
        return family.by_count(self, received)

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        send = family.compiled(self, problem, backend)
        if send is None:
            return None

        def kernel(job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
            theta, e = message["theta"], memory["e"]
            control, anchor = None, None
            if self.batch_size is not None:
                memory = self._anchored(job, message["zeta"], memory)
                control, anchor = message["zeta"], memory["anchor"]
            sent, e = send(job, theta, control, anchor, e, self._rate(theta))
            return {"gradient": sent}, memory | {"e": e}

        return kernel

    def _anchored(self, job: Job, zeta: Array, memory: Arrays) -> Arrays:
        """Return the memory with grad U_i(zeta), computed in a client's first visit since zeta changed."""
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
        return 1 / (1 + max(float(call(codec, "omega", theta.shape[-1])) for codec in codecs))
