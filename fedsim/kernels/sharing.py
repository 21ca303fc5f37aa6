"""Max-min fair rates for one group of connected links, compiled. `fedsim.bundles` explains the columns.

Progressive filling: of all links, the one that can offer its flows least is next; whoever on it has no rate yet
is fixed at that offer, and takes that much away from the other links of its route, whose offers can only rise.

What is left of a link is counted in whole numbers, units of 2**-60 of its capacity or finer. Whole numbers add
up to the same sum in any order, and equal offers are taken in the order of the links' numbers, so the rates are
a function of who is under way: one cannot see from them in which order flows started, or what happened before.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import jit


@jit
def share(
    now: float, serial: int, group: Array, links: Array, bundles: Array, trunks: Array, lists: Array, due: Array
) -> tuple[float, int]:
    """Serve a group of links anew: when its next flow ends, and in how many bundles, which `due` then names."""
    heap, offers = np.empty(len(group), np.int64), np.empty(len(group))
    size, named, soonest = 0, 0, np.inf
    for number in group:
        link = links[number]
        if link.listed > 0:
            link.left = np.int64(link.capacity * link.scale)
            link.unfixed, link.at = link.load, link.begin
            size = _push(heap, offers, size, number, link.left / (link.scale * link.unfixed))
    while size > 0:
        number, then = heap[0], offers[0]
        size = _pop(heap, offers, size)
        link = links[number]
        if link.unfixed == 0:
            continue
        offer = link.left / (link.scale * link.unfixed)
        if offer > then:  # some were fixed elsewhere since, and it may no longer be the least
            size = _push(heap, offers, size, number, offer)
            continue
        left, unfixed, scale = link.left, link.unfixed, link.scale  # in registers: every bundle here takes some
        i, stop = link.at, link.begin + link.listed
        capped = i < stop and bundles[lists[i]].key <= offer
        while i < stop:
            b = bundles[lists[i]]
            if capped and b.key > offer:  # those with a lower cap leave more to the others: a better offer
                break
            i += 1
            if b.stamp == serial:
                continue
            b.stamp = serial
            rate, n = min(b.key, offer), np.int64(b.flows)
            unfixed -= n
            left -= n * np.int64(rate * scale)
            for h in range(b.hop, b.hop + b.hops):
                if trunks[h] != number:
                    other = links[trunks[h]]
                    other.unfixed -= n
                    other.left -= n * np.int64(rate * other.scale)
            if rate != b.rate:  # wind its clock
                if now > b.since:
                    b.served += b.rate * (now - b.since)
                    b.since = now
                b.rate = rate
            missing = b.mark - b.served
            end = b.since + missing / rate if missing > 0.0 else b.since
            if end <= soonest:
                named = named if end == soonest else 0
                soonest = end
                due[named] = lists[i - 1]
                named += 1
        link.at, link.left, link.unfixed = i, left, unfixed
        if unfixed > 0:
            size = _push(heap, offers, size, number, left / (scale * unfixed))
    return soonest, named


# --- The busy bundles of every link, sorted by (cap on a flow, bundle) -------------------------------


@jit
def sort_in(changed: Array, links: Array, bundles: Array, trunks: Array, lists: Array) -> None:
    """Put bundles where they belong in the lists of their links: in if they are busy, out if they are idle."""
    for number in changed:
        b = bundles[number]
        key = b.cap / b.flows if b.flows > 0 else -1.0
        if b.key == key:
            continue
        if b.key >= 0.0:
            for h in range(b.hop, b.hop + b.hops):
                link = links[trunks[h]]
                link.listed -= 1
                place = _find(number, b.key, bundles, lists, link.begin, link.listed)
                for i in range(place, link.begin + link.listed):
                    lists[i] = lists[i + 1]
        b.key = key
        if key >= 0.0:
            for h in range(b.hop, b.hop + b.hops):
                link = links[trunks[h]]
                place = _find(number, key, bundles, lists, link.begin, link.listed)
                for i in range(link.begin + link.listed, place, -1):
                    lists[i] = lists[i - 1]
                lists[place] = number
                link.listed += 1


@jit
def _find(number: int, key: float, bundles: Array, lists: Array, begin: int, listed: int) -> int:
    """Where a bundle is, or would be, in a list."""
    low, high = begin, begin + listed
    while low < high:
        middle = (low + high) // 2
        other = bundles[lists[middle]].key
        if other < key or (other == key and lists[middle] < number):
            low = middle + 1
        else:
            high = middle
    return low


# --- A heap of (offer, link) -------------------------------------------------------------------------


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
