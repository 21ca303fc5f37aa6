"""Max-min fair rates for connected links: progressive filling, for the flows of both clocks.

Of all links, the one with the least offer to its flows is next. Flows on it that have no rate yet get that offer, and
take as much away from the other links of their routes, whose offers can only rise.

What is left of a link is counted in integers, units of 2**-60 of its capacity or finer. Integers have the same sum in
any order, and equal offers are taken in the order of the links' numbers. So the rates are a function of the flows
alone, not of the order in which they started.
"""

from __future__ import annotations

from math import inf

import numpy as np

from fedsim.kernels.cache import jit
from fedsim.kernels.clock.decorators import inner


@jit
def relist_and_fill(now_s, serial, changed, component, links, groups, hops, lists, due):
    """Relist changed groups, then `fill`: for Python, with memory of its own."""
    for number in changed:
        relist(number, links, groups, hops, lists)
    count = len(component)
    heap, offers = np.empty(count, np.int64), np.empty(count)
    return fill(now_s, serial, component, count, links, groups, hops, lists, due, heap, offers)


@inner
def fill(now_s, serial, component, count, links, groups, hops, lists, due, heap, offers):
    """Give all groups on connected links their rates.

    Return when the next of their flows ends, and in how many groups that is; `due` holds these.
    """
    size, named, soonest_s = 0, 0, inf
    for i in range(count):
        number = component[i]
        link = links[number]
        if link.listed > 0:
            link.left = np.int64(link.capacity * link.scale)
            link.unfixed, link.at = link.load, link.begin
            size = push_offer(heap, offers, size, number, link.left / (link.scale * link.unfixed))
    while size > 0:
        number, then = heap[0], offers[0]
        size = pop_offer(heap, offers, size)
        link = links[number]
        if link.unfixed == 0:
            continue
        offer = link.left / (link.scale * link.unfixed)
        if offer > then:  # flows were fixed elsewhere since, and another link may have the least offer
            size = push_offer(heap, offers, size, number, offer)
            continue
        left, unfixed, scale = link.left, link.unfixed, link.scale
        i, stop = link.at, link.begin + link.listed
        capped = i < stop and groups[lists[i]].key <= offer
        while i < stop:
            group = groups[lists[i]]
            if capped and group.key > offer:  # groups with a lower cap leave more to the others: a better offer
                break
            i += 1
            if group.stamp == serial:
                continue
            group.stamp = serial
            rate = group.key if group.key < offer else offer
            n = np.int64(group.flows)
            unfixed -= n
            left -= n * np.int64(rate * scale)
            for h in range(group.hop, group.hop + group.hops):
                if hops[h] != number:
                    other = links[hops[h]]
                    other.unfixed -= n
                    other.left -= n * np.int64(rate * other.scale)
            if rate != group.rate:
                if now_s > group.since:
                    group.served += group.rate * (now_s - group.since)
                    group.since = now_s
                group.rate = rate
            missing = group.mark - group.served
            end_s = group.since + missing / rate if missing > 0.0 else group.since
            if end_s <= soonest_s:
                named = named if end_s == soonest_s else 0
                soonest_s = end_s
                due[named] = lists[i - 1]
                named += 1
        link.at, link.left, link.unfixed = i, left, unfixed
        if unfixed > 0:
            size = push_offer(heap, offers, size, number, left / (scale * unfixed))
    return soonest_s, named


# --- The busy groups of every link, sorted by (cap on a flow, number of the group) ----------------------------------


@inner
def relist(number, links, groups, hops, lists):
    """Put a group where it belongs in the lists of its links: in if it is busy, out if it is idle."""
    group = groups[number]
    key = group.cap / group.flows if group.flows > 0 else -1.0
    if group.key == key:
        return
    if group.key >= 0.0:
        for h in range(group.hop, group.hop + group.hops):
            link = links[hops[h]]
            link.listed -= 1
            place = find(number, group.key, groups, lists, link.begin, link.listed)
            for i in range(place, link.begin + link.listed):
                lists[i] = lists[i + 1]
    group.key = key
    if key >= 0.0:
        for h in range(group.hop, group.hop + group.hops):
            link = links[hops[h]]
            place = find(number, key, groups, lists, link.begin, link.listed)
            for i in range(link.begin + link.listed, place, -1):
                lists[i] = lists[i - 1]
            lists[place] = number
            link.listed += 1


@inner
def find(number, key, groups, lists, begin, listed):
    """Return the place of a group in a list."""
    low, high = begin, begin + listed
    while low < high:
        middle = (low + high) >> 1
        other = groups[lists[middle]].key
        if other < key or (other == key and lists[middle] < number):
            low = middle + 1
        else:
            high = middle
    return low


# --- A heap of (offer, link) ----------------------------------------------------------------------------------------


@inner
def push_offer(heap, offers, size, link, offer):
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if offers[up] < offer or (offers[up] == offer and heap[up] < link):
            break
        heap[at], offers[at] = heap[up], offers[up]
        at = up
    heap[at], offers[at] = link, offer
    return size + 1


@inner
def pop_offer(heap, offers, size):
    size -= 1
    link, offer, at = heap[size], offers[size], 0
    while 2 * at + 1 < size:
        down, right = 2 * at + 1, 2 * at + 2
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
