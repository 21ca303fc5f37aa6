"""DIGing-SGLD: decentralised SGLD with gradient tracking (Bajwa, Gurbuzbalaban, Hu, Zhu and others, 2025)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import sqrt
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import check_batch_size, check_step_size
from fedsim.algorithms.desgld import step_share
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at


@dataclass(frozen=True)
class DIGingSGLD:
    """DIGing-SGLD: decentralised SGLD with gradient tracking (Bajwa et al. 2025).

        x_i <- sum_j W_ij x_j - eta y_i + sqrt(2 eta / (N pi_i)) xi_i                                 at every site i
        y_i <- sum_j W_ij y_j + g_i(new x_i) - g_i(old x_i),   y_i = g_i(x_i) at the start,   g_i = grad U_i / (N pi_i)

    | symbol | argument     | meaning                                                                |
    |--------|--------------|------------------------------------------------------------------------|
    | eta    | `step_size`  | a number, or a schedule of the round                                   |
    |        | `batch_size` | rows per gradient, drawn afresh without replacement; None: all of them |

    y_i tracks the average gradient, so that W may change from round to round. U_i is summed over the client's rows, and
    the target is exp(-sum_i U_i). W is the exchange's mixing and pi its stationary weights. A visit computes g_i at its
    site's x_i and completes y_i; the state has sum_j W_ij y_j ("mixed") and the previous g_i. Wire: to each neighbour
    x_j and y_j (2d). Memory: none. Exchange: gossip() without loss of messages, because a lost y_j is never sent again.

    Differs from paper: its W is doubly stochastic, and N pi_i = 1.
    """

    step_size: StepSize
    _: KW_ONLY
    batch_size: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    needs_gossip = True  # the server reads its own site's y and gradient
    lossless = True  # a lost message changes the sum of all y_i for ever
    any_mixing = True
    local_only = ("gradient", "step")

    def __post_init__(self) -> None:
        check_step_size("DIGingSGLD", self)
        check_batch_size("DIGingSGLD", self.batch_size)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial, "mixed": np.zeros_like(initial), "gradient": np.zeros_like(initial)}

    def broadcast(self, state: Arrays) -> Arrays:
        return state

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        share = step_share(job, x)
        gradient = share * job.gradient(x, 0, self.batch_size)
        y = message["mixed"] + gradient - message["gradient"]
        return {"theta": x, "y": y, "gradient": gradient, "step": share}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        eta, x = step_at(self.step_size, replies.round, 1, 0), state["theta"]
        noise = np.sqrt(replies.own("step")) * rng.normal(x.shape[-1], x.dtype)
        return {
            "theta": np.asarray(replies.mean("theta") - eta * replies.own("y") + sqrt(2 * eta) * noise),
            "mixed": replies.mean("y"),
            "gradient": replies.own("gradient"),
        }
