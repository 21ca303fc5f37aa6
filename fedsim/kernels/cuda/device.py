"""What the modules of kernels ask of the CUDA backend: arrays there and back, and launches. `cuda.py` is one such."""

from __future__ import annotations

from typing import Any, Protocol

import numpy.typing as npt

from fedsim.arrays import Array


class Device(Protocol):
    """Arrays on the device are CuPy's, which only `cuda.py` may name."""

    SCORES: int
    REGISTERS: int

    def put(self, array: npt.ArrayLike, dtype: npt.DTypeLike) -> Any: ...
    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Any: ...
    def get(self, array: object) -> Array: ...
    def table(
        self, array: Array, dtype: npt.DTypeLike, scale: Array | None = None, shift: Array | None = None
    ) -> Any: ...
    def run(self, kernel: str, dtype: npt.DTypeLike, threads: int, *arguments: Any, dim: int = 0) -> None: ...
    def chosen(self, key: Array, population: Array, start: Array, step: int) -> Any: ...
