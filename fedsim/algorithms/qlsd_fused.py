"""The QLSD family's clients in one kernel: minibatch, gradient, memory, quantiser and bit count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedsim.algorithms.arguments import rows_per_batch
from fedsim.arrays import Array
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.problems import GaussianMean, LogisticRegression


def compiled(algorithm: Any, problem: Any, backend: Any) -> Callable[..., tuple[Any, Any]] | None:
    """`send(job, theta, control, anchor, memory, rate)`; None where no kernel knows the problem or the codec.

    It gives what goes on the wire and what the client keeps; `kernels/qlsd.py` says what the terms are.
    """
    kernel = _messages(problem, backend)
    if kernel is None or type(algorithm.codec) not in (Identity, QSGD, Elias):
        return None
    wire, rows, tables = (
        wire_of(algorithm, problem),
        rows_of(algorithm, problem),
        lru_cache(partial(tables_of, problem)),
    )

    def send(
        job: Any, theta: Array, control: Any = None, anchor: Any = None, memory: Any = None, rate: float = 0.0
    ) -> tuple[Any, Any]:
        key = None if rows is None else job._batch_key
        terms = (control, anchor, memory, rate)
        kept: list[Any] = []

        def quantise(values: Array, coins: Array) -> tuple[Array, Array]:
            out = kernel(values, *tables(values.dtype), job.client, rows, key, terms, (coins, *wire))
            kept.append(out[2])
            return out[0], out[1]

        return job.encode(_Kernel(quantise), theta), kept[0]

    return send


def _messages(problem: Any, backend: Any) -> Callable[..., Any] | None:
    """The backend's kernel for this problem; the CPU's are modules of their own, loaded when they are needed."""
    name = {GaussianMean: "gaussian_messages", LogisticRegression: "logistic_messages"}.get(type(problem))
    if name is None:
        return None
    if backend.name == "cpu":
        from fedsim.kernels import qlsd, qlsd_logistic

        return qlsd.gaussian_messages if type(problem) is GaussianMean else qlsd_logistic.logistic_messages
    found: Callable[..., Any] | None = getattr(backend, name, None)
    return found


def wire_of(algorithm: Any, problem: Any) -> tuple[Any, ...]:
    """The codec in the kernels' terms."""
    from fedsim.kernels import qlsd

    parts = (getattr(algorithm.codec, name, None) for name in ("dtype", "levels", "code", "form"))
    return qlsd.wire_form(problem.dim, *parts)


def rows_of(algorithm: Any, problem: Any) -> Array | None:
    """Everybody's minibatch size; None is all rows."""
    if algorithm.batch_size is None:
        return None
    return rows_per_batch(algorithm.batch_size, problem.sizes, np.arange(problem.clients))


@dataclass(frozen=True)
class _Kernel:
    """A codec in whose place a kernel computes, compresses and counts."""

    quantise: Callable[[Array, Array], tuple[Array, Array]]


def tables_of(problem: Any, dtype: Any) -> tuple[Array, ...]:
    """What a kernel reads; for Gaussian means also sums of rows, and of a diagonal precision the diagonal."""
    if isinstance(problem, LogisticRegression):
        return problem.x, problem.y, problem.offsets
    sums = np.add.reduceat(problem.x.astype(np.float64), problem.offsets[:-1], axis=0)
    precision = problem.precision
    diagonal = np.einsum("cii->ci", precision)
    if np.array_equal(precision, diagonal[:, :, None] * np.eye(problem.dim)):
        precision = diagonal
    return problem.x, problem.offsets, sums.astype(dtype), np.ascontiguousarray(precision, dtype)
