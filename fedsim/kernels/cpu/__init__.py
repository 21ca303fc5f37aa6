"""The default backend: Numba on the CPU. Each name is the compiled twin of the same name in `reference`."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS that compiled kernels call: loaded now, so that it can be held to one thread

from fedsim.arrays import Array
from fedsim.kernels import reference
from fedsim.kernels.cpu import draws
from fedsim.kernels.cpu.draws import choice, integers, keys, keys_into, normal, uniform
from fedsim.kernels.cpu.langevin import langevin_quadratic
from fedsim.kernels.cpu.leapfrog import leapfrog_quadratic
from fedsim.kernels.cpu.leapfrog_logistic import leapfrog_logistic
from fedsim.kernels.cpu.sums import gaussian_rows, linear_model, quadratic_full, segment_sum
from fedsim.protocols import BatchedGradients, ProblemLike, Rows, Terms, Wire

name = "cpu"


def gradients(problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array:
    """The clients' sum gradients, through `problem.gradients` where it has one."""
    if _batched(type(problem)) or isinstance(problem, BatchedGradients):
        return np.asarray(cast(BatchedGradients, problem).gradients(np.ascontiguousarray(theta), clients, rows))
    return reference.gradients(problem, theta, clients, rows)


@cache
def _batched(kind: type) -> bool:
    """`isinstance` with a protocol takes longer than a small gradient: asked once for a class."""
    return issubclass(kind, BatchedGradients)


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    out = np.empty(start[-1], np.int64)
    draws.choose_rows(key, population, start, step, out)
    return out


# --- Loaded when they are first asked for: few runs need them, and each takes its time ---------------------


def online_times(*arguments: Any) -> Array:
    from fedsim.kernels.clock import availability

    return availability.online_times(*arguments)


def wire_form(d: int, dtype: str | None, levels: int | None, code: str | None, form: str | None) -> Wire:
    from fedsim.kernels.cpu import qlsd

    return qlsd.wire_form(d, dtype, levels, code, form)


def gaussian_messages(
    theta: Array, x: Array, offsets: Array, sums: Array, precision: Array, client: Array, rows: Array | None,
    key: Array | None, terms: Terms, wire: Wire,
) -> tuple[Array, Array, Array]:  # fmt: skip
    from fedsim.kernels.cpu import qlsd

    return qlsd.gaussian_messages(theta, x, offsets, sums, precision, client, rows, key, terms, wire)


def logistic_messages(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None, key: Array | None,
    terms: Terms, wire: Wire,
) -> tuple[Array, Array, Array]:  # fmt: skip
    from fedsim.kernels.cpu import qlsd_logistic

    return qlsd_logistic.logistic_messages(theta, x, y, offsets, client, rows, key, terms, wire)


def softmax_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: float, out: Array, scale: Array | None = None, shift: Array | None = None,
) -> None:  # fmt: skip
    from fedsim.kernels.cpu import classification, softmax_float32

    jobs, model = (theta, x, y, offsets, client, rows, start), (classes, bias, share, out)
    if theta.dtype != np.float32:
        classification.softmax_gradient(*jobs, *model, scale, shift)
        return
    if len(rows) and (
        rows.min() < 0 or (rows >= np.repeat(offsets[client + 1] - offsets[client], np.diff(start))).any()
    ):
        raise IndexError("a minibatch names a row that its client does not have")
    nothing = np.zeros(0, np.float32)
    columns = (nothing, nothing) if scale is None or shift is None else (scale, shift)
    softmax_float32.softmax_gradient(*jobs, *model, *columns)


def network_gradient(*arguments: Any) -> None:
    from fedsim.kernels.cpu import classification

    classification.network_gradient(*arguments)


__all__ = [
    "choice", "choose_rows", "gaussian_messages", "gaussian_rows", "gradients", "integers", "keys", "keys_into",
    "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "linear_model", "logistic_messages", "name",
    "network_gradient", "normal", "online_times", "quadratic_full", "segment_sum", "softmax_gradient", "uniform",
    "wire_form",
]  # fmt: skip
