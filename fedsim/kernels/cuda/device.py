"""The CUDA device: arrays, tables and launches through CuPy, which only this module imports.

CuPy is imported when a function needs it. Arrays enter and leave as NumPy arrays.
"""

from __future__ import annotations

import weakref
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput

SOURCES = ("philox.cu", "draws.cu", "sums.cu", "langevin.cu", "leapfrog.cu", "qlsd.cu", "classification.cu")
THREADS = 128  # per block
REGISTERS = 8  # up to this d a kernel is compiled for each d, so that parameters stay in registers
SCORES = 2**25  # linear predictors, or numbers of messages, on the device at once; more jobs go in parts


def require_device() -> None:
    """Raise InvalidInput with the remedy where CuPy or a CUDA device is missing."""
    try:
        import cupy
    except ImportError as error:
        raise InvalidInput(
            f"backend='cuda' needs CuPy ({error}): pip install 'fedsim-systems[cuda]', or use backend='cpu'"
        ) from None
    try:
        found = cupy.cuda.runtime.getDeviceCount()
        reason = ""
    except Exception as error:  # CuPy's own error class is not available without a driver
        found, reason = 0, f" ({error})"
    if not found:
        raise InvalidInput(f"backend='cuda': no CUDA device was found{reason}; use backend='cpu'")


def source() -> str:
    """Return all files as one source; compiler messages still count the lines of each file."""
    files = (Path(__file__).with_name(name) for name in SOURCES)
    return "".join(f'#line 1 "{file.name}"\n{file.read_text(encoding="utf-8")}' for file in files)


def options(dtype: npt.DTypeLike, dim: int = 0) -> tuple[str, ...]:
    """Return the compiler options. The CPU fuses no multiply-add, so none is fused here."""
    return (f"-DREAL_BITS={8 * np.dtype(dtype).itemsize}", f"-DDIM={dim}", "--fmad=false")


@cache
def _module(dtype: np.dtype[Any], dim: int) -> Any:
    import cupy

    return cupy.RawModule(code=source(), options=options(dtype, dim))


def run(kernel: str, dtype: npt.DTypeLike, threads: int, *arguments: Any, dim: int = 0) -> None:
    """Launch a kernel with one thread for each of `threads` items."""
    if threads:
        function = _module(np.dtype(dtype), dim).get_function(kernel)
        function((-(-threads // THREADS),), (THREADS,), arguments)


def put(array: npt.ArrayLike, dtype: npt.DTypeLike) -> Any:
    """Copy an array to the device."""
    import cupy

    return cupy.asarray(np.ascontiguousarray(array, dtype))


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any:
    """Allocate an array on the device."""
    import cupy

    return cupy.empty(shape, dtype)


def get(array: npt.ArrayLike) -> Array:
    """Copy an array of the device to the host."""
    import cupy

    return np.asarray(cupy.asnumpy(array))


_tables: dict[tuple[int, np.dtype[Any], int], tuple[Any, Any]] = {}


def table(array: Array, dtype: npt.DTypeLike, scale: Array | None = None, shift: Array | None = None) -> Any:
    """Return the device's copy of a constant array, or of scale * array + shift. It is freed with the host's array."""
    key = (id(array), np.dtype(dtype), id(scale))
    if key not in _tables:
        values = array
        if scale is not None and shift is not None:
            values = array.astype(dtype) * scale.astype(dtype) + shift.astype(dtype)
        _tables[key] = (weakref.ref(array, lambda _: _tables.pop(key, None)), put(values, dtype))
    return _tables[key][1]
