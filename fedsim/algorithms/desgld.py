"""DE-SGLD: decentralised SGLD (Gurbuzbalaban, Gao, Hu and Zhu, JMLR 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from fedsim.algorithms.arguments import check_batch_size, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at


@dataclass(frozen=True)
class DESGLD:
    """DE-SGLD: decentralised SGLD (Gurbuzbalaban, Gao, Hu and Zhu, JMLR 2021).

        x_i <- sum_j W_ij x_j - eta grad U_i(x_i) + sqrt(2 eta) xi_i                                  at every site i

    | symbol | argument     | meaning                                                                |
    |--------|--------------|------------------------------------------------------------------------|
    | eta    | `step_size`  | a number, or a schedule of the round                                   |
    |        | `batch_size` | rows per gradient, drawn afresh without replacement; None: all of them |

    U_i is summed over the client's rows and the target is exp(-sum_i U_i): the sites' average moves by eta / N times
    the whole gradient. W is the exchange's mixing. Wire: to each neighbour x_j (d). Memory: none. Exchange: gossip().
    """

    step_size: StepSize
    batch_size: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    needs_gossip = True  # a site's own gradient is told apart from the others' models
    kept = ("gradient",)

    def __post_init__(self) -> None:
        check_step_size("DESGLD", self)
        check_batch_size("DESGLD", self.batch_size)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        return {"theta": x, "gradient": job.gradient(x, 0, self.batch_size)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        eta, x = step_at(self.step_size, replies.round, 1, 0), state["theta"]
        noise = rng.normal(x.shape[-1], x.dtype)
        return {"theta": np.asarray(replies.mean("theta") - eta * replies.own("gradient") + sqrt(2 * eta) * noise)}
