"""Max-min fair rates of the bundles that an event touches, compiled. `fedsim.flows` says what a bundle is.

Rates come from progressive filling in rounds. Every busy link offers its unfixed flows an equal part of what is
left of it; a bundle is fixed at the smallest offer on its route as soon as no later round can change that offer.

What is left of a link is counted in whole numbers, units of 2**-61 of its capacity or finer: whole numbers add
up to the same sum in any order, so the rates do not depend on the order in which flows were started.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
jit = nb.njit(nogil=True, cache=True, error_model="numpy")


@jit
def refresh(
    now: float, serial: int, toggled: Array, seeds: Array, links: Any, hops: Any, bundles: Any
) -> tuple[Array, Array, Array]:
    """New rates for every bundle connected to the `seeds` through links that two bundles use.

    `toggled` are the bundles that became busy or idle since the last call. Returns, for each connected component,
    when its next flow ends and where its bundles stop in the third array, which names the bundles that end then.
    """
    for b in toggled:
        _list(b, hops, links, bundles)
    size = len(bundles.flows)
    members, cap, rate, end = np.empty(size, np.int64), np.empty(size), np.empty(size), np.empty(size)
    first, trunk = np.empty(size + 1, np.int64), np.empty(len(hops.link), np.int64)
    left, flows = np.empty(len(hops.link), np.int64), np.empty(len(hops.link), np.int64)
    scale = np.empty(len(hops.link))
    ends, stops, due = np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64)
    components, named = 0, 0
    for seed in seeds:
        alive = bundles.flows[seed] > 0
        for h in range(bundles.hop[seed], bundles.hop[seed] + (1 if alive else bundles.hops[seed])):
            start = seed
            if not alive:  # it left: whoever remains on its links is affected
                bundles.stamp[seed] = serial
                if links.first[hops.link[h]] < 0:
                    continue
                start = hops.bundle[links.first[hops.link[h]]]
            if bundles.stamp[start] == serial:
                continue
            found, trunks = _component(
                start, serial, links, hops, bundles, members, cap, first, trunk, left, flows, scale
            )
            _fill(found, trunks, members, cap, first, trunk, left, flows, scale, bundles, rate)
            ends[components] = _wind(now, members[:found], rate, bundles, end)
            for i in range(found):
                if end[i] == ends[components]:
                    due[named] = members[i]
                    named += 1
            stops[components] = named
            components += 1
    return ends[:components].copy(), stops[:components].copy(), due[:named].copy()


@jit
def _list(b: int, hops: Any, links: Any, bundles: Any) -> None:
    """Enter a busy bundle in its links' lists, take an idle one out."""
    for h in range(bundles.hop[b], bundles.hop[b] + bundles.hops[b]):
        link = hops.link[h]
        if bundles.flows[b] > 0:
            after = links.first[link]
            hops.before[h], hops.after[h] = -1, after
            links.first[link] = h
            if after >= 0:
                hops.before[after] = h
        else:
            before, after = hops.before[h], hops.after[h]
            if before >= 0:
                hops.after[before] = after
            else:
                links.first[link] = after
            if after >= 0:
                hops.before[after] = before


@jit
def _component(
    start: int, serial: int, links: Any, hops: Any, bundles: Any,
    members: Array, cap: Array, first: Array, trunk: Array, left: Array, flows: Array, scale: Array,
) -> tuple[int, int]:  # fmt: skip
    """Find the bundles connected to `start`, and number the links that connect them (trunks) from 0.

    A link that one bundle has to itself is no trunk but a cap on that bundle. An ideal link is neither.
    """
    found, trunks, used = 1, 0, 0
    members[0] = start
    bundles.stamp[start] = serial
    i = 0
    while i < found:
        b = members[i]
        cap[i] = np.inf
        first[i] = used
        for h in range(bundles.hop[b], bundles.hop[b] + bundles.hops[b]):
            link = hops.link[h]
            if links.capacity[link] == np.inf:
                continue
            if links.users[link] == 1:
                cap[i] = min(cap[i], links.capacity[link] / bundles.flows[b])
                continue
            if links.stamp[link] != serial:
                links.stamp[link] = serial
                links.number[link] = trunks
                scale[trunks] = links.scale[link]
                left[trunks] = np.int64(links.capacity[link] * links.scale[link])
                flows[trunks] = 0
                trunks += 1
                other = links.first[link]
                while other >= 0:
                    o = hops.bundle[other]
                    if bundles.stamp[o] != serial:
                        bundles.stamp[o] = serial
                        members[found] = o
                        found += 1
                    other = hops.after[other]
            trunk[used] = links.number[link]
            flows[trunk[used]] += bundles.flows[b]
            used += 1
        i += 1
    first[found] = used
    return found, trunks


@jit
def _fill(
    found: int, trunks: int, members: Array, cap: Array, first: Array, trunk: Array,
    left: Array, flows: Array, scale: Array, bundles: Any, rate: Array,
) -> None:  # fmt: skip
    offer, settled = np.empty(trunks), np.empty(trunks, np.bool_)
    waiting = np.arange(found)
    count = found
    while count > 0:
        for t in range(trunks):
            offer[t] = left[t] / (scale[t] * flows[t])
            settled[t] = True  # until one of its flows turns out to be held back elsewhere
        for w in range(count):
            i = waiting[w]
            low = cap[i]
            for k in range(first[i], first[i + 1]):
                low = min(low, offer[trunk[k]])
            rate[i] = low
            for k in range(first[i], first[i + 1]):
                if offer[trunk[k]] > low:
                    settled[trunk[k]] = False
        kept = 0
        for w in range(count):
            i = waiting[w]
            fixed = rate[i] == cap[i]
            for k in range(first[i], first[i + 1]):
                fixed = fixed or settled[trunk[k]]
            if not fixed:
                waiting[kept] = i
                kept += 1
                continue
            n = bundles.flows[members[i]]
            for k in range(first[i], first[i + 1]):
                left[trunk[k]] -= n * np.int64(rate[i] * scale[trunk[k]])
                flows[trunk[k]] -= n
        count = kept


@jit
def _wind(now: float, members: Array, rate: Array, bundles: Any, end: Array) -> float:
    """Set the bundles' clocks to their new rates; when the first flow among them ends."""
    soonest = np.inf
    for i, b in enumerate(members):
        if rate[i] != bundles.rate[b]:
            if now > bundles.since[b]:
                bundles.served[b] += bundles.rate[b] * (now - bundles.since[b])
                bundles.since[b] = now
            bundles.rate[b] = rate[i]
        missing = bundles.mark[b] - bundles.served[b]
        if missing <= 0.0:
            end[i] = bundles.since[b]
        else:
            end[i] = bundles.since[b] + missing / rate[i]
        soonest = min(soonest, end[i])
    return soonest
