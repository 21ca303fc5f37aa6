"""FedAdam, FedYogi and FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize


@dataclass(frozen=True)
class FedOpt:
    """Algorithm 2 of the paper, without the rule of the second moment v, which is all that its three forms differ in.

    client i: y <- x, then E times  y <- y - eta grad f_i(y);   Delta_i = y - x
    server:   Delta = sum_i a_i Delta_i;   m <- beta1 m + (1 - beta1) Delta;   v <- the form's rule
              x <- x + eta_g m / (sqrt(v) + tau)
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    server_step: float = 0.1
    batch_size: Any = None
    beta1: float = 0.9
    tau: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        where = type(self).__name__
        check_step_size(where, self)
        check_count(where, self, "local_steps")
        check_batch_size(where, self.batch_size)
        check_number(where, self, "server_step")
        check_number(where, self, "beta1", 0, math.nextafter(1.0, 0.0))
        check_number(where, self, "tau", 1e-30)
        local_descent.check_inertia(where, self)
        local_descent.check_objective(where, self.objective)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial, "m": np.zeros_like(initial), "v": np.full_like(initial, self.tau**2)}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        scale = local_descent.scale(self.objective, job, x.dtype)
        return {"delta": local_descent.descend(job, x, scale, local_descent.descent_of(self)) - x}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        delta, empty = replies.mean("delta"), np.equal(replies.count, 0)
        m = self.beta1 * state["m"] + (1 - self.beta1) * delta
        v = self.second_moment(state["v"], delta * delta)
        theta = state["theta"] + self.server_step * m / (np.sqrt(v) + self.tau)
        return {name: np.where(empty, state[name], new) for name, new in (("theta", theta), ("m", m), ("v", v))}

    def second_moment(self, v: Array, squared: Array) -> Array:
        """Return the new v, given Delta^2."""
        raise NotImplementedError

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh(type(self).__name__, self.objective, received)


@dataclass(frozen=True, kw_only=True)
class FedAdam(FedOpt):
    """FedAdam (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

    FedAvg's clients, and at the server Adam on the mean of their updates.

        Delta = sum_i a_i Delta_i;   m <- beta1 m + (1 - beta1) Delta
        v <- beta2 v + (1 - beta2) Delta^2
        x <- x + eta_g m / (sqrt(v) + tau)

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | of the local steps: a number, or a schedule of the global local-step index  |
    | E      | `local_steps`  | steps between two synchronisations                                          |
    | eta_g  | `server_step`  | the server's step size                                                      |
    | beta1  | `beta1`        | decay rate of the first moment                                              |
    | beta2  | `beta2`        | decay rate of the second moment                                             |
    | tau    | `tau`          | degree of adaptivity, the smaller the stronger; v starts at tau^2           |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    No bias correction, as in the paper. Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d).
    Participation: uniform(M) in the paper.

    Differs from paper: the average is by n_i, the paper's 1/M where all clients have equally many rows. A round without
    replies changes nothing.
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("FedAdam", self, "beta2", 0, 1)

    def second_moment(self, v: Array, squared: Array) -> Array:
        return self.beta2 * v + (1 - self.beta2) * squared


@dataclass(frozen=True, kw_only=True)
class FedYogi(FedOpt):
    """FedYogi (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

    FedAdam with another rule of the second moment.

        v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | of the local steps: a number, or a schedule of the global local-step index  |
    | E      | `local_steps`  | steps between two synchronisations                                          |
    | eta_g  | `server_step`  | the server's step size                                                      |
    | beta1  | `beta1`        | decay rate of the first moment                                              |
    | beta2  | `beta2`        | decay rate of the second moment                                             |
    | tau    | `tau`          | degree of adaptivity, the smaller the stronger; v starts at tau^2           |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d). Participation: uniform(M) in the paper.

    Differs from paper: as FedAdam does.
    """

    beta2: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("FedYogi", self, "beta2", 0, 1)

    def second_moment(self, v: Array, squared: Array) -> Array:
        return np.asarray(v - (1 - self.beta2) * squared * np.sign(v - squared))


@dataclass(frozen=True, kw_only=True)
class FedAdagrad(FedOpt):
    """FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

    FedAdam with another rule of the second moment, and beta1 = 0 by default.

        v <- v + Delta^2

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | of the local steps: a number, or a schedule of the global local-step index  |
    | E      | `local_steps`  | steps between two synchronisations                                          |
    | eta_g  | `server_step`  | the server's step size                                                      |
    | beta1  | `beta1`        | decay rate of the first moment                                              |
    | tau    | `tau`          | degree of adaptivity, the smaller the stronger; v starts at tau^2           |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": mean loss, a_i = n_i over the received; "scaled": p_i N f_i, 1/M    |

    Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d). Participation: uniform(M) in the paper.

    Differs from paper: as FedAdam does.
    """

    beta1: float = 0.0

    def second_moment(self, v: Array, squared: Array) -> Array:
        return v + squared
