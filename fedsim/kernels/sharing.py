"""Max-min fair rates for one group of connected links, compiled. `fedsim.bundles` explains the columns.

Progressive filling: of all links, the one that can offer its flows least is next; whoever on it has no rate yet
is fixed at that offer, and takes that much away from the other links of its route, whose offers can only rise.

What is left of a link is counted in whole numbers, units of 2**-60 of its capacity or finer. Whole numbers add
up to the same sum in any order, and equal offers are taken in the order of the links' numbers, so the rates are
a function of who is under way: one cannot see from them in which order flows started, or what happened before.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
jit: Any = nb.njit(nogil=True, cache=True, error_model="numpy")


@jit  # type: ignore[untyped-decorator]
def fill(
    serial: int, group: Array, trunks: Array, lists: Array,
    capacity: Array, scale: Array, load: Array, begin: Array, listed: Array, left: Array, unfixed: Array, at: Array,
    hop: Array, hops: Array, flows: Array, stamp: Array, key: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """The bundles of a group of links and the rates of their flows, in the order in which they were fixed."""
    heap, offers = np.empty(len(group), np.int64), np.empty(len(group))
    size, most, found = 0, 0, 0
    for link in group:
        if listed[link] > 0:
            ideal = capacity[link] == np.inf  # its scale is 0: it offers 1 / 0, and nothing is taken away
            left[link] = 1 if ideal else np.int64(capacity[link] * scale[link])
            unfixed[link], at[link] = load[link], begin[link]
            size = _push(heap, offers, size, link, left[link] / (scale[link] * unfixed[link]))
            most += listed[link]
    members, rates = np.empty(most, np.int64), np.empty(most)
    while size > 0:
        link, then = heap[0], offers[0]
        size = _pop(heap, offers, size)
        if unfixed[link] == 0:
            continue
        offer = left[link] / (scale[link] * unfixed[link])
        if offer > then:  # some were fixed elsewhere since, and it may no longer be the least
            size = _push(heap, offers, size, link, offer)
            continue
        rest, waiting, unit = left[link], unfixed[link], scale[link]  # in registers: nearly every bundle needs them
        i, stop = at[link], begin[link] + listed[link]
        capped = i < stop and key[lists[i]] <= offer
        while i < stop:
            b = lists[i]
            if capped and key[b] > offer:  # those with a lower cap leave more to the others: a better offer
                break
            if stamp[b] != serial:
                rate = min(key[b], offer)
                members[found], rates[found] = b, rate
                found += 1
                stamp[b] = serial
                n = flows[b]
                waiting -= n
                if rate < np.inf:
                    rest -= n * np.int64(rate * unit)
                for h in range(hop[b], hop[b] + hops[b]):
                    other = trunks[h]
                    if other != link:
                        unfixed[other] -= n
                        if rate < np.inf:
                            left[other] -= n * np.int64(rate * scale[other])
            i += 1
        at[link], left[link], unfixed[link] = i, rest, waiting
        if waiting > 0:
            size = _push(heap, offers, size, link, rest / (unit * waiting))
    return members[:found], rates[:found]


@jit  # type: ignore[untyped-decorator]
def wind(
    now: float, members: Array, rates: Array, rate: Array, since: Array, served: Array, mark: Array
) -> tuple[float, Array]:
    """Set the clocks of bundles to new rates; when the first flow among them ends, and in which bundles."""
    ends, soonest = np.empty(len(members)), np.inf
    for i in range(len(members)):
        b = members[i]
        if rates[i] != rate[b]:
            if now > since[b]:
                served[b] += rate[b] * (now - since[b])
                since[b] = now
            rate[b] = rates[i]
        missing = mark[b] - served[b]
        ends[i] = since[b] + (missing / rate[b] if missing > 0.0 else 0.0)
        soonest = min(soonest, ends[i])
    return soonest, members[ends == soonest]


# --- The busy bundles of every link, sorted by (cap on a flow, bundle) -------------------------------


@jit  # type: ignore[untyped-decorator]
def sort_in(
    changed: Array, trunks: Array, lists: Array, begin: Array, listed: Array,
    hop: Array, hops: Array, flows: Array, cap: Array, key: Array,
) -> None:  # fmt: skip
    """Put bundles where they belong in the lists of their links: in if they are busy, out if they are idle."""
    for b in changed:
        new = cap[b] / flows[b] if flows[b] > 0 else -1.0
        if key[b] == new:
            continue
        route = trunks[hop[b] : hop[b] + hops[b]]
        if key[b] >= 0.0:
            for link in route:
                listed[link] -= 1
                for i in range(_find(b, lists, begin[link], listed[link], key), begin[link] + listed[link]):
                    lists[i] = lists[i + 1]
        key[b] = new
        if new >= 0.0:
            for link in route:
                place = _find(b, lists, begin[link], listed[link], key)
                for i in range(begin[link] + listed[link], place, -1):
                    lists[i] = lists[i - 1]
                lists[place] = b
                listed[link] += 1


@jit  # type: ignore[untyped-decorator]
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


# --- A heap of (offer, link) -------------------------------------------------------------------------


@jit  # type: ignore[untyped-decorator]
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


@jit  # type: ignore[untyped-decorator]
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
