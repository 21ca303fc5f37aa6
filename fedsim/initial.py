"""Initial points: `Scenario(initial=fs.initial.normal(2.0))` starts every replica at its own point.

R-hat needs dispersed starts: chains with a common start agree before they have mixed. `initial` may also be one point
(d,) for all replicas, or an array (replicas, d), or any object with `draw(seed, replicas, centre, dtype) ->
(len(replicas), d)`, where `replicas` are numbers and `centre` (d,) is the problem's initial point, or zeros. The point
of a replica must not depend on the other replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import check_array, check_positive
from fedsim.errors import InvalidInput

__all__ = ["Start", "normal"]

CHUNK = 1 << 20  # numbers per draw


@runtime_checkable
class Start(Protocol):
    """An object that draws an initial point for each replica."""

    def draw(self, seed: int, replicas: Array, centre: Array, dtype: npt.DTypeLike) -> Array: ...


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal initial points."""

    scale: float
    centre: Array | None = None

    def draw(self, seed: int, replicas: Array, centre: Array, dtype: npt.DTypeLike) -> Array:
        middle = centre if self.centre is None else self.centre
        if middle.shape != centre.shape:
            raise InvalidInput(f"initial.normal(centre of shape {middle.shape}): give shape {centre.shape}")
        out, rows = np.empty((len(replicas), len(centre)), dtype), max(1, CHUNK // max(1, len(centre)))
        for i in range(0, len(replicas), rows):
            key = rng.keys(seed, rng.Stream.START, replica=replicas[i : i + rows])
            out[i : i + rows] = middle + self.scale * rng.normal(key, len(centre))
        return out


def normal(scale: float, centre: npt.ArrayLike | None = None) -> Normal:
    """Return initial points N(centre, scale^2 I); `centre` None: the problem's initial point, or zeros.

    The point of a replica depends on the seed and its number alone.
    """
    scale = check_positive("initial.normal(scale={})", scale, zero=True)
    if centre is None:
        return Normal(scale)
    return Normal(
        scale, check_array("initial.normal(centre)", centre, axes=1, finite=True, remedy="give d finite numbers")
    )
