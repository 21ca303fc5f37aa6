"""The QLSD family's clients in one kernel: minibatch, gradient, memory, quantiser and bit count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.algorithms.arguments import rows_per_batch
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.problems import GaussianMean, LogisticRegression

Array = npt.NDArray[Any]


def compiled(algorithm: Any, problem: Any, backend: Any) -> Callable[..., tuple[Any, Any]] | None:
    """`send(job, theta, control, anchor, memory, rate)`; None where no kernel knows the problem or the codec.

    It gives what goes on the wire and what the client keeps; `kernels/qlsd.py` says what the terms are.
    """
    codec, batch_size = algorithm.codec, algorithm.batch_size
    known = type(problem) in (GaussianMean, LogisticRegression) and type(codec) in (Identity, QSGD, Elias)
    if backend.name != "cpu" or not known:
        return None
    from fedsim.kernels import qlsd, qlsd_logistic

    kernel: Any = qlsd.gaussian_messages if type(problem) is GaussianMean else qlsd_logistic.logistic_messages
    parts = (getattr(codec, name, None) for name in ("dtype", "levels", "code", "form"))
    wire = qlsd.wire_form(problem.dim, *parts)
    everybody = np.arange(problem.clients)
    rows = None if batch_size is None else rows_per_batch(batch_size, problem.sizes, everybody)
    tables: dict[Any, tuple[Array, ...]] = {}

    def send(
        job: Any, theta: Array, control: Any = None, anchor: Any = None, memory: Any = None, rate: float = 0.0
    ) -> tuple[Any, Any]:
        if theta.dtype not in tables:
            tables[theta.dtype] = _tables(problem, theta.dtype)
        key = None if rows is None else job._batch_key
        terms = (control, anchor, memory, rate)
        kept: list[Any] = []

        def quantise(values: Array, coins: Array) -> tuple[Array, Array]:
            out = kernel(values, *tables[values.dtype], job.client, rows, key, terms, (coins, *wire))
            kept.append(out[2])
            return out[0], out[1]

        return job.encode(_Kernel(quantise), theta), kept[0]

    return send


@dataclass(frozen=True)
class _Kernel:
    """A codec in whose place a kernel computes, compresses and counts."""

    quantise: Callable[[Array, Array], tuple[Array, Array]]


def _tables(problem: Any, dtype: Any) -> tuple[Array, ...]:
    """What a kernel reads; for Gaussian means also sums of rows, and of a diagonal precision the diagonal."""
    if isinstance(problem, LogisticRegression):
        return problem.x, problem.y, problem.offsets
    sums = np.add.reduceat(problem.x.astype(np.float64), problem.offsets[:-1], axis=0)
    precision = problem.precision
    diagonal = np.einsum("cii->ci", precision)
    if np.array_equal(precision, diagonal[:, :, None] * np.eye(problem.dim)):
        precision = diagonal
    return problem.x, problem.offsets, sums.astype(dtype), np.ascontiguousarray(precision, dtype)
