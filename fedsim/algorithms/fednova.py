"""FedNova (Wang, Liu, Liang, Joshi and Poor, NeurIPS 2020; equations 8 and 9)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class FedNova:
    """FedNova (Wang, Liu, Liang, Joshi and Poor, NeurIPS 2020; equations 8 and 9).

        y <- x, then E_i times  v <- mu v + grad f_i(y),  y <- y - eta v
        A_i = eta |a_i|_1, the sum of the coefficients of y's gradients;   d_i = (y - x) / A_i
        server: x <- x + (sum_i w_i A_i) (sum_i w_i d_i)

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | a number, or a schedule of the global local-step index                      |
    | E_i    | `local_steps`  | steps between two synchronisations; one number, or one per client           |
    | mu     | `momentum`     | of the local steps, zero at every round's start                             |
    |        | `weight_decay` | adds lambda y to the gradient                                               |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `server_step`  | factor of the server's step                                                 |
    | f_i    | `objective`    | "mean": mean loss, w_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    A client with more steps has no more influence, so that the minimiser is that of sum_i p_i f_i for all E_i (for
    small eta; local drift remains, as in FedAvg). With equal E_i it is FedAvg. Wire: up d_i and A_i (d + 1), down x
    (d). Memory: none. Participation: uniform(M) in the paper.

    Differs from paper: tau_eff is sum_i w_i |a_i|_1 over the received, the paper's first choice.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: Any = 1
    batch_size: Any = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    server_step: float = 1.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate
    averages = False  # its step is a product of two averages

    def __post_init__(self) -> None:
        check_step_size("FedNova", self)
        local_descent.check_steps("FedNova", self)
        check_batch_size("FedNova", self.batch_size)
        local_descent.check_inertia("FedNova", self)
        check_number("FedNova", self, "server_step")
        local_descent.check_objective("FedNova", self.objective)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        local_descent.check_steps_of_clients("FedNova", self.local_steps, problem)
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> Any:
        return local_descent.work(job, self.local_steps)

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        scale = local_descent.scale(self.objective, job, x.dtype)
        how = local_descent.descent_of(self)
        total = local_descent.step_sum(job, x, how)
        return {"direction": (local_descent.descend(job, x, scale, how) - x) / total, "step_sum": total}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        move = replies.mean("step_sum") * replies.mean("direction")
        return {"theta": state["theta"] + self.server_step * move}

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("FedNova", self.objective, received)
