"""Routes and links in the columns of the compiled clock, on which messages share links max-min fairly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.kernels.old_clock.parts import RouteArrays
from fedsim.kernels.old_clock.state import FINISH, FLOW, MORE, NODE, ROUTE, USER
from fedsim.kernels.sharing_columns import BUNDLE, LINK
from fedsim.network.route_bundles import scale_of


class FlowColumns:
    """Different routes by number, each known by its links in order; None: nothing is shared."""

    def __init__(self, routes: RouteArrays | None) -> None:
        self._routes = routes
        self._known: dict[tuple[int, ...], int] = {}
        self.down = self.up = np.zeros(1, np.int64)  # the route of every way
        if routes is not None:
            self.down = self._numbers(routes.down, routes.down_starts)
            same = routes.up is routes.down and routes.up_starts is routes.down_starts
            self.up = self.down if same else self._numbers(routes.up, routes.up_starts)
        self._links = np.array([link for route in self._known for link in route], np.int64)
        count = 0 if routes is None else len(routes.capacities_bps)
        self._uses = np.bincount(self._links, minlength=count)

    def _numbers(self, links: Array, starts: Array) -> Array:
        rows: list[tuple[int, ...]] = [tuple(sorted(links[a:b].tolist())) for a, b in pairwise(starts)]
        return np.array([self._known.setdefault(row, len(self._known)) for row in rows], np.int64)

    @property
    def bytes_each(self) -> float:
        """About how much one replica's columns need, apart from its flows."""
        return 0.0 if self._routes is None else 400.0 * len(self._links) + 300.0 * len(self._known)

    def columns(self, most: int) -> Arrays:
        """Columns at time 0, with room for so many flows."""
        routes, uses = np.zeros(len(self._known), ROUTE), self._uses
        sizes = np.array([len(route) for route in self._known], np.int64)
        routes["end"] = np.cumsum(sizes)
        routes["begin"], routes["bundle"] = routes["end"] - sizes, -1
        links, users = np.zeros(len(uses), LINK), np.zeros(len(uses), USER)
        if self._routes is not None:
            capacities = self._routes.capacities_bps
            links["capacity"], links["scale"] = capacities, scale_of(capacities)
            links["begin"] = np.concatenate([[0], np.cumsum(2 * uses + 2)[:-1]])
        bundles = int((sizes + 1).sum())  # a route changes its bundle when one of its links becomes a trunk
        hops = int(((sizes + 1) * sizes).sum())
        flows = most if self._routes is not None else 0
        numbers = {
            "privates": hops, "starting": flows, "dirty": bundles, "group": len(uses), "due": bundles, "done": flows,
        }  # fmt: skip
        return {
            "links": links, "users": users, "routes": routes, "route_links": self._links,
            "bundles": np.zeros(bundles, BUNDLE), "more": np.zeros(bundles, MORE),
            "finishes": np.zeros(4 * bundles + 64, FINISH),
            "flows": np.zeros(flows, FLOW), "nodes": np.zeros(flows, NODE),
            "table": np.full(1 << (4 * bundles + 1).bit_length(), -1, np.int64),
            "hops": np.zeros(hops, np.uint32), "lists": np.zeros(int((2 * uses + 2).sum()), np.uint32),
            **{name: np.zeros(size, np.int64) for name, size in numbers.items()},
        }  # fmt: skip
