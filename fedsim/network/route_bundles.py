"""Tables of the routes that share links, for `fedsim.network.flows`.

A link that only one route uses is private; the others are *trunks*. Flows with the same trunks, and private links
too wide to limit them, have the same rate at all times and form one *bundle*; a narrower private link limits a bundle
of its own. Trunks that busy bundles connect form a *group*, and an event changes rates only inside its group. Groups
grow as bundles become busy; they are rebuilt, as small as possible, after enough bundles have become idle.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_array
from fedsim.errors import InvalidInput
from fedsim.kernels.clock.state import BUNDLE, LINK
from fedsim.text import short_repr


class Group:
    """Connected trunks."""

    __slots__ = ("_array", "busy", "links")

    def __init__(self, links: list[int]) -> None:
        self.links, self.busy = links, 0  # the number of busy bundles that use them
        self._array: Array | None = None

    def absorb(self, other: Group) -> None:
        self.links += other.links
        self.busy += other.busy
        self._array = None

    def array(self) -> Array:
        if self._array is None:
            self._array = np.array(self.links)
        return self._array


class FlowTables:
    """Links, routes, bundles and groups of one set of flows."""

    def __init__(self, capacities_bps: npt.ArrayLike) -> None:
        capacity = np.atleast_1d(check_array("capacities_bps", capacities_bps))
        if capacity.ndim != 1:
            raise InvalidInput(f"capacities_bps has shape {capacity.shape}: give one number per link")
        for link in np.flatnonzero(~(capacity > 0)).tolist():
            raise InvalidInput(f"link {link} has capacity {capacity[link]} bit/s: give a positive number or inf")
        self.links = np.zeros(len(capacity), LINK)
        self.links["capacity"], self.links["scale"] = capacity, scale_of(capacity)
        self.bundles = np.zeros(8, BUNDLE)
        self.bundle_of: list[int] = []  # by route
        self.trunks: list[tuple[int, ...]] = []  # by bundle
        self.groups: dict[int, Group] = {}  # by trunk
        self.changed: set[int] = set()  # bundles that may be missing or out of order in the lists
        self._hops = np.zeros(16, np.uint32)  # the trunks of all bundles, one after another
        self._lists = np.zeros(0, np.uint32)  # the busy bundles of all trunks, one after another
        self._due = np.zeros(8, np.int64)  # the kernel's result
        self._room: dict[int, list[int]] = {}  # by trunk: bundles that use it, and how many its list can hold
        self._routes: dict[tuple[int, ...], int] = {}
        self.links_of: list[tuple[int, ...]] = []  # by route
        self._users: dict[int, list[int]] = {}  # by link: the routes known to use it
        self._bundles: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}  # by trunks and private links
        self._private: list[tuple[int, ...]] = []  # by bundle
        self._used, self._left, self._busy, self._needs_growth = 0, 0, 0, True

    def find(self, links: tuple[int, ...]) -> int:
        """Return the number of a known route, or -1."""
        return self._routes.get(links, -1)

    def check(self, links: tuple[Any, ...]) -> None:
        """Refuse an invalid route."""
        last = len(self.links) - 1
        for link in links:
            if not isinstance(link, (int, np.integer)) or not 0 <= link <= last:
                raise InvalidInput(f"route over link {short_repr(link)}: name links by their numbers, 0 to {last}")
        if len(set(links)) < len(links):
            raise InvalidInput(f"route over links {list(links)}: name every link once")

    def add(self, links: tuple[int, ...]) -> set[int]:
        """Add a route and return the routes that are now in another bundle."""
        route = self._routes[links] = len(self.links_of)
        self.links_of.append(tuple(map(int, links)))
        self.bundle_of.append(-1)
        moved = set()
        for link in self.links_of[route]:
            users = self._users.setdefault(link, [])
            users.append(route)
            if len(users) == 2 and self._assign(users[0]):  # the link has become a trunk
                moved.add(users[0])
        self._assign(route)
        return moved

    def set_capacity(self, link: int, bps: float) -> tuple[set[int], set[int]]:
        """Return the busy bundles that need new rates, and the routes that are now in another bundle."""
        self.links["capacity"][link], self.links["scale"][link] = bps, scale_of(np.array(bps))
        routes = self._users.get(link, [])
        moved = {route for route in routes if self._assign(route)}
        for b in (bundles := {self.bundle_of[route] for route in routes}):
            self.bundles["cap"][b] = self._narrowest(self._private[b])
        return {b for b in bundles if self.bundles["flows"][b]}, moved

    def enter(self, b: int) -> None:
        """Mark a bundle as busy."""
        self._busy += 1
        if self.trunks[b]:
            self._join(self.trunks[b]).busy += 1

    def leave(self, b: int) -> bool:
        """Mark a bundle as idle; return True if the groups were rebuilt, so that all need new rates."""
        self._busy -= 1
        self._left += 1
        if not self.trunks[b]:
            return False
        group = self.groups[self.trunks[b][0]]
        group.busy -= 1
        if group.busy == 0:
            for link in group.links:
                del self.groups[link]
        if self._left <= 2 * self._busy + 64:
            return False
        self._left = 0
        self.groups.clear()
        for other in self.busy():
            if self.trunks[other]:
                self._join(self.trunks[other]).busy += 1
        return True

    def busy(self) -> list[int]:
        """The busy bundles."""
        return list(np.flatnonzero(self.bundles["flows"]).tolist())

    def serve(self, now_s: float, serial: int, group: Group) -> tuple[float, list[int]]:
        """Set new rates in a group; return when its next flow ends, and in which bundles."""
        from fedsim.kernels.clock.maxmin import relist_and_fill

        if self._needs_growth:
            self._lay_out()
        changed = np.fromiter(self.changed, np.int64, len(self.changed))
        self.changed.clear()
        soonest, due = relist_and_fill(
            now_s, serial, changed, group.array(), self.links, self.bundles, self._hops, self._lists, self._due
        )
        return soonest, self._due[:due].tolist()

    def _assign(self, route: int) -> bool:
        """Put a route in its bundle; return whether that is another one."""
        capacity = self.links["capacity"]
        finite = [link for link in self.links_of[route] if capacity[link] < math.inf]
        trunks = tuple(link for link in finite if len(self._users[link]) > 1)
        width = self._narrowest(trunks)
        private = tuple(link for link in finite if len(self._users[link]) == 1 and capacity[link] < width)
        b = self._bundles.setdefault((trunks, private), len(self.trunks))
        if b == len(self.trunks):
            self._add_bundle(trunks, private)
        before, self.bundle_of[route] = self.bundle_of[route], b
        return b != before

    def _add_bundle(self, trunks: tuple[int, ...], private: tuple[int, ...]) -> None:
        b = len(self.trunks)
        if b == len(self.bundles):
            self.bundles = np.concatenate([self.bundles, np.zeros(b, BUNDLE)])
            self._due = np.zeros(2 * b, np.int64)
        first, self._used = self._used, self._used + len(trunks)
        while self._used > len(self._hops):
            self._hops = np.concatenate([self._hops, self._hops])
        self._hops[first : self._used] = trunks
        row = {"hop": first, "hops": len(trunks), "key": -1.0, "cap": self._narrowest(private)}
        for name, value in row.items():
            self.bundles[name][b] = value
        self.trunks.append(trunks)
        self._private.append(private)
        for link in trunks:
            room = self._room.setdefault(link, [0, 0])
            room[0] += 1
            self._needs_growth |= room[0] > room[1]

    def _narrowest(self, links: tuple[int, ...]) -> float:
        return min((float(self.links["capacity"][link]) for link in links), default=math.inf)

    def _join(self, trunks: tuple[int, ...]) -> Group:
        """Make one group of these trunks and all that are connected to them."""
        parts = {id(part): part for link in trunks if (part := self.groups.get(link))}
        group = max(parts.values(), key=lambda part: len(part.links), default=Group([]))
        fresh = [Group([link]) for link in trunks if link not in self.groups]
        for part in (*parts.values(), *fresh):
            if part is not group:
                group.absorb(part)
                for link in part.links:
                    self.groups[link] = group
        return group

    def _lay_out(self) -> None:
        """Give every trunk's list twice the space that its bundles need."""
        self._needs_growth = False
        total = 0
        for link, room in self._room.items():
            self.links["begin"][link] = total
            room[1] = 2 * room[0]
            total += room[1]
        self.links["listed"] = 0
        self.bundles["key"] = -1.0
        self._lists = np.zeros(total, np.uint32)
        self.changed.update(self.busy())


def scale_of(capacity: Array) -> Array:
    """Return the powers of two that make capacities integers of 61 bits."""
    finite = np.where(np.isfinite(capacity), capacity, 1.0)
    return np.asarray(np.ldexp(1.0, np.minimum(61 - np.frexp(finite)[1], 1000)))
