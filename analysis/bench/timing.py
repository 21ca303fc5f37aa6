"""Functions timed side by side, so that a slow or busy machine slows all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


def best(*functions: Callable[[], object], rounds: int, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """The least seconds of each, called in turn so that all see the same machine; the first call of each is not timed."""
    least = [math.inf] * len(functions)
    for f in functions:
        f()
    for _ in range(rounds):
        for i, f in enumerate(functions):
            began = clock()
            f()
            least[i] = min(least[i], clock() - began)
    return least
