"""The default backend: Numba on the CPU. Each name is the compiled twin of the same name in `reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401  the BLAS that compiled kernels call: loaded now, so that it can be held to one thread

from fedsim.arrays import Array
from fedsim.kernels import draws, reference
from fedsim.kernels.draws import choice, integers, keys, normal, uniform
from fedsim.kernels.langevin import langevin_quadratic
from fedsim.kernels.leapfrog import leapfrog_quadratic
from fedsim.kernels.leapfrog_logistic import leapfrog_logistic
from fedsim.kernels.sums import segment_sum

name = "cpu"


def gradients(problem: Any, theta: Array, clients: Array, rows: tuple[Array, Array] | None) -> Array:
    """The clients' sum gradients, through `problem.gradients` where it has one."""
    if hasattr(problem, "gradients"):
        return np.asarray(problem.gradients(np.ascontiguousarray(theta), clients, rows))
    return reference.gradients(problem, theta, clients, rows)


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    out = np.empty(start[-1], np.int64)
    draws.choose_rows(key, population, start, step, out)
    return out


__all__ = [
    "choice",
    "choose_rows",
    "gradients",
    "integers",
    "keys",
    "langevin_quadratic",
    "leapfrog_logistic",
    "leapfrog_quadratic",
    "name",
    "normal",
    "segment_sum",
    "uniform",
]
