"""Identity: the numbers themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_choice
from fedsim.codecs.arguments import check_bytes, check_dim, check_values, refuse
from fedsim.errors import CorruptData


@dataclass(frozen=True)
class Identity:
    """The numbers in `dtype`: None sends the vector's own, "float32" rounds to the nearest."""

    dtype: str | None = None
    fixed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("Identity(dtype={!r})", self.dtype, (None, "float32", "float64"))

    def encode(self, v: Array, key: Array | None = None) -> bytes:
        sent = self._sent(check_values(v, 1))
        return sent.astype(sent.dtype.newbyteorder("<")).tobytes()

    def decode(self, data: bytes, d: int) -> Array:
        data, d = check_bytes(data), check_dim(d)
        dtypes = [np.dtype(name) for name in ("float32", "float64") if self.dtype in (None, name)]
        for dtype in dtypes:
            if len(data) == d * dtype.itemsize:
                v = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
                if not np.isfinite(v).all():
                    raise CorruptData("the message holds a NaN or an infinity, which are never sent")
                return v
        sizes = " or ".join(str(d * dtype.itemsize) for dtype in dtypes)
        raise CorruptData(f"a message of {len(data)} bytes: {d} numbers take {sizes}")

    def bits(self, v: Array, key: Array | None = None) -> int:
        return 8 * self._sent(check_values(v, 1)).nbytes

    def length(self, d: int, dtype: npt.DTypeLike = "float64") -> int:
        return d * 8 * np.dtype(self.dtype or dtype).itemsize

    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]:
        values = check_values(values, 2)
        sent = self._sent(values)
        return sent.astype(values.dtype, copy=False), np.full(len(values), 8 * sent.itemsize * values.shape[1])

    def omega(self, d: int) -> float:
        """Return zero, or for "float32" the square of its relative error of at most 2**-24."""
        return 2.0**-48 if self.dtype == "float32" else 0.0

    def _sent(self, values: Array) -> Array:
        with np.errstate(over="ignore"):
            sent = values.astype(self.dtype or values.dtype, copy=False)
        if not np.isfinite(sent).all():
            refuse(values, ~np.isfinite(sent).all(axis=-1))
        return sent
