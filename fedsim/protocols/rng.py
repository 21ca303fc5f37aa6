"""What policies, devices and servers draw from."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Rng(Protocol):
    """One row of draws per replica or visit, a new one at every call; made afresh for every round.

    Whoever has one row (a policy of one replica, a server that is not `batched`) gets answers without the axis of rows.
    """

    def uniform(self, lanes: int | None = None) -> Any:
        """In (0, 1): (rows,), or (rows, lanes)."""

    def normal(self, lanes: int | None = None, dtype: npt.DTypeLike = np.float64) -> Any:
        """Standard normals: (rows,), or (rows, lanes)."""

    def integers(self, below: npt.ArrayLike, lanes: int | None = None) -> Any:
        """Whole numbers in [0, below): (rows,), or (rows, lanes)."""

    def choice(self, population: int, size: int) -> Any:
        """So many different numbers of range(population): (rows, size)."""
