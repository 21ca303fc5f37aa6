"""The replicas' states before the first round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.protocols import Algorithm


def first_states(algorithm: Algorithm, problem: Any, starts: Array, skip: bool) -> tuple[Arrays, Arrays]:
    """The first replica's state, and everybody's stacked, from their starts (replicas, d).

    Where all start at one point the algorithm makes one state, which may be dear (a minimiser to be checked), for all
    of them. Where nothing is computed (`skip`) one row stands for all.
    """
    first = {n: np.asarray(s) for n, s in algorithm.init(problem, np.array(starts[0])).items()}
    if skip or starts.strides[0] == 0 or (starts == starts[0]).all():
        count = 1 if skip else len(starts)
        return first, {n: np.repeat(s[None], count, 0) for n, s in first.items()}
    others = [algorithm.init(problem, np.array(start)) for start in starts[1:]]
    return first, {n: np.stack([s, *(np.asarray(other[n]) for other in others)]) for n, s in first.items()}
