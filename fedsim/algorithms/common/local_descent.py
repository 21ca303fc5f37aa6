"""What the FedAvg family minimises, sum_i p_i f_i of mean losses f_i, and the two ways of averaging towards it.

"mean"    clients descend f_i, the server averages by n_i over the arrived (1/M for equal sizes)
"scaled"  clients descend p_i N f_i, the server averages with 1/M, as the papers' analyses have it

Local gradient descent with the terms that the FedAvg family adds: momentum, weight decay, a pull, uneven work.

v <- mu v + grad f_i(y) + lambda y + extra(y);   y <- y - eta v                  (v = 0 at every round's start)

Compiled local descent for the algorithms of the FedAvg family: all steps of a job in one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedsim.algorithms.common.arguments import check_count, check_number, rows_per_batch
from fedsim.arrays import Array
from fedsim.checks import check_choice, check_int
from fedsim.errors import InvalidInput
from fedsim.participation import Received
from fedsim.problems.linear import LinearRegression
from fedsim.problems.logistic import LogisticRegression
from fedsim.problems.neural_network import NeuralNetwork
from fedsim.problems.softmax import SoftmaxRegression
from fedsim.protocols import Backend, BatchSize, Job, ProblemLike, Visitors, as_policy
from fedsim.schedules import StepSize, steps_of


class Weighed(Protocol):
    """What a job, or many of them, must say of its client: numbers, or (jobs, 1)."""

    @property
    def size(self) -> Any: ...
    @property
    def weight(self) -> Any: ...
    @property
    def clients(self) -> int: ...


def check_objective(where: str, objective: str) -> None:
    check_choice(f"{where}(objective={{!r}})", objective, ("mean", "scaled"))


def scale(objective: str, job: Weighed, dtype: np.dtype[Any]) -> Array:
    """What makes a summed loss's gradient that of the client's objective: 1 / n_i, or p_i N / n_i."""
    one = 1 / np.asarray(job.size, dtype)
    return np.asarray(one * job.weight * dtype.type(job.clients) if objective == "scaled" else one)


def weigh(where: str, objective: str, arrived: Received) -> Array:
    """The server's weights: the policy's own, but a plain uniform() averages by n_i."""
    if objective == "scaled":
        return equally(where, arrived)
    return policy_weights(arrived, arrived.normalised(arrived.p * arrived.multiplicity))


def equally(where: str, arrived: Received) -> Array:
    """1/M over the arrived, which already carry their p_i in what they descend."""
    if as_policy(arrived.policy).weighting == "multiplicity":
        raise InvalidInput(
            f"{where}(objective='scaled') with with_replacement(), which draws by p_i, would count p_i twice; "
            "choose objective='mean' or uniform()"
        )
    return np.asarray(1.0 / arrived.counts)


def policy_weights(arrived: Received, unsaid: Array) -> Array:
    """The policy's weights, or `unsaid` where it is a uniform() that does not say how to weigh."""
    policy = as_policy(arrived.policy)
    if arrived.policy is None or policy.weighting is None:
        return unsaid
    return np.asarray(arrived.weights if policy.weigh is None else policy.weigh(arrived))


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
    steps = tuple(check_int(f"{where}(local_steps={{}})", count) for count in given)
    object.__setattr__(algorithm, "local_steps", steps)


def check_everybody(where: str, local_steps: Any, problem: ProblemLike) -> None:
    """A list of local steps must be as long as there are clients."""
    if np.ndim(local_steps) and len(local_steps) != problem.clients:
        given = f"{where}: {len(local_steps)} numbers of local steps for {problem.clients} clients"
        raise InvalidInput(f"{given}; give one, or one per client")


class Minibatched(Protocol):
    """What the kernels look at of a round's jobs."""

    @property
    def client(self) -> Array: ...
    @property
    def round(self) -> int: ...
    @property
    def rows_key(self) -> Array: ...


Descend = Callable[[Minibatched, Array, Array], Array]  # job, x (jobs, d) and scale (jobs, 1) to y - x (jobs, d)
Kernel = Callable[[Array, Minibatched, Array, Array, Array, Array], None]  # x, job, sizes, counts, eta, delta


def descent(problem: ProblemLike, backend: Backend, how: Descent) -> Descend | None:
    """How far `local.descend` comes by plain steps on small minibatches; None where there is no kernel for them."""
    if backend.name != "cpu" or how.momentum or how.weight_decay or how.batch_size is None or np.ndim(how.local_steps):
        return None
    rows = rows_per_batch(how.batch_size, problem.sizes, np.arange(problem.clients))
    kernel = _kernel(problem, int(rows.max()))
    if kernel is None:
        return None

    def run(job: Minibatched, x: Array, scale: Array) -> Array:
        steps = np.array(steps_of(how.step_size, job.round, int(how.local_steps)), scale.dtype)
        delta = np.empty_like(x)
        kernel(x, job, problem.sizes[job.client], rows[job.client], steps[:, None] * scale[:, 0], delta)
        return delta

    return run


def _kernel(problem: ProblemLike, most: int) -> Kernel | None:
    """Of steps `eta` (steps, jobs) on minibatches of at most `most` rows."""
    if type(problem) is LinearRegression:
        return _linear(problem, False, 1 / problem.noise_variance)
    if type(problem) is LogisticRegression:
        return _linear(problem, True, 1.0)
    if type(problem) is SoftmaxRegression and problem.bias:
        return _softmax(problem, most)
    if type(problem) is NeuralNetwork:
        return _network(problem, problem.layers, most)
    return None


def _linear(problem: LinearRegression | LogisticRegression, logistic: bool, precision: float) -> Kernel:
    from fedsim.kernels.cpu.descent import descend_regression

    def run(x: Array, job: Minibatched, sizes: Array, counts: Array, eta: Array, delta: Array) -> None:
        cast = x.dtype.type
        descend_regression(
            x, problem.x, problem.y, problem.offsets, job.client, job.rows_key, sizes, counts,
            logistic, cast(precision), cast(problem.share), (sizes / counts).astype(x.dtype), eta, delta,
        )  # fmt: skip

    return run


def _softmax(problem: SoftmaxRegression, most: int) -> Kernel | None:
    """A network without hidden layers; float32 has a kernel of its own (which runs have it is not known yet here)."""
    from fedsim.kernels.cpu.descent import descend_softmax_float32

    network = _network(problem, np.array([problem.features, problem.classes]), most)
    if network is None:
        return None

    def run(x: Array, job: Minibatched, sizes: Array, counts: Array, eta: Array, delta: Array) -> None:
        if x.dtype != np.float32:
            network(x, job, sizes, counts, eta, delta)
        else:
            descend_softmax_float32(
                x, problem.x, problem.y, problem.offsets, job.client, job.rows_key, sizes, counts, problem.classes,
                problem.bias, *_columns(problem, x), *_factors(problem, x, sizes, counts), eta, delta,
            )  # fmt: skip

    return run


def _network(problem: SoftmaxRegression | NeuralNetwork, layers: Array, most: int) -> Kernel | None:
    from fedsim.kernels.cpu.classification import TILE
    from fedsim.kernels.cpu.descent import descend_network

    if most > TILE:
        return None

    def run(x: Array, job: Minibatched, sizes: Array, counts: Array, eta: Array, delta: Array) -> None:
        descend_network(
            x, problem.x, problem.y, problem.offsets, job.client, job.rows_key, sizes, counts, layers,
            *_columns(problem, x), *_factors(problem, x, sizes, counts), eta, delta,
        )  # fmt: skip

    return run


def _columns(problem: SoftmaxRegression | NeuralNetwork, x: Array) -> list[Array]:
    """Scale and shift of the rows; empty where there are none."""
    return [np.zeros(0, x.dtype) if c is None else c.astype(x.dtype) for c in (problem.scale, problem.shift)]


def _factors(problem: SoftmaxRegression | NeuralNetwork, x: Array, sizes: Array, counts: Array) -> tuple[Array, Array]:
    """By job: what multiplies theta in the prior's slope of a minibatch, and what multiplies the minibatch's slope."""
    return (x.dtype.type(problem.share) * counts).astype(x.dtype), (sizes / counts).astype(x.dtype)
