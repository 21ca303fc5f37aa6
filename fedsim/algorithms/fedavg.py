"""FedAvg (McMahan, Moore, Ramage, Hampson and Aguera y Arcas, AISTATS 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedsim.algorithms import local, local_fused, objectives
from fedsim.algorithms.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.algorithms.fedavg_rounds import iterations
from fedsim.arrays import Array, Arrays
from fedsim.participation import Arrived
from fedsim.protocols import (
    Backend,
    BatchSize,
    Job,
    JobOfKernel,
    Kernel,
    ManyRounds,
    ProblemLike,
    Replies,
    Rng,
    Visitors,
)
from fedsim.schedules import StepSize


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
    | eta_g  | `server_step` | what multiplies the average                                                 |
    | mu     | `momentum`    | of the local steps; v is zero at every round's start                        |
    | lambda | `weight_decay`| pull of the local steps to zero                                             |
    | f_i    | `objective`   | "mean": the mean loss, a_i = n_i over the arrived; "scaled": p_i N f_i, 1/M |

    Wire: up Delta_i (d), down x (d). Memory: none. Participation: uniform(M) in the paper. Over gossip
    it sends y: x_i <- x_i + eta_g (sum_j W_ij y_j - x_i).

    Differs from paper: by default the average is by n_i, the paper's 1/M where all have equally much data (E2).
    Its local steps have neither momentum nor weight decay: both are zero unless set.

    What a code such as (E2) stands for: `fedsim explain E2`.
    """

    step_size: StepSize
    local_steps: int = 1
    batch_size: Any = None
    server_step: float = 1.0
    objective: str = "mean"
    momentum: float = 0.0
    weight_decay: float = 0.0

    batched = True
    sampler = False  # its iterate is an estimate
    partial_rounds = True

    def __post_init__(self) -> None:
        check_descent("FedAvg", self)
        local.check_inertia("FedAvg", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        scale = objectives.scale(self.objective, job, x.dtype)
        return {"delta": local.descend(job, x, scale, local.descent_of(self)) - x}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": state["theta"] + self.server_step * replies.mean("delta")}

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        """All local steps in one kernel where there is one for the problem."""
        descend = local_fused.descent(problem, backend, local.descent_of(self))
        if descend is None:
            return None

        def kernel(job: JobOfKernel, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
            x = message["theta"]
            return {"delta": descend(job, x, objectives.scale(self.objective, job, x.dtype))}, memory

        return kernel

    def many_rounds(self, problem: ProblemLike, backend: Backend) -> ManyRounds | None:
        return iterations(problem, backend, local.descent_of(self), self.objective, self.server_step)

    def weigh(self, arrived: Arrived) -> Array:
        return objectives.weigh("FedAvg", self.objective, arrived)

    def for_gossip(self) -> GossipFedAvg:
        return GossipFedAvg(self)


@dataclass(frozen=True)
class GossipFedAvg:
    """FedAvg without a server: neighbours hold other models, so whole models are sent and not differences.

        x_i <- x_i + eta_g (sum_j W_ij y_j - x_i)

    Wire: to each neighbour y_j (d).
    """

    settings: FedAvg

    batched = True
    sampler = False

    @property
    def step_size(self) -> StepSize:
        return self.settings.step_size

    @property
    def batch_size(self) -> Any:
        return self.settings.batch_size

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.settings.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        s, x = self.settings, message["theta"]
        scale = objectives.scale(s.objective, job, x.dtype)
        return {"theta": local.descend(job, x, scale, local.descent_of(s))}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        x = state["theta"]
        return {"theta": x + self.settings.server_step * (replies.mean("theta") - x)}


def distributed_sgd(step_size: StepSize, batch_size: BatchSize = None) -> FedAvg:
    """Distributed SGD (the private FedPAQ paper's equation 3): FedAvg with one local step.

    Participation: full() in the paper.
    """
    return FedAvg(step_size, 1, batch_size)


def check_descent(where: str, settings: Any) -> None:
    """The arguments that FedAvg, FedPAQ and SCAFFOLD have in common."""
    check_step_size(where, settings)
    check_count(where, settings, "local_steps")
    check_batch_size(where, settings.batch_size)
    check_number(where, settings, "server_step")
    objectives.check_objective(where, settings.objective)
