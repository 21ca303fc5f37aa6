"""HMC: Hamiltonian Monte Carlo with accept/reject, all data on one machine (Duane and others 1987)."""

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
class HMC:
    """HMC: Hamiltonian Monte Carlo with accept/reject, all data on one machine (Duane and others 1987).

        p ~ N(0, I), then K times, with g = grad f / tau,
            p <- p - (eta/2) g(theta), theta <- theta + eta p, p <- p - (eta/2) g(theta);
        accepted with probability min(1, exp(H before - H after)),   H = f(theta) / tau + |p|^2 / 2

    | symbol | argument         | meaning                                      |
    |--------|------------------|----------------------------------------------|
    | eta    | `step_size`      | a number, or a schedule of the HMC iteration |
    | K      | `leapfrog_steps` | steps of one trajectory                      |
    |        | `local_steps`    | HMC iterations between two samples: a round  |
    | tau    | `temperature`    | the target is exp(-f / tau)                  |

    A reference without discretisation bias (the MHMC of FA-HMC's section 5): gradients are exact, the mass is one.
    Wire: up theta (d), down theta (d), between the one machine and the server. Memory: none. Participation: full(),
    the one machine.
    """

    step_size: StepSize
    _: KW_ONLY
    leapfrog_steps: int = 10
    local_steps: int = 1
    temperature: float = 1.0

    batched = True
    sampler = True  # its iterates are samples of a law

    def __post_init__(self) -> None:
        check_step_size("HMC", self)
        check_count("HMC", self, "leapfrog_steps")
        check_count("HMC", self, "local_steps")
        check_number("HMC", self, "temperature", math.ulp(0.0))

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        check_single("HMC", problem)
        potentials_of(problem)  # refuses a problem without potentials
        return {"theta": initial}

    def memory(self, problem: ProblemLike) -> Arrays:
        return no_proposals()

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps * self.leapfrog_steps

    @np.errstate(over="ignore", invalid="ignore")  # a trajectory that diverges is rejected
    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        tau, theta = self.temperature, message["theta"]
        taken = np.zeros((*theta.shape[:-1], 1), theta.dtype)
        f, gradient = job.potential(theta), job.gradient(theta, 0)
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            there, p, g = theta, job.normal(k), gradient
            before = f / tau + square(p) / 2
            for _ in range(self.leapfrog_steps):
                p = p - eta / (2 * tau) * g
                there = there + eta * p
                g = job.gradient(there, k)
                p = p - eta / (2 * tau) * g
            f_there = job.potential(there)
            yes = accepted(job, k, before - (f_there / tau + square(p) / 2))
            theta, gradient, f = (
                np.where(yes, there, theta),
                np.where(yes, g, gradient),
                np.where(yes, f_there, f),
            )
            taken = taken + yes
        return {"theta": theta}, counted(memory, taken, self.local_steps)

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}
