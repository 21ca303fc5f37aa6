"""FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, MLSys 2020; Algorithm 2)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class FedProx:
    """FedProx (Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, MLSys 2020; Algorithm 2).

        y <- x, then E_i times  y <- y - eta (grad f_i(y) + mu (y - x));   Delta_i = y - x
        server: x <- x + sum_i a_i Delta_i

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | mu     | `proximal`     | weight of the proximal term; 0 gives FedAvg                                 |
    | eta    | `step_size`    | a number, or a schedule of the global local-step index                      |
    | E_i    | `local_steps`  | steps between two synchronisations; one number, or one per client           |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    Wire: up Delta_i (d), down x (d). Memory: none. Participation: with_replacement(S), by p_i, in the paper.

    Differs from paper: E_i gradient steps in place of a solver of a given inexactness.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: Any = 1
    proximal: float = 0.01
    batch_size: Any = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_step_size("FedProx", self)
        local_descent.check_steps("FedProx", self)
        check_number("FedProx", self, "proximal")
        check_batch_size("FedProx", self.batch_size)
        local_descent.check_inertia("FedProx", self)
        local_descent.check_objective("FedProx", self.objective)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        local_descent.check_steps_of_clients("FedProx", self.local_steps, problem)
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> Any:
        return local_descent.work(job, self.local_steps)

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        scale = local_descent.scale(self.objective, job, x.dtype)
        how = local_descent.descent_of(self)
        return {"delta": local_descent.descend(job, x, scale, how, lambda y: self.proximal * (y - x)) - x}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": state["theta"] + replies.mean("delta")}

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("FedProx", self.objective, received)
