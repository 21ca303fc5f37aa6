"""DE-SGLD: decentralised SGLD (Gurbuzbalaban, Gao, Hu and Zhu, JMLR 2021)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import sqrt
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import check_batch_size, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at


@dataclass(frozen=True)
class DESGLD:
    """DE-SGLD: decentralised SGLD (Gurbuzbalaban, Gao, Hu and Zhu, JMLR 2021).

        x_i <- sum_j W_ij x_j - eta_i grad U_i(x_i) + sqrt(2 eta_i) xi_i,   eta_i = eta / (N pi_i)    at every site i

    | symbol | argument     | meaning                                                                |
    |--------|--------------|------------------------------------------------------------------------|
    | eta    | `step_size`  | a number, or a schedule of the round                                   |
    |        | `batch_size` | rows per gradient, drawn afresh without replacement; None: all of them |

    U_i is summed over the client's rows and the target is exp(-sum_i U_i): the sites' average, weighted by pi, moves by
    eta / N times the full gradient. W is the exchange's mixing and pi its stationary weights. Wire: to each neighbour
    x_j (d). Memory: none. Exchange: gossip().

    Differs from paper: its W is doubly stochastic, and eta_i = eta.
    """

    step_size: StepSize
    _: KW_ONLY
    batch_size: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    needs_gossip = True  # the server reads its own site's gradient
    any_mixing = True
    local_only = ("gradient", "step")

    def __post_init__(self) -> None:
        check_step_size("DESGLD", self)
        check_batch_size("DESGLD", self.batch_size)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        return {"theta": x, "gradient": job.gradient(x, 0, self.batch_size), "step": step_share(job, x)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        eta, x, share = step_at(self.step_size, replies.round, 1, 0), state["theta"], replies.own("step")
        noise = np.sqrt(share) * rng.normal(x.shape[-1], x.dtype)
        drift = eta * (share * replies.own("gradient"))
        return {"theta": np.asarray(replies.mean("theta") - drift + sqrt(2 * eta) * noise)}


def step_share(job: Job, like: Array) -> Array:
    """Return 1 / (N pi_i), (1,) or (jobs, 1): exactly 1 where W is doubly stochastic."""
    share = like.dtype.type(1 / job.clients) / np.asarray(job.weight, like.dtype)
    return np.broadcast_to(share, (*like.shape[:-1], 1))
