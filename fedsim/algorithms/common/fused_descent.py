"""Local gradient descent of the FedAvg family, compiled: all steps of a job in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from fedsim.algorithms.common.local_descent import Descent
from fedsim.arrays import Array
from fedsim.problems.linear import LinearRegression
from fedsim.problems.logistic import LogisticRegression
from fedsim.problems.neural_network import NeuralNetwork
from fedsim.problems.shards import rows_per_batch
from fedsim.problems.softmax import SoftmaxRegression
from fedsim.protocols import Backend, ProblemLike
from fedsim.schedules import steps_of


class Minibatched(Protocol):
    """The members of jobs that the kernels read."""

    @property
    def client(self) -> Array: ...
    @property
    def round(self) -> int: ...
    @property
    def rows_key(self) -> Array: ...


Descend = Callable[[Minibatched, Array, Array], Array]  # job, x (jobs, d) and scale (jobs, 1) to y - x (jobs, d)
Kernel = Callable[[Array, Minibatched, Array, Array, Array, Array], None]  # x, job, sizes, counts, eta, delta


def fused_descent(problem: ProblemLike, backend: Backend, how: Descent) -> Descend | None:
    """Return a compiled y - x of `descend`, for plain steps on small minibatches; None where no kernel serves."""
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
    """Return the kernel of steps `eta` (steps, jobs) on minibatches of at most `most` rows; None: there is none."""
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
    """Return the kernel of a network without hidden layers; float32 has its own, chosen when the dtype is known."""
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
    """Return scale and shift of the rows; empty where there are none."""
    return [np.zeros(0, x.dtype) if c is None else c.astype(x.dtype) for c in (problem.scale, problem.shift)]


def _factors(problem: SoftmaxRegression | NeuralNetwork, x: Array, sizes: Array, counts: Array) -> tuple[Array, Array]:
    """Return, by job, the factor of theta in a minibatch's prior, and the factor of the minibatch's gradient."""
    return (x.dtype.type(problem.share) * counts).astype(x.dtype), (sizes / counts).astype(x.dtype)
