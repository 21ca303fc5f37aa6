"""Who shares which link: the tables behind `fedsim.flows`.

Flows with the same route have the same rate at all times, so they travel as one *bundle*. A link that only one
bundle is known to use is a cap on that bundle; the others are *trunks*. Trunks that busy bundles connect form a
*group*, and an event changes rates only inside its group. Groups grow as bundles become busy; they are drawn anew,
as small as can be, when enough bundles have become idle to pay for it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput

Array = npt.NDArray[Any]


class Links(NamedTuple):
    """One row per link."""

    capacity: Array  # bits per second
    scale: Array  # units per bit per second in which it is divided up
    known: Array  # bundles that use it, busy or idle
    load: Array  # flows under way, if it is a trunk
    list: Array  # where the list of its busy bundles begins
    room: Array  # how many it can hold
    listed: Array  # how many it holds
    left: Array  # while rates are being found: units not yet given away,
    unfixed: Array  # flows that have no rate yet,
    at: Array  # and how far its list has been worked off


class Bundles(NamedTuple):
    """One row per route."""

    hop: Array  # where its trunks begin
    hops: Array  # how many there are
    flows: Array  # under way
    stamp: Array  # the latest refresh of its rate
    cap: Array  # bits per second that its own links allow all its flows together
    key: Array  # the cap on each flow under which it is listed, -1: not listed
    rate: Array  # bits per second of each flow
    since: Array  # when the clock was last read
    served: Array  # what it said then: bits that each flow has had since the bundle became busy
    mark: Array  # what it will say when the next flow is over


class Group:
    """Connected trunks."""

    __slots__ = ("_array", "busy", "links")

    def __init__(self, links: list[int], busy: int) -> None:
        self.links, self.busy = links, busy
        self._array: Array | None = None

    def absorb(self, other: Group) -> None:
        self.links += other.links
        self.busy += other.busy
        self._array = None

    def array(self) -> Array:
        if self._array is None:
            self._array = np.array(self.links)
        return self._array


class Tables:
    """Links, bundles and groups of one set of flows."""

    def __init__(self, capacities_bps: npt.ArrayLike) -> None:
        capacity = np.array(capacities_bps, np.float64, ndmin=1)
        for link in np.flatnonzero(~(capacity > 0)).tolist():
            raise InvalidInput(
                f"link {link} has capacity {capacity[link]} bit/s: give a positive number or inf"
            )
        scale = np.array([_scale(c) for c in capacity.tolist()])
        self.links = Links(capacity, scale, *np.zeros((8, len(capacity)), np.int64))
        self.bundles = _rows(8)
        self.hops = np.zeros(16, np.uint32)  # the trunks of all bundles, one after another
        self.lists = np.zeros(0, np.uint32)  # the busy bundles of all trunks, one after another
        self.routes: list[tuple[int, ...]] = []
        self.trunks: list[tuple[int, ...]] = []
        self.changed: set[int] = set()  # bundles that may be missing or out of order in the lists
        self.groups: dict[int, Group] = {}  # by trunk
        self._bundle_of: dict[tuple[int, ...], int] = {}
        self._owner: dict[int, int] = {}  # link: the first bundle known to use it
        self._used, self._left, self._busy, self._cramped = 0, 0, 0, True

    def bundle(self, links: tuple[int, ...]) -> int:
        """The bundle of a route."""
        b = self._bundle_of.get(links, -1)
        return b if b >= 0 else self._add(links)

    def enter(self, b: int) -> None:
        """A bundle becomes busy."""
        self._busy += 1
        if self.trunks[b]:
            self._join(self.trunks[b], 1)

    def leave(self, b: int) -> bool:
        """A bundle becomes idle; True if the groups were drawn anew, so that all busy bundles need new rates."""
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
                self._join(self.trunks[other], 1)
        return True

    def busy(self) -> list[int]:
        return np.flatnonzero(self.bundles.flows).tolist()

    def serve(self, now_s: float, serial: int, group: Group) -> tuple[float, list[int]]:
        """New rates for a group; when its next flow ends, and in which bundles."""
        from fedsim.kernels.sharing import fill, sort_in, wind

        if self._cramped:
            self._lay_out()
        links, rows = self.links, self.bundles
        if self.changed:
            changed = np.array(list(self.changed))
            self.changed.clear()
            sort_in(changed, self.hops, self.lists, links.list, links.listed, *rows[:3], rows.cap, rows.key)
        members, rates = fill(
            serial, group.array(), self.hops, self.lists, *links[:2], *links[3:5], *links[6:], *rows[:4], rows.key
        )
        soonest, due = wind(now_s, members, rates, *rows[6:])
        return soonest, due.tolist()

    def set_capacity(self, link: int, bps: float) -> None:
        self.links.capacity[link], self.links.scale[link] = bps, _scale(bps)
        if self.links.known[link] == 1:
            self._assign(self._owner[link])

    def _add(self, links: tuple[int, ...]) -> int:
        last = len(self.links.capacity) - 1
        for link in links:
            if not isinstance(link, (int, np.integer)) or not 0 <= link <= last:
                raise InvalidInput(f"route over link {link!r}: name links by their numbers, 0 to {last}")
        if len(set(links)) < len(links):
            raise InvalidInput(f"route over links {list(links)}: name every link once")
        links = tuple(map(int, links))
        b = len(self.routes)
        if b == len(self.bundles.flows):
            old, self.bundles = self.bundles, _rows(2 * b)
            for column, wider in zip(old, self.bundles, strict=True):
                wider[:b] = column
        self._bundle_of[links] = b
        self.routes.append(links)
        self.trunks.append(())
        self.bundles.key[b] = -1.0
        for link in links:
            self.links.known[link] += 1
            owner = self._owner.setdefault(link, b)
            if self.links.known[link] == 2:
                self._promote(link, owner)
            self._cramped |= bool(self.links.known[link] > self.links.room[link])
        self._assign(b)
        return b

    def _promote(self, link: int, owner: int) -> None:
        """A link becomes a trunk when a second bundle uses it."""
        flows = int(self.bundles.flows[owner])
        self._assign(owner)
        if flows:
            self.links.load[link] = flows
            self._join(self.trunks[owner], 0 if len(self.trunks[owner]) > 1 else 1)
        self._cramped = True  # its owner must enter its list

    def _assign(self, b: int) -> None:
        """Tell a bundle's trunks from its own links."""
        known, capacity, bundles = self.links.known, self.links.capacity, self.bundles
        trunks = tuple(link for link in self.routes[b] if known[link] > 1)
        bundles.cap[b] = min((capacity[link] for link in self.routes[b] if known[link] == 1), default=math.inf)
        if trunks != self.trunks[b]:
            begin, self._used = self._used, self._used + len(trunks)
            while self._used > len(self.hops):
                self.hops = np.concatenate([self.hops, self.hops])
            self.hops[begin : self._used] = trunks
            bundles.hop[b], bundles.hops[b], self.trunks[b] = begin, len(trunks), trunks

    def _join(self, trunks: tuple[int, ...], busy: int) -> None:
        """Make one group of these trunks and all that they are connected to."""
        parts = {id(part): part for link in trunks if (part := self.groups.get(link))}
        group = max(parts.values(), key=lambda part: len(part.links), default=Group([], 0))
        fresh = [Group([link], 0) for link in trunks if link not in self.groups]
        for part in (*parts.values(), *fresh):
            if part is not group:
                group.absorb(part)
                for link in part.links:
                    self.groups[link] = group
        group.busy += busy

    def _lay_out(self) -> None:
        """Give every trunk's list twice the room it needs for the bundles known so far."""
        self._cramped = False
        links = self.links
        links.room[:] = np.where(links.known > 1, 2 * links.known, 1)
        links.list[:] = np.cumsum(links.room) - links.room
        links.listed[:] = 0
        self.bundles.key[:] = -1.0
        self.lists = np.zeros(links.room.sum(), np.uint32)
        self.changed.update(self.busy())


def _rows(size: int) -> Bundles:
    """Columns side by side in memory: whoever needs one field of a bundle needs the others, too."""
    return Bundles(*np.zeros((size, 4), np.int64).T, *np.zeros((size, 6)).T)


def _scale(bps: float) -> float:
    """The power of two that makes a capacity a whole number of 61 bits; 0 for an ideal link."""
    if bps == 0.0 or bps == math.inf:
        return 1.0 if bps == 0.0 else 0.0
    return math.ldexp(1.0, min(61 - math.frexp(bps)[1], 1000))
