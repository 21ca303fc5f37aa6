"""What FedAdam, FedYogi and FedAdagrad have in common: the server's adaptive step on the clients' mean update.

m <- beta1 m + (1 - beta1) Delta;   v <- each one's own rule;   x <- x + eta_g m / (sqrt(v) + tau)

FedAdam (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

FedYogi (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize


class Adaptive(local_descent.Descending, Protocol):
    """What FedAdagrad, FedAdam and FedYogi have in common."""

    @property
    def objective(self) -> str: ...
    @property
    def server_step(self) -> float: ...
    @property
    def beta1(self) -> float: ...
    @property
    def tau(self) -> float: ...


def start(initial: Array, tau: float) -> Arrays:
    """m = 0 and v = tau^2 before the first round."""
    return {"theta": initial, "m": np.zeros_like(initial), "v": np.full_like(initial, tau**2)}


def update(job: Job, x: Array, algorithm: Adaptive) -> Array:
    """Delta_i: FedAvg's local steps from x."""
    scale = local_descent.scale(algorithm.objective, job, x.dtype)
    return local_descent.descend(job, x, scale, local_descent.descent_of(algorithm)) - x


def step(
    algorithm: Adaptive, state: Arrays, replies: Replies, second_moment: Callable[[Array, Array], Array]
) -> Arrays:
    """The server's step; where nobody arrived there is no Delta, and nothing moves."""
    delta, nobody = replies.mean("delta"), np.equal(replies.count, 0)
    m = algorithm.beta1 * state["m"] + (1 - algorithm.beta1) * delta
    v = second_moment(state["v"], delta * delta)
    theta = state["theta"] + algorithm.server_step * m / (np.sqrt(v) + algorithm.tau)
    return {name: np.where(nobody, state[name], new) for name, new in (("theta", theta), ("m", m), ("v", v))}


def check(where: str, algorithm: Adaptive) -> None:
    """The arguments that all three have."""
    check_step_size(where, algorithm)
    check_count(where, algorithm, "local_steps")
    check_batch_size(where, algorithm.batch_size)
    check_number(where, algorithm, "server_step")
    check_number(where, algorithm, "beta1", 0, math.nextafter(1.0, 0.0))
    check_number(where, algorithm, "tau", 1e-30)
    local_descent.check_inertia(where, algorithm)
    local_descent.check_objective(where, algorithm.objective)


@dataclass(frozen=True)
class FedAdam:
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
    | beta1  | `beta1`        | memory of the first moment                                                  |
    | beta2  | `beta2`        | memory of the second moment                                                 |
    | tau    | `tau`          | how adaptive: the smaller the more; v starts at tau^2                       |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": the mean loss, a_i = n_i over the arrived; "scaled": p_i N f_i, 1/M |

    No bias correction, as in the paper. Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d).
    Participation: uniform(M) in the paper.

    Differs from paper: the average is by n_i, the paper's 1/M where all have equally much data. A round to which nobody
    comes changes nothing.
    """

    step_size: StepSize
    local_steps: int = 1
    server_step: float = 0.1
    batch_size: Any = None
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check("FedAdam", self)
        check_number("FedAdam", self, "beta2", 0, 1)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return start(initial, self.tau)

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"delta": update(job, message["theta"], self)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return step(self, state, replies, lambda v, squared: self.beta2 * v + (1 - self.beta2) * squared)

    def weigh(self, arrived: Received) -> Array:
        return local_descent.weigh("FedAdam", self.objective, arrived)


@dataclass(frozen=True)
class FedYogi:
    """FedYogi (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

    FedAvg's clients, and at the server Yogi on the mean of their updates.

        Delta = sum_i a_i Delta_i;   m <- beta1 m + (1 - beta1) Delta
        v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)
        x <- x + eta_g m / (sqrt(v) + tau)

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | of the local steps: a number, or a schedule of the global local-step index  |
    | E      | `local_steps`  | steps between two synchronisations                                          |
    | eta_g  | `server_step`  | the server's step size                                                      |
    | beta1  | `beta1`        | memory of the first moment                                                  |
    | beta2  | `beta2`        | memory of the second moment                                                 |
    | tau    | `tau`          | how adaptive: the smaller the more; v starts at tau^2                       |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": the mean loss, a_i = n_i over the arrived; "scaled": p_i N f_i, 1/M |

    No bias correction, as in the paper. Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d).
    Participation: uniform(M) in the paper.

    Differs from paper: the average is by n_i, the paper's 1/M where all have equally much data. A round to which nobody
    comes changes nothing.
    """

    step_size: StepSize
    local_steps: int = 1
    server_step: float = 0.1
    batch_size: Any = None
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check("FedYogi", self)
        check_number("FedYogi", self, "beta2", 0, 1)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return start(initial, self.tau)

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"delta": update(job, message["theta"], self)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return step(self, state, replies, lambda v, squared: v - (1 - self.beta2) * squared * np.sign(v - squared))

    def weigh(self, arrived: Received) -> Array:
        return local_descent.weigh("FedYogi", self.objective, arrived)


@dataclass(frozen=True)
class FedAdagrad:
    """FedAdagrad (Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar and McMahan, ICLR 2021; Algorithm 2).

    FedAvg's clients, and at the server Adagrad on the mean of their updates.

        Delta = sum_i a_i Delta_i;   m <- beta1 m + (1 - beta1) Delta
        v <- v + Delta^2
        x <- x + eta_g m / (sqrt(v) + tau)

    | symbol | argument       | meaning                                                                     |
    |--------|----------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`    | of the local steps: a number, or a schedule of the global local-step index  |
    | E      | `local_steps`  | steps between two synchronisations                                          |
    | eta_g  | `server_step`  | the server's step size                                                      |
    | beta1  | `beta1`        | memory of the first moment                                                  |
    | tau    | `tau`          | how adaptive: the smaller the more; v starts at tau^2                       |
    | b      | `batch_size`   | rows per gradient, drawn afresh without replacement; None: all of them      |
    |        | `momentum`     | of the local steps, as in FedAvg                                            |
    |        | `weight_decay` | likewise                                                                    |
    | f_i    | `objective`    | "mean": the mean loss, a_i = n_i over the arrived; "scaled": p_i N f_i, 1/M |

    No bias correction, as in the paper. Wire: up Delta_i (d), down x (d). Memory: the server's m and v (2d).
    Participation: uniform(M) in the paper.

    Differs from paper: the average is by n_i, the paper's 1/M where all have equally much data. A round to which nobody
    comes changes nothing.
    """

    step_size: StepSize
    local_steps: int = 1
    server_step: float = 0.1
    batch_size: Any = None
    beta1: float = 0.0
    tau: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    objective: str = "mean"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check("FedAdagrad", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return start(initial, self.tau)

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        return {"delta": update(job, message["theta"], self)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return step(self, state, replies, lambda v, squared: v + squared)

    def weigh(self, arrived: Received) -> Array:
        return local_descent.weigh("FedAdagrad", self.objective, arrived)
