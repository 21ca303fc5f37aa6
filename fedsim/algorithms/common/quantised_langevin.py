"""The QLSD family's clients in one kernel: minibatch, gradient, memory, quantiser and bit count."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from fedsim.algorithms.common.arguments import rows_per_batch
from fedsim.arrays import Array
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.problems import GaussianMean, LogisticRegression
from fedsim.protocols import Backend, BatchSize, JobOfKernel, ProblemLike, Wire


class Quantised(Protocol):
    """What the family's algorithms have in common: QLSD's fields, without what only some of them add."""

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


def compiled(algorithm: Quantised, problem: ProblemLike, backend: Backend) -> Callable[..., tuple[Any, Any]] | None:
    """`send(job, theta, control, anchor, memory, rate)`; None where no kernel knows the problem or the codec.

    It gives what goes on the wire and what the client keeps; `kernels/qlsd.py` says what the terms are.
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
        kept: list[Any] = []

        def quantise(values: Array, coins: Array) -> tuple[Array, Array]:
            out = kernel(values, *tables(values.dtype), job.client, rows, key, terms, (coins, *wire))
            kept.append(out[2])
            return out[0], out[1]

        return job.encode_by(quantise, theta), kept[0]

    return send


def has_kernel(problem: ProblemLike) -> TypeGuard[GaussianMean | LogisticRegression]:
    """Whether it is one of the two problems, and nobody's subclass, that the kernels know."""
    return type(problem) in (GaussianMean, LogisticRegression)


def wire_of(algorithm: Quantised, problem: ProblemLike, backend: Backend) -> Wire:
    """The codec in the kernels' terms."""
    parts = (getattr(algorithm.codec, name, None) for name in ("dtype", "levels", "code", "form"))
    return backend.wire_form(problem.dim, *parts)


def rows_of(algorithm: Quantised, problem: ProblemLike) -> Array | None:
    """Everybody's minibatch size; None is all rows."""
    if algorithm.batch_size is None:
        return None
    return rows_per_batch(algorithm.batch_size, problem.sizes, np.arange(problem.clients))


def tables_of(problem: GaussianMean | LogisticRegression, dtype: npt.DTypeLike) -> tuple[Array, ...]:
    """What a kernel reads; for Gaussian means also sums of rows, and of a diagonal precision the diagonal."""
    if isinstance(problem, LogisticRegression):
        return problem.x, problem.y, problem.offsets
    sums = np.add.reduceat(problem.x.astype(np.float64), problem.offsets[:-1], axis=0)
    precision = problem.precision
    diagonal = np.einsum("cii->ci", precision)
    if np.array_equal(precision, diagonal[:, :, None] * np.eye(problem.dim)):
        precision = diagonal
    return problem.x, problem.offsets, sums.astype(dtype), np.ascontiguousarray(precision, dtype)
