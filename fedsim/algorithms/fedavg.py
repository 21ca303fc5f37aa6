"""FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.algorithms.common.fused_descent import fused_descent
from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.problems import weights_of
from fedsim.protocols import (
    Backend,
    BatchSize,
    Job,
    JobOfKernel,
    Kernel,
    ProblemLike,
    Received,
    Replies,
    Rng,
    Visitors,
)
from fedsim.schedules import StepSize

FASTEST = 10  # times step_size: the largest step of a client over gossip


@dataclass(frozen=True)
class FedAvg:
    """FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017).

    Equations are those of the private FedPAQ paper.

        y <- x, then E times  v <- mu v + grad f_i(y) + lambda y,  y <- y - eta v;   Delta_i = y - x      (4), (5)
        server: x <- x + eta_g sum_i a_i Delta_i

    | symbol | argument      | meaning                                                                     |
    |--------|---------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the global local-step index                      |
    | E      | `local_steps` | steps between two synchronisations                                          |
    | b      | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them      |
    | eta_g  | `server_step` | the server's step size                                                      |
    | mu     | `momentum`    | of the local steps; v is zero at every round's start                        |
    | lambda | `weight_decay`| of the local steps                                                          |
    | f_i    | `objective`   | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    Wire: up Delta_i (d), down x (d). Memory: none. Participation: uniform(M) in the paper. Over gossip
    it sends y and client i's step is eta p_i / pi_i: see GossipFedAvg.

    Differs from paper: by default the average is by n_i, the paper's 1/M where all clients have equally many rows (E2).
    The paper's local steps have neither momentum nor weight decay: both are zero by default.

    `fedsim explain E2` explains a code such as (E2).
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    batch_size: Any = None
    server_step: float = 1.0
    objective: str = "mean"
    momentum: float = 0.0
    weight_decay: float = 0.0

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_descent("FedAvg", self)
        local_descent.check_inertia("FedAvg", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        scale = local_descent.scale(self.objective, job, x.dtype)
        return {"delta": local_descent.descend(job, x, scale, local_descent.descent_of(self)) - x}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": state["theta"] + self.server_step * replies.mean("delta")}

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        """Return all local steps in one kernel, where the problem has one."""
        descend = fused_descent(problem, backend, local_descent.descent_of(self))
        if descend is None:
            return None

        def kernel(job: JobOfKernel, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
            x = message["theta"]
            return {"delta": descend(job, x, local_descent.scale(self.objective, job, x.dtype))}, memory

        return kernel

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("FedAvg", self.objective, received)

    def for_gossip(self, problem: ProblemLike, weights: Array) -> GossipFedAvg:
        if self.objective == "scaled":
            raise InvalidInput(
                "FedAvg(objective='scaled') over gossip: clients' steps are scaled by p_i / pi_i there already; leave "
                "objective out"
            )
        pace = weights_of(problem) / weights
        if pace.max() > FASTEST:
            i = int(np.argmax(pace))
            raise InvalidInput(
                f"FedAvg over gossip: client {i}'s steps would be {pace[i]:.3g} times step_size, its share of the data "
                f"over its stationary weight in the mixing; at most {FASTEST} are allowed; give a mixing with a larger "
                "weight for it"
            )
        return GossipFedAvg(self, tuple(pace.tolist()))


@dataclass(frozen=True)
class GossipFedAvg:
    """FedAvg without a server: neighbours have other models, so that models are sent and not differences.

        x_i <- x_i + eta_g (sum_j W_ij y_j - x_i)

    Client i's step size is eta p_i / pi_i, pi the stationary weights of W, so that the sites together descend
    sum_i p_i f_i. Wire: to each neighbour y_j (d).
    """

    settings: FedAvg
    pace: tuple[float, ...]  # p_i / pi_i

    batched = True
    sampler = False
    any_mixing = True

    @property
    def step_size(self) -> StepSize:
        return self.settings.step_size

    @property
    def batch_size(self) -> Any:
        return self.settings.batch_size

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.settings.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        s, x = self.settings, message["theta"]
        pace = np.asarray(self.pace, x.dtype)[job.client]
        pace = pace[:, None] if pace.ndim else pace
        scale = local_descent.scale("mean", job, x.dtype)
        return {"theta": local_descent.descend(job, x, scale, local_descent.descent_of(s), pace=pace)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        x = state["theta"]
        return {"theta": x + self.settings.server_step * (replies.mean("theta") - x)}


def distributed_sgd(step_size: StepSize, *, batch_size: BatchSize = None) -> FedAvg:
    """Return distributed SGD (the private FedPAQ paper's equation 3): FedAvg with one local step.

    Participation: full() in the paper.
    """
    return FedAvg(step_size, local_steps=1, batch_size=batch_size)


def check_descent(where: str, settings: Any) -> None:
    """Check the arguments that FedAvg, FedPAQ and SCAFFOLD have in common."""
    check_step_size(where, settings)
    check_count(where, settings, "local_steps")
    check_batch_size(where, settings.batch_size)
    check_number(where, settings, "server_step")
    local_descent.check_objective(where, settings.objective)
