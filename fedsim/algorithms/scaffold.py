"""SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, ICML 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.fedavg import check_descent
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize, steps_of


@dataclass(frozen=True)
class Scaffold:
    """SCAFFOLD (Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, ICML 2020).

    Equations are those of the private FedPAQ paper.

        y <- x, then E times  y <- y - eta (grad f_i(y) - c_i + c);   Delta_i = y - x                          (7)
        c_i+ = c_i - c - Delta_i / (E eta)                                                                    (8)
        server: x <- x + eta_g sum_i a_i Delta_i;   c <- c + (1/N) sum over the active of (c_i+ - c_i)        (9)

    | symbol | argument      | meaning                                                                     |
    |--------|---------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the global local-step index                      |
    | E      | `local_steps` | steps between two synchronisations                                          |
    | b      | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them      |
    | eta_g  | `server_step` | the server's step size                                                      |
    | f_i    | `objective`   | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    c_i and c start at zero; a client's c_i changes only when its reply is aggregated. Wire: up Delta_i and the change
    of c (2d), down x and c (2d). Memory: a client's c_i (d) and the server's c (d). Participation: uniform(M) in the
    paper.

    Differs from paper: with objective "mean" the 1/N of (9) is p_i, the same where all clients have equally many rows,
    so that c stays the gradient of sum_i p_i f_i and its minimiser the fixed point; the client multiplies before it
    sends. Where the step size varies inside a round, E eta is the sum of its step sizes.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    batch_size: Any = None
    server_step: float = 1.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_descent("Scaffold", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial, "c": np.zeros_like(initial)}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {"c": np.zeros(problem.dim)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"], "c": state["c"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x, c, c_i = message["theta"], message["c"], memory["c"]
        scale = local_descent.scale(self.objective, job, x.dtype)
        steps = steps_of(self.step_size, job.round, self.local_steps)
        y = x
        for k, eta in enumerate(steps):
            y = y - eta * (scale * job.gradient(y, k, self.batch_size) - c_i + c)
        delta = y - x
        change = -c - delta / sum(steps)
        share = 1 / job.clients if self.objective == "scaled" else job.weight
        return {"delta": delta, "delta_c": share * change}, memory | {"c": c_i + change}

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {
            "theta": state["theta"] + self.server_step * replies.mean("delta"),
            "c": state["c"] + replies.sum("delta_c"),
        }

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("Scaffold", self.objective, received)
