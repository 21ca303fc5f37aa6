"""Max-min fair rates of the bundles that an event touches, compiled. `fedsim.flows` says what a bundle is.

Progressive filling: of all links, the one that can offer its flows least is next; whoever on it has not been fixed
yet is fixed at that offer, and takes that much away from the other links on its route, whose offers can only rise.

What is left of a link is counted in whole numbers, units of 2**-60 of its capacity or finer. Whole numbers add up
to the same sum in any order, and equal offers are taken in the order of the links' numbers, so the rates are a
function of who is under way: neither the order in which flows were started nor what happened before can be seen.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
jit: Any = nb.njit(nogil=True, cache=True, error_model="numpy")


@jit
def refresh(
    now: float, serial: int, toggled: Array, seeds: Array, links: Any, hops: Any, bundles: Any, lists: Array
) -> tuple[Array, Array, Array]:
    """New rates for every bundle that is connected to the `seeds` through links that two bundles use.

    `toggled` are the bundles that became busy or idle since the last call. Returns, for each connected component,
    when its next flow ends, and where its bundles stop in the third array, which names the bundles that end then.
    """
    for b in toggled:
        _list(b, links, hops, bundles, lists)
    size = len(bundles.flows)
    members, trunks, end = np.empty(size, np.int64), np.empty(len(links.capacity), np.int64), np.empty(size)
    ends, stops, due = np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64)
    components, named = 0, 0
    for seed in seeds:
        busy = bundles.flows[seed] > 0
        for h in range(bundles.hop[seed], bundles.hop[seed] + (1 if busy else bundles.hops[seed])):
            start = seed
            if not busy:  # it left: whoever remains on its links is affected
                bundles.stamp[seed] = serial
                if links.listed[hops.link[h]] == 0:
                    continue
                start = hops.bundle[lists[links.list[hops.link[h]]]]
            if bundles.stamp[start] == serial:
                continue
            found, joined = _component(start, serial, links, hops, bundles, lists, members, trunks)
            _fill(serial, trunks[:joined], links, hops, bundles, lists)
            ends[components] = _wind(now, members[:found], bundles, end)
            for i in range(found):
                if end[i] == ends[components]:
                    due[named] = members[i]
                    named += 1
            stops[components] = named
            components += 1
    return ends[:components].copy(), stops[:components].copy(), due[:named].copy()


@jit
def _list(b: int, links: Any, hops: Any, bundles: Any, lists: Array) -> None:
    """Enter a busy bundle in its links' lists, take an idle one out."""
    for h in range(bundles.hop[b], bundles.hop[b] + bundles.hops[b]):
        link = hops.link[h]
        if bundles.flows[b] > 0:
            lists[links.list[link] + links.listed[link]] = h
            hops.place[h] = links.listed[link]
            links.listed[link] += 1
        else:  # the last of the list takes its place
            links.listed[link] -= 1
            last = lists[links.list[link] + links.listed[link]]
            lists[links.list[link] + hops.place[h]] = last
            hops.place[last] = hops.place[h]


@jit
def _component(
    start: int, serial: int, links: Any, hops: Any, bundles: Any, lists: Array, members: Array, trunks: Array
) -> tuple[int, int]:
    """Find the bundles connected to `start` and the links that connect them, the trunks.

    A link that one bundle has to itself is no trunk but a cap on that bundle. An ideal link is neither.
    """
    found, joined = 1, 0
    members[0] = start
    bundles.stamp[start] = serial
    i = 0
    while i < found:
        b = members[i]
        cap = np.inf
        for h in range(bundles.hop[b], bundles.hop[b] + bundles.hops[b]):
            link = hops.link[h]
            if links.listed[link] == 1:
                cap = min(cap, links.capacity[link] / bundles.flows[b])
                continue
            if links.capacity[link] == np.inf:
                continue
            if links.stamp[link] != serial:
                links.stamp[link] = serial
                links.left[link] = np.int64(links.capacity[link] * links.scale[link])
                links.flows[link] = 0
                trunks[joined] = link
                joined += 1
                for place in range(links.list[link], links.list[link] + links.listed[link]):
                    other = hops.bundle[lists[place]]
                    if bundles.stamp[other] != serial:
                        bundles.stamp[other] = serial
                        members[found] = other
                        found += 1
            links.flows[link] += bundles.flows[b]
        bundles.cap[b] = cap
        bundles.next[b] = cap  # what it gets unless a trunk holds it back
        i += 1
    return found, joined


@jit
def _fill(serial: int, trunks: Array, links: Any, hops: Any, bundles: Any, lists: Array) -> None:
    size = 0
    heap, offers = np.empty(len(trunks), np.int64), np.empty(len(trunks))
    for link in trunks:
        size = _push(heap, offers, size, link, links.left[link] / (links.scale[link] * links.flows[link]))
    while size > 0:
        link, then = heap[0], offers[0]
        size = _pop(heap, offers, size)
        if links.flows[link] == 0:
            continue
        offer = links.left[link] / (links.scale[link] * links.flows[link])
        if offer > then:  # others were fixed since
            size = _push(heap, offers, size, link, offer)
            continue
        begin, stop = links.list[link], links.list[link] + links.listed[link]
        capped = False
        for place in range(begin, stop):
            b = hops.bundle[lists[place]]
            if bundles.cap[b] <= offer and bundles.fixed[b] != serial:
                _fix(b, bundles.cap[b], serial, links, hops, bundles)
                capped = True
        if links.flows[link] == 0:
            continue
        if capped:
            offer = links.left[link] / (links.scale[link] * links.flows[link])
            size = _push(heap, offers, size, link, offer)
            continue
        for place in range(begin, stop):
            b = hops.bundle[lists[place]]
            if bundles.fixed[b] != serial:
                _fix(b, offer, serial, links, hops, bundles)


@jit
def _fix(b: int, rate: float, serial: int, links: Any, hops: Any, bundles: Any) -> None:
    bundles.fixed[b] = serial
    bundles.next[b] = rate
    n = bundles.flows[b]
    for h in range(bundles.hop[b], bundles.hop[b] + bundles.hops[b]):
        link = hops.link[h]
        if links.stamp[link] == serial:
            links.left[link] -= n * np.int64(rate * links.scale[link])
            links.flows[link] -= n


@jit
def _push(heap: Array, offers: Array, size: int, link: int, offer: float) -> int:
    at = size
    while at > 0:
        up = (at - 1) // 2
        if offers[up] < offer or (offers[up] == offer and heap[up] < link):
            break
        heap[at], offers[at] = heap[up], offers[up]
        at = up
    heap[at], offers[at] = link, offer
    return size + 1


@jit
def _pop(heap: Array, offers: Array, size: int) -> int:
    size -= 1
    link, offer = heap[size], offers[size]
    at = 0
    while 2 * at + 1 < size:
        down = 2 * at + 1
        right = down + 1
        if right < size and (
            offers[right] < offers[down] or (offers[right] == offers[down] and heap[right] < heap[down])
        ):
            down = right
        if offer < offers[down] or (offer == offers[down] and link < heap[down]):
            break
        heap[at], offers[at] = heap[down], offers[down]
        at = down
    heap[at], offers[at] = link, offer
    return size


@jit
def _wind(now: float, members: Array, bundles: Any, end: Array) -> float:
    """Set the bundles' clocks to their new rates; when the first flow among them ends."""
    soonest = np.inf
    for i, b in enumerate(members):
        rate = bundles.next[b]
        if rate != bundles.rate[b]:
            if now > bundles.since[b]:
                bundles.served[b] += bundles.rate[b] * (now - bundles.since[b])
                bundles.since[b] = now
            bundles.rate[b] = rate
        missing = bundles.mark[b] - bundles.served[b]
        end[i] = bundles.since[b] + (missing / rate if missing > 0.0 else 0.0)
        soonest = min(soonest, end[i])
    return soonest
