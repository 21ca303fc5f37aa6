"""FedPAQ (Reisizadeh, Mokhtari, Hassani, Jadbabaie and Pedarsani, AISTATS 2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_codec
from fedsim.algorithms.fedavg import check_descent
from fedsim.arrays import Array, Arrays
from fedsim.codecs import QSGD
from fedsim.errors import InvalidInput
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class FedPAQ:
    """FedPAQ (Reisizadeh, Mokhtari, Hassani, Jadbabaie and Pedarsani, AISTATS 2020).

    FedAvg whose clients send a quantised difference. Equations are those of the private FedPAQ paper.

        y <- x, then E times  y <- y - eta grad f_i(y);   Delta_i = Q(y - x)                       (4), (6)
        server: x <- x + eta_g sum_i a_i Delta_i

    | symbol | argument      | meaning                                                                       |
    |--------|---------------|-------------------------------------------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the global local-step index                        |
    | E      | `local_steps` | steps between two synchronisations                                            |
    | b      | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them        |
    | eta_g  | `server_step` | the server's step size                                                        |
    | f_i    | `objective`   | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M      |
    | Q      | `codec`       | unbiased quantiser; `Identity()` gives FedAvg, and E = 1 distributed SGD      |

    Wire: up Q(Delta_i) (QSGD with s levels: 32 + d ceil(log2(2s + 1)) bits), down
    x (d). Memory: none. Participation: uniform(M) in the paper.

    Differs from paper: by default the average is by n_i, the paper's 1/M where all clients have equally many rows (E2);
    each level takes an integer number of bits (E11).

    `fedsim explain E2` explains a code such as (E2).
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    batch_size: Any = None
    server_step: float = 1.0
    objective: str = "mean"
    codec: Any = field(default=QSGD(10))

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_descent("FedPAQ", self)
        check_codec("FedPAQ", self.codec)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        x = message["theta"]
        scale = local_descent.scale(self.objective, job, x.dtype)
        delta = (
            local_descent.descend(
                job, x, scale, local_descent.Descent(self.step_size, self.local_steps, self.batch_size)
            )
            - x
        )
        return {"delta": job.encode(self.codec, delta)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": state["theta"] + self.server_step * replies.mean("delta")}

    def for_gossip(self, problem: ProblemLike, weights: Array) -> FedPAQ:
        raise InvalidInput(
            "FedPAQ: its codec encodes the difference to a model that neighbours do not have; gossip with FedAvg"
        )

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("FedPAQ", self.objective, received)
