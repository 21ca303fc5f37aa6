"""The CUDA backend: the `.cu` files through CuPy, which is imported here and nowhere else, and only when asked for.

Arrays come in and go out as NumPy. What a problem never changes (its data, its tables) is copied to the device
once, in the precision of the run. Computed on the device: normals, choices of rows, Langevin and leapfrog steps on
quadratic potentials, leapfrog steps on logistic regression, QLSD's messages, and the gradients of problems with
`gradients_by(kernels, theta, clients, rows)`, which is handed this module and calls `quadratic_full`, `gaussian_rows`,
`linear_model`, `softmax_gradient` or `network_gradient`. The gradients of a problem without it are refused, since its
steps would run on the CPU whatever was asked for. Keys, the few draws that decide who takes part, and the sums of
replies are computed on the CPU, where their arguments are.
"""

from __future__ import annotations

import sys
import weakref
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.kernels.cpu import online_times
from fedsim.kernels.cpu.draws import choice, integers, keys, keys_into, uniform
from fedsim.kernels.cpu.qlsd import wire_form
from fedsim.kernels.cpu.sums import segment_sum
from fedsim.kernels.cuda import classification, leapfrog, qlsd, sums
from fedsim.protocols import GradientKernels, PortableGradients, ProblemLike, Rows
from fedsim.protocols.runtime import LangevinSteps

name = "cuda"

SOURCES = ("fedsim.cu", "leapfrog.cu", "qlsd.cu", "classification.cu")
THREADS = 128  # per block
REGISTERS = 8  # up to this d a kernel is compiled for d alone, so that parameters stay in registers
SCORES = 2**25  # linear predictors, or numbers of messages, on the device at once; more jobs go in turns


def require_device() -> None:
    """Refuse, with the remedy, where there is no CuPy or no CUDA device."""
    try:
        import cupy
    except ImportError as error:
        raise InvalidInput(
            f"backend='cuda' needs CuPy ({error}): pip install 'fedsim-systems[cuda]', or use backend='cpu'"
        ) from None
    try:
        found = cupy.cuda.runtime.getDeviceCount()
        reason = ""
    except Exception as error:  # CuPy's own error class cannot be named without a driver
        found, reason = 0, f" ({error})"
    if not found:
        raise InvalidInput(f"backend='cuda': no CUDA device was found{reason}; use backend='cpu'")


# --- The device ------------------------------------------------------------------------------------------


def source() -> str:
    """All files as one; each still counts its own lines in what a compiler says."""
    files = (Path(__file__).with_name(name) for name in SOURCES)
    return "".join(f'#line 1 "{file.name}"\n{file.read_text(encoding="utf-8")}' for file in files)


def options(dtype: npt.DTypeLike, dim: int = 0) -> tuple[str, ...]:
    """How the source is compiled. No fused multiply-add: the CPU has none, and the two are to agree."""
    return (f"-DREAL_BITS={8 * np.dtype(dtype).itemsize}", f"-DDIM={dim}", "--fmad=false")


@cache
def _module(dtype: np.dtype[Any], dim: int) -> Any:
    import cupy

    return cupy.RawModule(code=source(), options=options(dtype, dim))


def run(kernel: str, dtype: npt.DTypeLike, threads: int, *arguments: Any, dim: int = 0) -> None:
    if threads:
        function = _module(np.dtype(dtype), dim).get_function(kernel)
        function((-(-threads // THREADS),), (THREADS,), arguments)


def put(array: npt.ArrayLike, dtype: npt.DTypeLike) -> Any:
    import cupy

    return cupy.asarray(np.ascontiguousarray(array, dtype))


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    import cupy

    return cupy.empty(shape, dtype)


def get(array: npt.ArrayLike) -> Array:
    import cupy

    return np.asarray(cupy.asnumpy(array))


_tables: dict[tuple[int, np.dtype[Any], int], tuple[Any, Any]] = {}


def table(array: Array, dtype: npt.DTypeLike, scale: Array | None = None, shift: Array | None = None) -> Any:
    """The device's copy of an array that nobody changes, or of scale * array + shift; it goes when the host's goes."""
    key = (id(array), np.dtype(dtype), id(scale))
    if key not in _tables:
        values = array
        if scale is not None and shift is not None:
            values = array.astype(dtype) * scale.astype(dtype) + shift.astype(dtype)
        _tables[key] = (weakref.ref(array, lambda _: _tables.pop(key, None)), put(values, dtype))
    return _tables[key][1]


# --- Draws -----------------------------------------------------------------------------------------------


def words(key: Array, blocks: int, step: int = 0, first: int = 0) -> Array:
    """Raw 32-bit words `first*4 ... (first+blocks)*4` of a step, uint32 (rows, 4 * blocks)."""
    out = empty((len(key), 4 * blocks), np.uint32)
    run(
        "words", np.float64, len(key) * blocks,
        np.int64(len(key)), np.int64(blocks), put(key, np.uint32), np.int64(first), np.uint32(step), out,
    )  # fmt: skip
    return get(out)


def normal(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64, call: int = 0) -> Array:
    """Standard normals, shape (rows, lanes); see `fedsim.rng.normal`."""
    per = 4 if np.dtype(dtype) == np.float32 else 2
    begin, end = step * lanes, (step + 1) * lanes
    blocks = -(-end // per) - begin // per
    out = empty((len(key), lanes), dtype)
    run(
        "normals", dtype, len(key) * blocks,
        np.int64(len(key)), np.int64(blocks), np.int64(lanes), put(key, np.uint32), np.int64(begin),
        np.uint32(call), out,
    )  # fmt: skip
    return get(out)


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    """Row i's choice of start[i + 1] - start[i] different numbers below population[i], in one flat array."""
    return get(chosen(key, population, start, step))


def chosen(key: Array, population: Array, start: Array, step: int) -> Any:
    """What `choose_rows` gives, left on the device."""
    total = int(start[-1])
    out, position, value = empty(total, np.int64), empty(2 * total, np.int64), empty(2 * total, np.int64)
    run(
        "choose_rows", np.float64, len(key),
        np.int64(len(key)), put(key, np.uint32), put(population, np.int64), put(start, np.int64),
        np.uint32(step), position, value, out,
    )  # fmt: skip
    return out


# --- Langevin steps, Hamiltonian trajectories, QLSD's messages ---------------------------------------------


def langevin_quadratic(dim: int) -> LangevinSteps:
    """Return the twin of what `reference.langevin_quadratic` returns: same arguments, one thread a job."""
    return _langevin_quadratic


def _langevin_quadratic(
    theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array, scale: Array,
    correlation: np.floating[Any], steps: Array, amplitude: Array,
) -> None:  # fmt: skip
    jobs, d = theta.shape
    dtype = theta.dtype
    state, scratch = put(theta.T, dtype), empty((0 if d <= REGISTERS else d, jobs), dtype)
    run(
        "langevin_quadratic", dtype, jobs,
        np.int64(jobs), np.int32(d), state, scratch, table(hessian, dtype), table(linear, dtype),
        put(client, np.int64), put(private, np.uint32), put(shared, np.uint32), put(scale, dtype),
        np.int32(correlation < 1), np.int32(correlation > 0), correlation,
        np.int32(len(steps)), put(steps, dtype), put(amplitude, dtype),
        dim=d if d <= REGISTERS else 0,
    )  # fmt: skip
    theta[:] = get(state).T


leapfrog_quadratic = partial(leapfrog.leapfrog_quadratic, sys.modules[__name__])
leapfrog_logistic = partial(leapfrog.leapfrog_logistic, sys.modules[__name__])
gaussian_messages = partial(qlsd.gaussian_messages, sys.modules[__name__])
logistic_messages = partial(qlsd.logistic_messages, sys.modules[__name__])
network_gradient = partial(classification.network_gradient, sys.modules[__name__])
linear_model = partial(sums.linear_model, sys.modules[__name__])
softmax_gradient = partial(sums.softmax_gradient, sys.modules[__name__])


# --- Gradients: the names and arguments of kernels/gradients.py and kernels/softmax.py -------------------


def gradients(problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array:
    """The clients' sum gradients, through `problem.gradients_by`."""
    if not isinstance(problem, PortableGradients):
        raise InvalidInput(
            f"backend='cuda': the gradients of {type(problem).__name__} have no CUDA kernel "
            "(it has no gradients_by); use backend='cpu'"
        )
    return np.asarray(problem.gradients_by(cast(GradientKernels, sys.modules[__name__]), theta, clients, rows))


def quadratic_full(theta: Array, hessian: Array, linear: Array, client: Array, out: Array) -> None:
    (jobs, d), dtype = theta.shape, theta.dtype
    result = empty((jobs, d), dtype)
    run(
        "quadratic_full", dtype, jobs * d,
        np.int64(jobs), np.int64(d), put(theta, dtype), table(hessian, dtype), table(linear, dtype),
        put(client, np.int64), result,
    )  # fmt: skip
    out[:] = get(result)


def gaussian_rows(
    theta: Array, x: Array, offsets: Array, precision: Array, client: Array, rows: Array, start: Array,
    share: float, out: Array,
) -> None:  # fmt: skip
    (jobs, d), dtype = theta.shape, theta.dtype
    parameters, clients, starts = put(theta, dtype), put(client, np.int64), put(start, np.int64)
    total, result = empty((jobs, d), dtype), empty((jobs, d), dtype)
    run(
        "gaussian_total", dtype, jobs * d,
        np.int64(jobs), np.int64(d), parameters, table(x, dtype), table(offsets, np.int64), clients,
        put(rows, np.int64), starts, total,
    )  # fmt: skip
    run(
        "gaussian_rows", dtype, jobs * d,
        np.int64(jobs), np.int64(d), parameters, total, table(precision, dtype), np.int32(len(precision) == 1),
        clients, starts, dtype.type(share), result,
    )  # fmt: skip
    out[:] = get(result)


__all__ = [
    "choice", "choose_rows", "gaussian_messages", "gaussian_rows", "gradients", "integers", "keys", "keys_into",
    "langevin_quadratic", "leapfrog_logistic", "leapfrog_quadratic", "linear_model", "logistic_messages", "name",
    "network_gradient", "normal", "online_times", "quadratic_full", "require_device", "segment_sum", "softmax_gradient",
    "uniform", "wire_form", "words",
]  # fmt: skip
