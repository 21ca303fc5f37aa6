"""pSGLD: SGLD with the preconditioner of RMSprop, all data on one machine (Li, Chen, Carlson and Carin, AAAI 2016)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.algorithms.common.metropolis import check_single
from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float_array
from fedsim.errors import InvalidInput
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at
from fedsim.text import short_repr


@dataclass(frozen=True)
class PSGLD:
    """pSGLD: SGLD with the preconditioner of RMSprop, all data on one machine (Li, Chen, Carlson and Carin, AAAI 2016).

        v <- a v + (1 - a) gbar^2,   G = 1 / (lambda + sqrt(v)),   gbar = grad f / n, the mean over the rows
        theta <- theta - (eta / 2) G grad f(theta) + sqrt(eta tau G) xi                               (Algorithm 1)

    | symbol | argument        | meaning                                                                |
    |--------|-----------------|------------------------------------------------------------------------|
    | eta    | `step_size`     | a number, or a schedule of the iteration                               |
    |        | `local_steps`   | iterations between two samples: a round                                |
    | a      | `decay`         | decay rate of v; 1 keeps v at its initial value                        |
    | lambda | `damping`       | bounds the preconditioner, G <= 1 / lambda                             |
    | v      | `second_moment` | initial v: None for zero, a number, or one per coordinate              |
    | tau    | `temperature`   | the target is exp(-f / tau)                                            |
    | m      | `batch_size`    | rows per gradient, drawn afresh without replacement; None: all of them |

    A reference for one machine. Wire: up theta (d), down theta (d), between the one machine and the server. Memory: v
    (d). Participation: full(), the one machine.

    Differs from paper: the correction Gamma for a G that depends on theta is left out, as in the paper's experiments,
    so the law is right only as far as G is constant; gbar includes the prior's share.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    decay: float = 0.99
    damping: float = 1e-5
    temperature: float = 1.0
    batch_size: Any = None
    second_moment: Any = None

    batched = True
    sampler = True

    def __post_init__(self) -> None:
        check_step_size("PSGLD", self)
        check_count("PSGLD", self, "local_steps")
        check_number("PSGLD", self, "decay", 0, 1)
        check_number("PSGLD", self, "damping", 1e-30)
        check_number("PSGLD", self, "temperature")
        check_batch_size("PSGLD", self.batch_size)
        if self.second_moment is not None and as_float_array(self.second_moment) is None:
            given = f"PSGLD(second_moment={short_repr(self.second_moment, 60)})"
            raise InvalidInput(f"{given}: give a number of at least 0, or one per coordinate")

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        check_single("PSGLD", problem)
        return {"theta": initial}

    def memory(self, problem: ProblemLike) -> Arrays:
        v = np.asarray(0.0 if self.second_moment is None else self.second_moment, np.float64)
        if v.shape not in ((), (problem.dim,)) or not np.all((v >= 0) & (v < np.inf)):
            raise InvalidInput(
                f"PSGLD(second_moment of shape {v.shape}): give a number of at least 0, or {problem.dim} of them"
            )
        return {"v": np.broadcast_to(v, (problem.dim,))}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        theta, v, a = message["theta"], memory["v"], self.decay
        n = np.asarray(job.size, theta.dtype)
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            gradient = job.gradient(theta, k, self.batch_size)
            v = a * v + (1 - a) * (gradient / n) ** 2
            g = 1 / (self.damping + np.sqrt(v))
            theta = theta - eta / 2 * g * gradient + math.sqrt(eta * self.temperature) * np.sqrt(g) * job.normal(k)
        return {"theta": theta}, memory | {"v": v}

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}
