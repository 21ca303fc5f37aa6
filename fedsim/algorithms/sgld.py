"""SGLD: stochastic gradient Langevin dynamics with all data on one machine (Welling and Teh, ICML 2011)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.algorithms.common.metropolis import check_single
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at


@dataclass(frozen=True)
class SGLD:
    """SGLD: stochastic gradient Langevin dynamics with all data on one machine (Welling and Teh, ICML 2011).

        theta <- theta - eta grad f(theta) + sqrt(2 eta tau) xi

    | symbol | argument      | meaning                                                                |
    |--------|---------------|------------------------------------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the iteration                               |
    |        | `local_steps` | iterations between two samples: a round                                |
    | tau    | `temperature` | the target is exp(-f / tau)                                            |
    | m      | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them |

    A reference: it equals FA-LD with one client. Wire: up theta (d), down theta (d), between the one machine and the
    server. Memory: none. Participation: full(), the one machine.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    temperature: float = 1.0
    batch_size: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law

    def __post_init__(self) -> None:
        check_step_size("SGLD", self)
        check_count("SGLD", self, "local_steps")
        check_number("SGLD", self, "temperature")
        check_batch_size("SGLD", self.batch_size)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        check_single("SGLD", problem)
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        theta = message["theta"]
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            noise = math.sqrt(2 * eta * self.temperature) * job.normal(k)
            theta = theta - eta * job.gradient(theta, k, self.batch_size) + noise
        return {"theta": theta}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}
