"""SGLD: stochastic gradient Langevin dynamics with all data on one machine (Welling and Teh, ICML 2011)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from fedsim.algorithms.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.algorithms.metropolis import check_single
from fedsim.schedules import StepSize, step_at

Array = npt.NDArray[Any]
State = dict[str, Array]


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
    local_steps: int = 1
    temperature: float = 1.0
    batch_size: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law

    def __post_init__(self) -> None:
        check_step_size("SGLD", self.step_size)
        check_count("SGLD", "local_steps", self.local_steps)
        check_number("SGLD", "temperature", self.temperature)
        check_batch_size("SGLD", self.batch_size)

    def init(self, problem: Any, initial: Array) -> State:
        check_single("SGLD", problem)
        return {"theta": initial}

    def memory(self, problem: Any) -> State:
        return {}

    def broadcast(self, state: State) -> State:
        return {"theta": state["theta"]}

    def work(self, job: Any) -> float:
        return self.local_steps

    def client(self, job: Any, message: State, memory: State) -> tuple[State, State]:
        theta = message["theta"]
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            noise = math.sqrt(2 * eta * self.temperature) * job.normal(k)
            theta = theta - eta * job.gradient(theta, k, self.batch_size) + noise
        return {"theta": theta}, memory

    def server(self, state: State, replies: Any, rng: Any) -> State:
        return {"theta": replies.mean("theta")}
