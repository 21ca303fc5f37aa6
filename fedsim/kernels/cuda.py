"""The CUDA backend: `fedsim.cu` through CuPy, which is imported here and nowhere else, and only when asked for.

Arrays come in and go out as NumPy. What a problem never changes (its data, its tables) is copied to the device
once, in the precision of the run. Computed on the device: normals, choices of rows, Langevin steps on quadratic
potentials, and the gradients of problems with `gradients_by(kernels, theta, clients, rows)`, which is handed
this module and calls `quadratic_full`, `gaussian_rows`, `linear_model` or `softmax_gradient`. The gradients of
a problem without it are refused, since its steps would run on the CPU whatever was asked for. Keys, the few
draws that decide who takes part, and the sums of replies are computed on the CPU, where their arguments are.
"""

from __future__ import annotations

import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput
from fedsim.kernels.draws import choice, integers, keys, uniform
from fedsim.kernels.sums import segment_sum

Array = npt.NDArray[Any]
name = "cuda"

THREADS = 128  # per block
REGISTERS = 8  # up to this d a kernel is compiled for d alone, so that parameters stay in registers
SCORES = 2**25  # linear predictors on the device at once; more jobs go in turns


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
    return Path(__file__).with_name("fedsim.cu").read_text(encoding="utf-8")


def options(dtype: npt.DTypeLike, dim: int = 0) -> tuple[str, ...]:
    """How `fedsim.cu` is compiled. No fused multiply-add: the CPU has none, and the two are to agree."""
    return (f"-DREAL_BITS={8 * np.dtype(dtype).itemsize}", f"-DDIM={dim}", "--fmad=false")


@cache
def _module(dtype: np.dtype[Any], dim: int) -> Any:
    import cupy

    return cupy.RawModule(code=source(), options=options(dtype, dim))


def _run(kernel: str, dtype: npt.DTypeLike, threads: int, *arguments: Any, dim: int = 0) -> None:
    if threads:
        function = _module(np.dtype(dtype), dim).get_function(kernel)
        function((-(-threads // THREADS),), (THREADS,), arguments)


def _put(array: Any, dtype: npt.DTypeLike) -> Any:
    import cupy

    return cupy.asarray(np.ascontiguousarray(array, dtype))


def _empty(shape: Any, dtype: npt.DTypeLike) -> Any:
    import cupy

    return cupy.empty(shape, dtype)


def _get(array: Any) -> Array:
    import cupy

    return np.asarray(cupy.asnumpy(array))


_tables: dict[tuple[int, np.dtype[Any]], tuple[Any, Any]] = {}


def _table(array: Array, dtype: npt.DTypeLike) -> Any:
    """The device's copy of an array that nobody changes; it goes when the host's array goes."""
    key = (id(array), np.dtype(dtype))
    if key not in _tables:
        _tables[key] = (weakref.ref(array, lambda _: _tables.pop(key, None)), _put(array, dtype))
    return _tables[key][1]


# --- Draws -----------------------------------------------------------------------------------------------


def words(key: Array, blocks: int, step: int = 0, first: int = 0) -> Array:
    """Raw 32-bit words `first*4 ... (first+blocks)*4` of a step, uint32 (rows, 4 * blocks)."""
    out = _empty((len(key), 4 * blocks), np.uint32)
    _run(
        "words", np.float64, len(key) * blocks,
        np.int64(len(key)), np.int64(blocks), _put(key, np.uint32), np.int64(first), np.uint32(step), out,
    )  # fmt: skip
    return _get(out)


def normal(key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = np.float64, call: int = 0) -> Array:
    """Standard normals, shape (rows, lanes); see `fedsim.rng.normal`."""
    per = 4 if np.dtype(dtype) == np.float32 else 2
    begin, end = step * lanes, (step + 1) * lanes
    blocks = -(-end // per) - begin // per
    out = _empty((len(key), lanes), dtype)
    _run(
        "normals", dtype, len(key) * blocks,
        np.int64(len(key)), np.int64(blocks), np.int64(lanes), _put(key, np.uint32), np.int64(begin),
        np.uint32(call), out,
    )  # fmt: skip
    return _get(out)


def choose_rows(key: Array, population: Array, start: Array, step: int) -> Array:
    """Row i's choice of start[i + 1] - start[i] different numbers below population[i], in one flat array."""
    total = int(start[-1])
    out, position, value = _empty(total, np.int64), _empty(2 * total, np.int64), _empty(2 * total, np.int64)
    _run(
        "choose_rows", np.float64, len(key),
        np.int64(len(key)), _put(key, np.uint32), _put(population, np.int64), _put(start, np.int64),
        np.uint32(step), position, value, out,
    )  # fmt: skip
    return _get(out)


# --- Langevin steps ----------------------------------------------------------------------------------------


def langevin_quadratic(
    theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array, scale: Array,
    correlation: float, steps: Array, temperature: float,
) -> Array:  # fmt: skip
    """The twin of `reference.langevin_quadratic`: same arguments, one thread a job."""
    jobs, d = theta.shape
    dtype = theta.dtype
    state, scratch = _put(theta.T, dtype), _empty((0 if d <= REGISTERS else d, jobs), dtype)
    amplitude = np.sqrt(2 * np.asarray(steps) * temperature)
    _run(
        "langevin_quadratic", dtype, jobs,
        np.int64(jobs), np.int32(d), state, scratch, _table(hessian, dtype), _table(linear, dtype),
        _put(client, np.int64), _put(private, np.uint32), _put(shared, np.uint32), _put(scale, dtype),
        np.int32(correlation < 1), np.int32(correlation > 0), dtype.type(correlation),
        np.int32(len(steps)), _put(steps, dtype), _put(amplitude, dtype),
        dim=d if d <= REGISTERS else 0,
    )  # fmt: skip
    return np.ascontiguousarray(_get(state).T)


# --- Gradients: the names and arguments of kernels/gradients.py and kernels/softmax.py -------------------


def gradients(problem: Any, theta: Array, clients: Array, rows: tuple[Array, Array] | None) -> Array:
    """The clients' sum gradients, through `problem.gradients_by`."""
    if not hasattr(problem, "gradients_by"):
        raise InvalidInput(
            f"backend='cuda': the gradients of {type(problem).__name__} have no CUDA kernel "
            "(it has no gradients_by); use backend='cpu'"
        )
    return np.asarray(problem.gradients_by(sys.modules[__name__], theta, clients, rows))


def quadratic_full(theta: Array, hessian: Array, linear: Array, client: Array, out: Array) -> None:
    (jobs, d), dtype = theta.shape, theta.dtype
    result = _empty((jobs, d), dtype)
    _run(
        "quadratic_full", dtype, jobs * d,
        np.int64(jobs), np.int64(d), _put(theta, dtype), _table(hessian, dtype), _table(linear, dtype),
        _put(client, np.int64), result,
    )  # fmt: skip
    out[:] = _get(result)


def gaussian_rows(
    theta: Array, x: Array, offsets: Array, precision: Array, client: Array, rows: Array, start: Array,
    share: Any, out: Array,
) -> None:  # fmt: skip
    (jobs, d), dtype = theta.shape, theta.dtype
    parameters, clients, starts = _put(theta, dtype), _put(client, np.int64), _put(start, np.int64)
    total, result = _empty((jobs, d), dtype), _empty((jobs, d), dtype)
    _run(
        "gaussian_total", dtype, jobs * d,
        np.int64(jobs), np.int64(d), parameters, _table(x, dtype), _table(offsets, np.int64), clients,
        _put(rows, np.int64), starts, total,
    )  # fmt: skip
    _run(
        "gaussian_rows", dtype, jobs * d,
        np.int64(jobs), np.int64(d), parameters, total, _table(precision, dtype), np.int32(len(precision) == 1),
        clients, starts, dtype.type(share), result,
    )  # fmt: skip
    out[:] = _get(result)


def linear_model(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, logistic: bool,
    scale: Any, share: Any, out: Array,
) -> None:  # fmt: skip
    dtype = theta.dtype

    def residuals(jobs: int, count: int, where: tuple[Any, ...], z: Any) -> None:
        _run(
            "residuals", dtype, count, np.int64(jobs), np.int64(count), _table(y, dtype), *where,
            np.int32(logistic), dtype.type(scale), z,
        )  # fmt: skip

    _over_rows(theta, x, offsets, client, rows, start, 1, False, share, residuals, out)


def softmax_gradient(
    theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int,
    bias: bool, share: Any, out: Array,
) -> None:  # fmt: skip
    def residuals(jobs: int, count: int, where: tuple[Any, ...], z: Any) -> None:
        _run(
            "softmax_residuals", theta.dtype, count, np.int64(jobs), np.int64(count), np.int64(classes),
            _table(y, np.int64), *where, z,
        )  # fmt: skip

    _over_rows(theta, x, offsets, client, rows, start, classes, bias, share, residuals, out)


def _over_rows(
    theta: Array, x: Array, offsets: Array, client: Array, rows: Array, start: Array, classes: int, bias: bool,
    share: Any, residuals: Any, out: Array,
) -> None:  # fmt: skip
    """Scores of all rows, `residuals` in their place, then each job's sum; as many jobs at a time as fit."""
    dtype, whole = theta.dtype, len(rows) == 0
    if whole:
        start = np.concatenate([[0], np.cumsum(np.diff(offsets)[client])])
    shape = np.int64(x.shape[1]), np.int64(classes), np.int32(bias)
    table = _table(x, dtype)
    a = 0
    while a < len(theta):
        b = max(a + 1, int(np.searchsorted(start, start[a] + SCORES // classes, side="right")) - 1)
        jobs, count = b - a, int(start[b] - start[a])
        parameters, result = _put(theta[a:b], dtype), _empty((jobs, theta.shape[1]), dtype)
        chosen = _put(rows[:0] if whole else rows[start[a] : start[b]], np.int64)
        where = (
            _table(offsets, np.int64), _put(client[a:b], np.int64), chosen,
            _put(start[a : b + 1] - start[a], np.int64), np.int32(whole),
        )  # fmt: skip
        z = _empty((count, classes), dtype)
        _run(
            "scores", dtype, count * classes,
            np.int64(jobs), np.int64(count), *shape, parameters, table, *where, z,
        )  # fmt: skip
        residuals(jobs, count, where, z)
        _run(
            "sum_over_rows", dtype, jobs * theta.shape[1],
            np.int64(jobs), *shape, parameters, table, *where, z, dtype.type(share), result,
        )  # fmt: skip
        out[a:b] = _get(result)
        a = b


__all__ = [
    "choice", "choose_rows", "gaussian_rows", "gradients", "integers", "keys", "langevin_quadratic",
    "linear_model", "name", "normal", "quadratic_full", "require_device", "segment_sum", "softmax_gradient",
    "uniform", "words",
]  # fmt: skip
