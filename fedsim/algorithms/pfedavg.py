"""P-FedAvg: performative federated averaging (Jin, Yin, Chen, Sun, Zhang, Liu and Liu 2023, sections 2 and 3)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.protocols import Job, ProblemLike, Reacts, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at


@dataclass(frozen=True)
class PFedAvg:
    """P-FedAvg: performative federated averaging (Jin, Yin, Chen, Sun, Zhang, Liu and Liu 2023, sections 2 and 3).

        every t: Z ~ D_i(theta_i), theta_i <- theta_i - eta_t grad l(theta_i; Z)
        every E: theta <- sum_i p_i theta_i                     full participation
                 theta <- (1/K) sum over K draws of theta_k     scheme I, `with_replacement(K)`
                 theta <- sum_k p_k (N/K) theta_k               scheme II, `uniform(K)`

    | symbol | argument      | meaning                                                                   |
    |--------|---------------|---------------------------------------------------------------------------|
    | eta_t  | `step_size`   | a number, or a schedule of the global step index t = 0, 1, ...            |
    | E      | `local_steps` | steps between two synchronisations                                        |
    |        | `batch_size`  | fresh draws (or rows) per step; None: one draw, or all rows               |
    |        | `objective`   | "mean", or "scaled": local gradients times p_i N and a plain 1/K (D3)     |

    The data depend on the client's current local model, not on the last broadcast (D4): the problem must be
    reactive. Scheme II's weights do not sum to one where the p_i differ (D2). Wire: up theta_i (d), down theta (d).
    Memory: none. Participation: full(), with_replacement(K) or uniform(K) in the paper.

    Differs from paper: only the selected clients receive the broadcast, which gives the same law; `broadcast_to="all"`
    charges the paper's cost (D13).

    `fedsim explain D3` explains a code such as (D3).
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    batch_size: Any = None
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_step_size("PFedAvg", self)
        check_count("PFedAvg", self, "local_steps")
        check_batch_size("PFedAvg", self.batch_size)
        local_descent.check_objective("PFedAvg", self.objective)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        if not isinstance(problem, Reacts):
            raise InvalidInput(
                f"PFedAvg on {type(problem).__name__}, whose data do not depend on the model; use FedAvg, or a "
                "reactive problem such as PerformativeMean"
            )
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        theta = message["theta"]
        scale = local_descent.scale(self.objective, job, theta.dtype)
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            theta = theta - eta * scale * job.gradient(theta, k, self.batch_size)
        return {"theta": theta}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}

    def weigh(self, received: Received) -> Array:
        if self.objective == "scaled":
            return local_descent.equally("PFedAvg", received)
        scheme_two = received.p * received.clients * received.normalised(received.multiplicity.astype(float))
        return local_descent.policy_weights(received, scheme_two)
