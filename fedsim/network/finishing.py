"""Finishing times of flows that are all known in advance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_array
from fedsim.errors import InvalidInput
from fedsim.network.flows import Flows
from fedsim.network.route_bundles import FlowTables
from fedsim.network.varying import Varying, means_of
from fedsim.text import short_repr


def finish_times(
    capacities_bps: npt.ArrayLike | Sequence[float | Varying],
    routes: Sequence[Iterable[int]],
    bits: npt.ArrayLike,
    starts_s: npt.ArrayLike,
) -> npt.NDArray[np.float64]:
    """Return when each flow ends, if flow i sends bits[i] over the links routes[i], starting at starts_s[i].

    A capacity is a number or a `Varying`. The times are those of `Flows`.
    """
    means, _ = means_of(capacities_bps)
    tables = FlowTables(means)
    try:
        listed = [tuple(route) for route in routes]
    except TypeError:
        raise InvalidInput(f"routes={short_repr(routes)}: give a list of routes, each a list of link numbers") from None
    sizes, starts = _column("bits", bits, len(listed)), _column("starts_s", starts_s, len(listed))
    plain = all(type(link) is int for route in listed for link in route)
    for route in dict.fromkeys(listed) if plain else listed:  # 1.0 equals 1 and is not a link number
        tables.check(route)
    return _by_events(Flows(capacities_bps), listed, sizes.tolist(), starts.tolist())


def _by_events(flows: Flows, routes: list[tuple[int, ...]], bits: list[float], starts: list[float]) -> Array:
    queue = sorted(range(len(routes)), key=starts.__getitem__, reverse=True)
    owner: dict[int, int] = {}
    finish = np.full(len(routes), math.inf)
    while queue or owner:
        begin, end = starts[queue[-1]] if queue else math.inf, flows.next_finish_s()
        if end < math.inf and end <= begin:
            for flow in flows.finish(end):
                finish[owner.pop(flow)] = end
            continue
        if not queue:  # rates underflow: the flows end at infinity
            break
        while queue and starts[queue[-1]] == begin:
            i = queue.pop()
            owner[flows.start(begin, routes[i], bits[i])] = i
    return finish


def _column(name: str, value: npt.ArrayLike, flows: int) -> Array:
    column = check_array(name, value, remedy="give one number, or one per route")
    if column.shape not in ((), (flows,)):
        raise InvalidInput(f"{name} has shape {column.shape} for {flows} routes: give one number, or one per route")
    for i in np.flatnonzero(~np.isfinite(column) | ((name == "bits") & (column < 0.0))).tolist():
        raise InvalidInput(f"{name} of flow {i} is {column.flat[i]}: give a finite number of at least 0")
    return np.array(np.broadcast_to(column, flows))
