"""What a cloud makes of its edges' models, and what any sites' models are on average."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.sites import Sites
from fedsim.protocols import Backend
from fedsim.runtime.answers import all_locked, locked


def average(theta: Array, sites: Sites, backend: Backend) -> Array:
    """Every replica's average, (replicas, d), of its models, which stand one after another: (replicas * models, d)."""
    weights = np.tile(sites.weights, len(theta) // sites.models)
    starts = np.arange(0, len(theta) + 1, sites.models)
    return np.asarray(backend.segment_sum(theta, weights, starts))


def merge(
    state: Arrays, rows: Array, sites: Sites, own: Callable[[Arrays, Array], Arrays] | None, backend: Backend
) -> None:
    """The cloud's step, in place: one state out of its edges', which all of them go on with; `own` is the algorithm's
    way of doing so."""
    if own is None:
        state["theta"][rows] = np.repeat(average(state["theta"][rows], sites, backend), sites.models, axis=0)
        return
    for of_one in rows.reshape(-1, sites.models):
        new = own(all_locked({n: s[of_one] for n, s in state.items()}), locked(sites.weights))
        for n, s in new.items():
            state[n][of_one] = s
