"""Max-min fair rates for one group of connected links, compiled. `fedsim.bundles` explains the columns.

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
    now: float, serial: int, changed: Array, group: Array, links: Any, bundles: Any, trunks: Array, lists: Array
) -> tuple[float, Array]:
    """Serve a group of links anew; when its next flow ends, and in which bundles.

    `changed` are the bundles, of this group or another, that may be missing or out of order in the lists.
    """
    for b in changed:
        _list(b, links, bundles, trunks, lists)
    size = 0
    for link in group:
        size += links.listed[link]
    members, rates = np.empty(size, np.int64), np.empty(size)
    found = _fill(serial, group, links, bundles, trunks, lists, members, rates)
    soonest = _wind(now, members[:found], rates, bundles)
    return soonest, members[:found][rates[:found] == soonest]


@jit
def _list(b: int, links: Any, bundles: Any, trunks: Array, lists: Array) -> None:
    """Keep the lists of a bundle's links sorted by (cap, bundle): in with a busy one, out with an idle one."""
    key = bundles.key
    cap = bundles.cap[b] / bundles.flows[b] if bundles.flows[b] > 0 else -1.0
    if key[b] == cap:
        return
    row = trunks[bundles.hop[b] : bundles.hop[b] + bundles.hops[b]]
    if key[b] >= 0.0:
        for link in row:
            at = _find(b, lists, links.list[link], links.listed[link], key)
            links.listed[link] -= 1
            for i in range(at, links.list[link] + links.listed[link]):
                lists[i] = lists[i + 1]
    key[b] = cap
    if cap >= 0.0:
        for link in row:
            at = _find(b, lists, links.list[link], links.listed[link], key)
            for i in range(links.list[link] + links.listed[link], at, -1):
                lists[i] = lists[i - 1]
            lists[at] = b
            links.listed[link] += 1


@jit
def _find(b: int, lists: Array, begin: int, listed: int, key: Array) -> int:
    """Where a bundle is, or would be, in a list."""
    low, high = begin, begin + listed
    while low < high:
        middle = (low + high) // 2
        other = lists[middle]
        if key[other] < key[b] or (key[other] == key[b] and other < b):
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _fill(
    serial: int, group: Array, links: Any, bundles: Any, trunks: Array, lists: Array, members: Array, rates: Array
) -> int:
    """Fix everybody's rate: bundles and rates in the order in which they were fixed."""
    left, scale, unfixed, at = links.left, links.scale, links.unfixed, links.at
    key, stamp = bundles.key, bundles.stamp
    heap, offers = np.empty(len(group), np.int64), np.empty(len(group))
    size, found = 0, 0
    for link in group:
        if links.listed[link] > 0:
            ideal = links.capacity[link] == np.inf  # its scale is 0: it offers 1 / 0, and nothing is taken away
            left[link] = 1 if ideal else np.int64(links.capacity[link] * scale[link])
            unfixed[link], at[link] = links.load[link], links.list[link]
            size = _push(heap, offers, size, link, left[link] / (scale[link] * unfixed[link]))
    while size > 0:
        link, then = heap[0], offers[0]
        size = _pop(heap, offers, size)
        if unfixed[link] == 0:
            continue
        offer = left[link] / (scale[link] * unfixed[link])
        if offer <= then:  # or else some were fixed elsewhere since, and it may no longer be the least
            stop = links.list[link] + links.listed[link]
            last = -1.0
            while at[link] < stop:  # those whose cap is below the offer leave more to the others
                b = lists[at[link]]
                if stamp[b] != serial:
                    if key[b] != last:  # equal caps face the same offer, whatever their order
                        last = key[b]
                        offer = left[link] / (scale[link] * unfixed[link])
                        if last > offer:
                            break
                    members[found], rates[found] = b, last
                    found += 1
                    _fix(b, last, serial, bundles.hop, bundles.hops, bundles.flows, stamp, trunks, left, scale, unfixed)
                at[link] += 1
            if unfixed[link] == 0:
                continue
            offer = left[link] / (scale[link] * unfixed[link])
        if offer > then:
            size = _push(heap, offers, size, link, offer)
            continue
        for i in range(at[link], stop):
            b = lists[i]
            if stamp[b] != serial:
                members[found], rates[found] = b, offer
                found += 1
                _fix(b, offer, serial, bundles.hop, bundles.hops, bundles.flows, stamp, trunks, left, scale, unfixed)
    return found


@jit
def _fix(b, rate, serial, hop, hops, flows, stamp, trunks, left, scale, unfixed):
    stamp[b] = serial
    n = flows[b]
    for h in range(hop[b], hop[b] + hops[b]):
        link = trunks[h]
        if rate < np.inf:
            left[link] -= n * np.int64(rate * scale[link])
        unfixed[link] -= n


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
def _wind(now: float, members: Array, rates: Array, bundles: Any) -> float:
    """Set the clocks to their new rates, which become the times when each bundle's next flow ends; the first."""
    old, since, served, mark = bundles.rate, bundles.since, bundles.served, bundles.mark
    soonest = np.inf
    for i in range(len(members)):
        b, rate = members[i], rates[i]
        if rate != old[b]:
            if now > since[b]:
                served[b] += old[b] * (now - since[b])
                since[b] = now
            old[b] = rate
        missing = mark[b] - served[b]
        rates[i] = since[b] + (missing / rate if missing > 0.0 else 0.0)
        soonest = min(soonest, rates[i])
    return soonest
