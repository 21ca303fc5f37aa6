"""Shared code of the QLSD family: the server's step, argument checks, and clients in one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from fedsim.algorithms.common.arguments import (
    check_batch_size,
    check_codec,
    check_step_size,
    check_word,
)
from fedsim.arrays import Array
from fedsim.checks import as_float_array
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.errors import InvalidInput
from fedsim.problems import GaussianMean, LogisticRegression
from fedsim.problems.shards import rows_per_batch, sums_by_client
from fedsim.protocols import (
    Backend,
    BatchSize,
    JobOfKernel,
    ProblemLike,
    Received,
    Replies,
    Rng,
    Wire,
    as_policy,
    as_problem,
)
from fedsim.schedules import step_at
from fedsim.text import short_repr, short_str


class Quantised(Protocol):
    """The fields that all algorithms of the family have."""

    @property
    def step_size(self) -> Any: ...
    @property
    def codec(self) -> Any: ...
    @property
    def batch_size(self) -> BatchSize: ...
    @property
    def weighting(self) -> str: ...
    @property
    def activity(self) -> Any: ...
    @property
    def empty(self) -> str: ...


def prior_precision(problem: ProblemLike, like: Array) -> Array:
    """Return the precision of the prior, which the server adds: (1,), so that it broadcasts at both ranks."""
    return np.array([as_problem(problem).share * problem.sizes.sum()], like.dtype)


def by_count(algorithm: Quantised, received: Received) -> Array:
    """Return the weights b / |A|, under which `replies.mean` is the sum over the received scaled up to all clients."""
    drawn = received.policy is not None and as_policy(received.policy).weighting == "multiplicity"
    if drawn and algorithm.weighting == "count" and np.ptp(received.p) > 1e-12:
        raise InvalidInput(
            f"{type(algorithm).__name__}(weighting='count') with with_replacement(), which draws by p_i, would count "
            "clients with much data more than others; choose uniform() or bernoulli(), or weighting='inverse' with the "
            "activity"
        )
    return np.asarray(received.clients / received.counts)


def estimate(algorithm: Quantised, replies: Replies) -> Array:
    """Return the estimate of the sum over all clients, given the messages received; zero if there are none."""
    if algorithm.weighting == "count":
        return np.asarray(replies.mean("gradient"))
    p = np.asarray(algorithm.activity, float)
    return np.asarray(replies.weighted("gradient", 1 / (p[replies.clients] if p.ndim else np.full(len(replies), p))))


def langevin(algorithm: Quantised, theta: Array, gradient: Array, replies: Replies, rng: Rng) -> Array:
    """Return theta after the server's step; with empty="hold" it stays where no message was received."""
    gamma = step_at(algorithm.step_size, replies.round, 1, 0)
    moved = theta - gamma * gradient + math.sqrt(2 * gamma) * rng.normal(theta.shape[-1], theta.dtype)
    return np.where(np.equal(replies.count, 0), theta, moved) if algorithm.empty == "hold" else moved


def check_arguments(where: str, algorithm: Quantised) -> None:
    """Check the arguments that do not depend on the problem."""
    check_step_size(where, algorithm)
    check_batch_size(where, algorithm.batch_size)
    if isinstance(algorithm.codec, list):
        object.__setattr__(algorithm, "codec", tuple(algorithm.codec))
    for codec in algorithm.codec if isinstance(algorithm.codec, tuple) else (algorithm.codec,):
        check_codec(where, codec)
    check_word(where, algorithm, "empty", "noise", "hold")
    check_word(where, algorithm, "weighting", "count", "inverse")
    activity = algorithm.activity
    if (activity is None) == (algorithm.weighting == "inverse"):
        raise InvalidInput(
            f"{where}(weighting={short_repr(algorithm.weighting)}, activity={short_str(activity)}): 'inverse' divides "
            "by it, 'count' ignores it; give both or neither, such as weighting='inverse', activity=0.5"
        )
    if activity is not None:
        p = as_float_array(activity)
        if p is None or p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            raise InvalidInput(
                f"{where}(activity={short_str(activity)}): probabilities in (0, 1], one or one per client"
            )
        object.__setattr__(algorithm, "activity", float(p) if p.ndim == 0 else tuple(p.tolist()))


def check_population(where: str, algorithm: Quantised, problem: ProblemLike) -> None:
    """Check that lists have one entry per client."""
    for name, values in (("codecs", algorithm.codec), ("activities", algorithm.activity)):
        if isinstance(values, tuple) and len(values) != problem.clients:
            raise InvalidInput(
                f"{where}: {len(values)} {name} for {problem.clients} clients; give one, or one per client"
            )


def compiled(algorithm: Quantised, problem: ProblemLike, backend: Backend) -> Callable[..., tuple[Any, Any]] | None:
    """Return `send(job, theta, control, anchor, memory, rate)`; None where no kernel has the problem or the codec.

    It computes minibatch, gradient, memory, quantiser and bit count in one kernel, and returns the message and the
    client's new memory; `kernels/reference/qlsd.py` documents the terms.
    """
    if not has_kernel(problem) or type(algorithm.codec) not in (Identity, QSGD, Elias):
        return None
    kernel: Callable[..., tuple[Array, Array, Array]] = (
        backend.gaussian_messages if type(problem) is GaussianMean else backend.logistic_messages
    )
    wire, rows = wire_of(algorithm, problem, backend), rows_of(algorithm, problem)
    tables = lru_cache(partial(tables_of, problem))

    def send(
        job: JobOfKernel,
        theta: Array,
        control: Array | None = None,
        anchor: Array | None = None,
        memory: Array | None = None,
        rate: float = 0.0,
    ) -> tuple[Any, Any]:
        key = None if rows is None else job.rows_key
        terms = (control, anchor, memory, rate)
        memories: list[Any] = []

        def quantise(values: Array, coins: Array) -> tuple[Array, Array]:
            out = kernel(values, *tables(values.dtype), job.client, rows, key, terms, (coins, *wire))
            memories.append(out[2])
            return out[0], out[1]

        return job.encode_by(quantise, theta), memories[0]

    return send


def has_kernel(problem: ProblemLike) -> TypeGuard[GaussianMean | LogisticRegression]:
    """Return True for the two problems that have kernels, subclasses excluded."""
    return type(problem) in (GaussianMean, LogisticRegression)


def wire_of(algorithm: Quantised, problem: ProblemLike, backend: Backend) -> Wire:
    """Return the codec in the kernels' terms."""
    parts = (getattr(algorithm.codec, name, None) for name in ("dtype", "levels", "code", "form"))
    return backend.wire_form(problem.dim, *parts)


def rows_of(algorithm: Quantised, problem: ProblemLike) -> Array | None:
    """Return each client's minibatch size; None: all rows."""
    if algorithm.batch_size is None:
        return None
    return rows_per_batch(algorithm.batch_size, problem.sizes, np.arange(problem.clients))


def tables_of(problem: GaussianMean | LogisticRegression, dtype: npt.DTypeLike) -> tuple[Array, ...]:
    """Return the arrays that a kernel reads; a diagonal precision is cut to its diagonal."""
    if isinstance(problem, LogisticRegression):
        return problem.x, problem.y, problem.offsets
    sums = sums_by_client(problem.x, problem.offsets)
    precision = problem.precision
    diagonal = np.einsum("cii->ci", precision)
    if np.array_equal(precision, diagonal[:, :, None] * np.eye(problem.dim)):
        precision = diagonal
    return problem.x, problem.offsets, sums.astype(dtype), np.ascontiguousarray(precision, dtype)
