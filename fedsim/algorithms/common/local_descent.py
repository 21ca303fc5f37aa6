"""Local gradient descent of the FedAvg family, its objectives, and the server's weights that go with them.

    v <- mu v + grad f_i(y) + lambda y + extra(y);   y <- y - eta v                  (v = 0 at every round's start)

The family minimises sum_i p_i f_i of mean losses f_i. `objective` chooses between two forms:

"mean"    clients descend f_i, the server averages by n_i over the received (1/M for equal sizes)
"scaled"  clients descend p_i N f_i, the server averages with 1/M, as in the papers' analyses
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsim.algorithms.common.arguments import check_count, check_number
from fedsim.arrays import Array
from fedsim.checks import check_choice, check_int
from fedsim.errors import InvalidInput
from fedsim.protocols import BatchSize, Job, ProblemLike, Received, Visitors, as_policy
from fedsim.schedules import StepSize, steps_of


class Weighed(Protocol):
    """The size and weight of a job's client: numbers, or (jobs, 1)."""

    @property
    def size(self) -> Any: ...
    @property
    def weight(self) -> Any: ...
    @property
    def clients(self) -> int: ...


def check_objective(where: str, objective: str) -> None:
    check_choice(f"{where}(objective={{!r}})", objective, ("mean", "scaled"))


def scale(objective: str, job: Weighed, dtype: np.dtype[Any]) -> Array:
    """Return the factor that makes a summed loss's gradient that of the objective: 1 / n_i, or p_i N / n_i."""
    one = 1 / np.asarray(job.size, dtype)
    return np.asarray(one * job.weight * dtype.type(job.clients) if objective == "scaled" else one)


def weigh(where: str, objective: str, received: Received) -> Array:
    """Return the server's weights: the policy's own, but a plain uniform() averages by n_i."""
    if objective == "scaled":
        return equally(where, received)
    return policy_weights(received, received.normalised(received.p * received.multiplicity))


def equally(where: str, received: Received) -> Array:
    """Return 1/M over the received: the p_i are in the clients' objectives already."""
    if as_policy(received.policy).weighting == "multiplicity":
        raise InvalidInput(
            f"{where}(objective='scaled') with with_replacement(), which draws by p_i, would count p_i twice; "
            "choose objective='mean' or uniform()"
        )
    return np.asarray(1.0 / received.counts)


def policy_weights(received: Received, default: Array) -> Array:
    """Return the policy's weights, or `default` where it is a uniform() without a weighting."""
    policy = as_policy(received.policy)
    if received.policy is None or policy.weighting is None:
        return default
    return np.asarray(received.weights if policy.weigh is None else policy.weigh(received))


@dataclass(frozen=True)
class Descent:
    """The arguments of an algorithm that `descend` reads."""

    step_size: StepSize
    local_steps: Any  # a count, or one per client
    batch_size: Any = None
    momentum: float = 0.0
    weight_decay: float = 0.0


class Descending(Protocol):
    """An algorithm with all arguments of `Descent`."""

    @property
    def step_size(self) -> StepSize: ...
    @property
    def local_steps(self) -> Any: ...
    @property
    def batch_size(self) -> BatchSize: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def descent_of(algorithm: Descending) -> Descent:
    """Return the arguments of its local descent."""
    a = algorithm
    return Descent(a.step_size, a.local_steps, a.batch_size, a.momentum, a.weight_decay)


def descend(
    job: Job, x: Array, scale: Array, how: Descent, extra: Callable[[Array], Array] | None = None, pace: Any = 1.0
) -> Array:
    """Return y after the client's local steps from x; see `scale`; `pace` multiplies the step size."""
    plain = not (how.momentum or how.weight_decay or extra)
    y = x
    velocity: Array | float = 0.0
    for k, eta in enumerate(steps_of(how.step_size, job.round, most(how.local_steps))):
        gradient = job.gradient(y, k, how.batch_size)
        if plain:
            gradient *= eta * scale * pace  # in place: allocating takes longer than the arithmetic
            moved = np.subtract(y, gradient, out=gradient)
        else:
            gradient = scale * gradient + how.weight_decay * y
            gradient = gradient if extra is None else gradient + extra(y)
            velocity = how.momentum * velocity + gradient
            moved = y - eta * pace * velocity
        y = moved if np.ndim(how.local_steps) == 0 else np.where(takes_step(job, how.local_steps, k), moved, y)
    return y


def step_sum(job: Job, like: Array, how: Descent) -> Array:
    """Return the sum of the coefficients of y's gradients, FedNova's eta |a_i|_1: (1,) or (jobs, 1)."""
    total = np.zeros_like(like[..., :1])
    velocity = 0.0
    for k, eta in enumerate(steps_of(how.step_size, job.round, most(how.local_steps))):
        velocity = how.momentum * velocity + 1
        total = total + np.where(takes_step(job, how.local_steps, k), total.dtype.type(eta * velocity), 0)
    return total


def most(local_steps: Any) -> int:
    """Return the largest number of local steps of a client."""
    return int(np.max(local_steps))


def takes_step(job: Job, local_steps: Any, k: int) -> Any:
    """Return True if the client takes step k: a bool, or (jobs, 1)."""
    if np.ndim(local_steps) == 0:
        return True
    busy = k < np.asarray(local_steps)[job.client]
    return busy[:, None] if np.ndim(busy) else busy


def work(job: Visitors, local_steps: Any) -> Any:
    """Return the local steps of each visit, or the largest number where no visit is given."""
    if np.ndim(local_steps) == 0 or job is None:
        return most(local_steps)
    return np.asarray(local_steps)[job.client]


def check_inertia(where: str, algorithm: object) -> None:
    """Check that momentum is below 1 and weight decay at least 0."""
    check_number(where, algorithm, "momentum", 0, np.nextafter(1.0, 0.0))
    check_number(where, algorithm, "weight_decay")


class LocalSteps(Protocol):
    """An algorithm with a number of local steps, or one for each client."""

    @property
    def local_steps(self) -> Any: ...


def check_steps(where: str, algorithm: LocalSteps) -> None:
    """Check `local_steps`, a count or one per client, and store the latter as a tuple."""
    given = algorithm.local_steps
    if not isinstance(given, tuple | list) and not (isinstance(given, np.ndarray) and given.ndim):
        check_count(where, algorithm, "local_steps")
        return
    steps = tuple(check_int(f"{where}(local_steps={{}})", count) for count in given)
    object.__setattr__(algorithm, "local_steps", steps)


def check_steps_of_clients(where: str, local_steps: Any, problem: ProblemLike) -> None:
    """Check that there is one number of local steps, or one per client."""
    if np.ndim(local_steps) and len(local_steps) != problem.clients:
        given = f"{where}: {len(local_steps)} numbers of local steps for {problem.clients} clients"
        raise InvalidInput(f"{given}; give one, or one per client")
