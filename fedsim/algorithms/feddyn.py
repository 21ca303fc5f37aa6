"""FedDyn (Acar, Zhao, Navarro, Mattina, Whatmough and Saligrama, ICLR 2021; Algorithm 1)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.problems import weights_of
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class FedDyn:
    """FedDyn (Acar, Zhao, Navarro, Mattina, Whatmough and Saligrama, ICLR 2021; Algorithm 1).

        y <- x, then E times  y <- y - eta (grad f_i(y) - g_i + alpha (y - x));   Delta_i = y - x
        g_i <- g_i - alpha Delta_i
        server: h <- h - alpha sum over the received of p_i Delta_i;   x <- x + sum_i a_i Delta_i - h / alpha

    | symbol | argument       | meaning                                                                             |
    |--------|----------------|-------------------------------------------------------------------------------------|
    | alpha  | `regularity`   | strength of the dynamic regulariser                                                 |
    | eta    | `step_size`    | a number, or a schedule of the global local-step index                              |
    | E      | `local_steps`  | steps that stand for the exact minimisation of the paper                            |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them              |
    |        | `weight_decay` | adds lambda y to the gradient                                                       |
    | f_i    | `objective`    | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M and 1/N    |

    g_i and h start at zero; a client's g_i changes only when its reply is aggregated. At the fixed point every g_i is
    the client's gradient and their mean h is zero: the minimiser of sum_i p_i f_i. Wire: up Delta_i (d), down x (d).
    Memory: a client's g_i (d) and the server's h (d). Participation: uniform(M) in the paper.

    Differs from paper: E gradient steps in place of an argmin; with objective "mean" the paper's 1/m is p_i, the same
    where all clients have equally many rows. A round without replies changes nothing.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    regularity: float = 0.1
    batch_size: Any = None
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_step_size("FedDyn", self)
        check_count("FedDyn", self, "local_steps")
        check_number("FedDyn", self, "regularity", 1e-30)
        check_batch_size("FedDyn", self.batch_size)
        check_number("FedDyn", self, "weight_decay")
        local_descent.check_objective("FedDyn", self.objective)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        p = np.full(problem.clients, 1 / problem.clients) if self.objective == "scaled" else weights_of(problem)
        return {"theta": initial, "h": np.zeros_like(initial), "share": p.astype(initial.dtype)}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {"g": np.zeros(problem.dim)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x, g, alpha = message["theta"], memory["g"], self.regularity
        scale = local_descent.scale(self.objective, job, x.dtype)
        how = local_descent.Descent(self.step_size, self.local_steps, self.batch_size, weight_decay=self.weight_decay)
        delta = local_descent.descend(job, x, scale, how, lambda y: alpha * (y - x) - g) - x
        return {"delta": delta}, memory | {"g": g - alpha * delta}

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        alpha, empty = self.regularity, np.equal(replies.count, 0)
        share = np.atleast_2d(state["share"])[0]  # the same in every replica
        h = state["h"] - alpha * replies.weighted("delta", share[replies.clients])
        theta = state["theta"] + replies.mean("delta") - h / alpha
        return {"theta": np.where(empty, state["theta"], theta), "h": h}

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("FedDyn", self.objective, received)
