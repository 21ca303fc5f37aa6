"""FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from fedsim.algorithms import objectives
from fedsim.algorithms.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.participation import Arrived
from fedsim.schedules import StepSize, step_at

Array = npt.NDArray[Any]
State = dict[str, Array]


@dataclass(frozen=True)
class FedAvg:
    """FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017).

    Equations are those of the private FedPAQ paper.

        y <- x, then E times  y <- y - eta grad f_i(y);   Delta_i = y - x                          (4), (5)
        server: x <- x + eta_g sum_i a_i Delta_i

    | symbol | argument      | meaning                                                                     |
    |--------|---------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the global local-step index                      |
    | E      | `local_steps` | steps between two synchronisations                                          |
    | b      | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them      |
    | eta_g  | `server_step` | what multiplies the average                                                 |
    | f_i    | `objective`   | "mean": the mean loss, a_i = n_i over the arrived; "scaled": p_i N f_i, 1/M |

    Wire: up Delta_i (d), down x (d). Memory: none. Participation: uniform(M) in the paper.

    Differs from paper: by default the average is by n_i, the paper's 1/M where all have equally much data (E2).

    What a code such as (E2) stands for: `fedsim explain E2`.
    """

    step_size: StepSize
    local_steps: int = 1
    batch_size: Any = None
    server_step: float = 1.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_descent("FedAvg", self)

    def init(self, problem: Any, initial: Array) -> State:
        return {"theta": initial}

    def memory(self, problem: Any) -> State:
        return {}

    def broadcast(self, state: State) -> State:
        return {"theta": state["theta"]}

    def work(self, job: Any) -> float:
        return self.local_steps

    def client(self, job: Any, message: State, memory: State) -> tuple[State, State]:
        x = message["theta"]
        scale = objectives.scale(self.objective, job, x.dtype)
        return {"delta": descend(job, x, scale, self) - x}, memory

    def server(self, state: State, replies: Any, rng: Any) -> State:
        return {"theta": state["theta"] + self.server_step * replies.mean("delta")}

    def weigh(self, arrived: Arrived) -> Array:
        return objectives.weigh("FedAvg", self.objective, arrived)


def distributed_sgd(step_size: StepSize, batch_size: Any = None) -> FedAvg:
    """Distributed SGD (the private FedPAQ paper's equation 3): FedAvg with one local step.

    Participation: full() in the paper.
    """
    return FedAvg(step_size, 1, batch_size)


def descend(job: Any, x: Array, scale: Array, settings: Any, **options: Any) -> Array:
    """E local gradient steps from x (equation 4); `options` go to `job.gradient`."""
    y = x
    for k in range(settings.local_steps):
        eta = step_at(settings.step_size, job.round, settings.local_steps, k)
        y = y - eta * scale * job.gradient(y, k, settings.batch_size, **options)
    return y


def check_descent(where: str, settings: Any) -> None:
    """The arguments that FedAvg, FedPAQ and SCAFFOLD have in common."""
    check_step_size(where, settings)
    check_count(where, settings, "local_steps")
    check_batch_size(where, settings.batch_size)
    check_number(where, settings, "server_step")
    objectives.check_objective(where, settings.objective)
