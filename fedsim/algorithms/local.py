"""Local gradient descent with the terms that the FedAvg family adds: momentum, weight decay, a pull, uneven work.

v <- mu v + grad f_i(y) + lambda y + extra(y);   y <- y - eta v                  (v = 0 at every round's start)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsim.algorithms.arguments import check_count, check_number
from fedsim.arrays import Array
from fedsim.errors import InvalidInput, whole
from fedsim.protocols import BatchSize, Job, ProblemLike, Visitors
from fedsim.schedules import StepSize, steps_of


@dataclass(frozen=True)
class Descent:
    """How a client descends: what `descend` needs of an algorithm's arguments."""

    step_size: StepSize
    local_steps: Any  # a count, or one per client
    batch_size: Any = None
    momentum: float = 0.0
    weight_decay: float = 0.0


class Descending(Protocol):
    """An algorithm whose clients descend so."""

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
    """How its clients descend."""
    a = algorithm
    return Descent(a.step_size, a.local_steps, a.batch_size, a.momentum, a.weight_decay)


def descend(
    job: Job, x: Array, scale: Array, how: Descent, extra: Callable[[Array], Array] | None = None, pace: Any = 1.0
) -> Array:
    """y after the client's local steps from x; `scale` makes a summed gradient that of its objective, and `pace`
    multiplies its step size."""
    plain = not (how.momentum or how.weight_decay or extra)
    y = x
    velocity: Array | float = 0.0
    for k, eta in enumerate(steps_of(how.step_size, job.round, most(how.local_steps))):
        gradient = job.gradient(y, k, how.batch_size)
        if plain:
            gradient *= eta * scale * pace  # in place, as below: fresh memory would take longer than the arithmetic
            moved = np.subtract(y, gradient, out=gradient)
        else:
            gradient = scale * gradient + how.weight_decay * y
            gradient = gradient if extra is None else gradient + extra(y)
            velocity = how.momentum * velocity + gradient
            moved = y - eta * pace * velocity
        y = moved if np.ndim(how.local_steps) == 0 else np.where(at_work(job, how.local_steps, k), moved, y)
    return y


def reach(job: Job, like: Array, how: Descent) -> Array:
    """How far y would have come on a gradient of -1 throughout: (1,) or (jobs, 1), FedNova's eta |a_i|_1."""
    total = np.zeros_like(like[..., :1])
    velocity = 0.0
    for k, eta in enumerate(steps_of(how.step_size, job.round, most(how.local_steps))):
        velocity = how.momentum * velocity + 1
        total = total + np.where(at_work(job, how.local_steps, k), total.dtype.type(eta * velocity), 0)
    return total


def most(local_steps: Any) -> int:
    """The largest number of local steps that a client takes."""
    return int(np.max(local_steps))


def at_work(job: Job, local_steps: Any, k: int) -> Any:
    """Whether the client still takes step k: a bool, or (jobs, 1)."""
    if np.ndim(local_steps) == 0:
        return True
    busy = k < np.asarray(local_steps)[job.client]
    return busy[:, None] if np.ndim(busy) else busy


def work(job: Visitors, local_steps: Any) -> Any:
    """Local steps of a visit: of whoever `job` names, or the most that anybody takes."""
    if np.ndim(local_steps) == 0 or job is None:
        return most(local_steps)
    return np.asarray(local_steps)[job.client]


# --- Arguments ----------------------------------------------------------------------------------------


def check_inertia(where: str, algorithm: object) -> None:
    """Momentum below 1 and a weight decay that is no growth."""
    check_number(where, algorithm, "momentum", 0, np.nextafter(1.0, 0.0))
    check_number(where, algorithm, "weight_decay")


class LocalSteps(Protocol):
    """An algorithm with a number of local steps, or one for each client."""

    @property
    def local_steps(self) -> Any: ...


def check_steps(where: str, algorithm: LocalSteps) -> None:
    """`local_steps` as a count, or a tuple of one per client."""
    given = algorithm.local_steps
    if not isinstance(given, tuple | list) and not (isinstance(given, np.ndarray) and given.ndim):
        check_count(where, algorithm, "local_steps")
        return
    steps = tuple(whole(f"{where}(local_steps={{}})", count) for count in given)
    object.__setattr__(algorithm, "local_steps", steps)


def check_everybody(where: str, local_steps: Any, problem: ProblemLike) -> None:
    """A list of local steps must be as long as there are clients."""
    if np.ndim(local_steps) and len(local_steps) != problem.clients:
        given = f"{where}: {len(local_steps)} numbers of local steps for {problem.clients} clients"
        raise InvalidInput(f"{given}; give one, or one per client")
