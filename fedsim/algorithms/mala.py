"""MALA: Metropolis-adjusted Langevin with all data on one machine (Roberts and Tweedie, Bernoulli 1996)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedsim.algorithms.common.arguments import check_count, check_number, check_step_size
from fedsim.algorithms.common.metropolis import accepted, check_single, counted, no_proposals, square
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors, potentials_of
from fedsim.schedules import StepSize, step_at


@dataclass(frozen=True)
class MALA:
    """MALA: Metropolis-adjusted Langevin with all data on one machine (Roberts and Tweedie, Bernoulli 1996).

        theta' = theta - eta grad f(theta) + sqrt(2 eta tau) xi,   accepted with probability min(1, exp(r)),
        r = (f(theta) - f(theta')) / tau
            + (|theta' - theta + eta grad f(theta)|^2 - |theta - theta' + eta grad f(theta')|^2) / (4 eta tau)

    | symbol | argument      | meaning                                  |
    |--------|---------------|------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the iteration |
    |        | `local_steps` | iterations between two samples: a round  |
    | tau    | `temperature` | the target is exp(-f / tau)              |

    A reference without discretisation bias: gradients are exact. A rejected proposal repeats the sample. Wire: up theta
    (d), down theta (d), between the one machine and the server. Memory: none but the share of proposals accepted, for
    the metric `accepted`. Participation: full(), the one machine.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    temperature: float = 1.0

    batched = True
    sampler = True  # its iterates are samples of a law

    def __post_init__(self) -> None:
        check_step_size("MALA", self)
        check_count("MALA", self, "local_steps")
        check_number("MALA", self, "temperature", math.ulp(0.0))

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        check_single("MALA", problem)
        potentials_of(problem)  # refuses a problem without potentials
        return {"theta": initial}

    def memory(self, problem: ProblemLike) -> Arrays:
        return no_proposals()

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    @np.errstate(over="ignore", invalid="ignore")  # a proposal that diverges is rejected
    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        tau, theta = self.temperature, message["theta"]
        taken = np.zeros((*theta.shape[:-1], 1), theta.dtype)
        f, gradient = job.potential(theta), job.gradient(theta, 0)
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            there = theta - eta * gradient + math.sqrt(2 * eta * tau) * job.normal(k)
            f_there, gradient_there = job.potential(there), job.gradient(there, k)
            out, back = there - theta + eta * gradient, theta - there + eta * gradient_there
            log_ratio = (f - f_there) / tau + (square(out) - square(back)) / (4 * eta * tau)
            yes = accepted(job, k, log_ratio)
            theta, gradient = np.where(yes, there, theta), np.where(yes, gradient_there, gradient)
            f, taken = np.where(yes, f_there, f), taken + yes
        return {"theta": theta}, counted(memory, taken, self.local_steps)

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}
