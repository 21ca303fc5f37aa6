"""FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedsim.algorithms import adaptive, objectives
from fedsim.arrays import Array, Arrays
from fedsim.participation import Arrived
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class FedAdagrad:
    """FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

    FedAvg's clients, and at the server Adagrad on the mean of their updates.

        Delta = sum_i a_i Delta_i;   m <- beta1 m + (1 - beta1) Delta
        v <- v + Delta^2
        x <- x + eta_g m / (sqrt(v) + tau)

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | of the local steps: a number, or a schedule of the global local-step index  |
    | E      | `local_steps`  | steps between two synchronisations                                          |
    | eta_g  | `server_step`  | the server's step size                                                      |
    | beta1  | `beta1`        | memory of the first moment                                                  |
    | tau    | `tau`          | how adaptive: the smaller the more; v starts at tau^2                       |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": the mean loss, a_i = n_i over the arrived; "scaled": p_i N f_i, 1/M |

    No bias correction, as in the paper. Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d).
    Participation: uniform(M) in the paper.

    Differs from paper: the average is by n_i, the paper's 1/M where all have equally much data. A round to which nobody
    comes changes nothing.
    """

    step_size: StepSize
    local_steps: int = 1
    server_step: float = 0.1
    batch_size: Any = None
    beta1: float = 0.0
    tau: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        adaptive.check("FedAdagrad", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return adaptive.start(initial, self.tau)

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"delta": adaptive.update(job, message["theta"], self)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return adaptive.step(self, state, replies, lambda v, squared: v + squared)

    def weigh(self, arrived: Arrived) -> Array:
        return objectives.weigh("FedAdagrad", self.objective, arrived)
