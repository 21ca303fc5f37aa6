"""What FedAdam, FedYogi and FedAdagrad have in common: the server's adaptive step on the clients' mean update.

m <- beta1 m + (1 - beta1) Delta;   v <- each one's own rule;   x <- x + eta_g m / (sqrt(v) + tau)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from fedsim.algorithms import local, objectives
from fedsim.algorithms.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.protocols import Job, Replies


class Adaptive(local.Descending, Protocol):
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
    scale = objectives.scale(algorithm.objective, job, x.dtype)
    return local.descend(job, x, scale, local.descent_of(algorithm)) - x


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
    local.check_inertia(where, algorithm)
    objectives.check_objective(where, algorithm.objective)
