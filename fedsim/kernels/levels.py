# mypy: allow-untyped-defs
"""Max-min fair rates that follow single flows as they come and go, compiled: many flows on up to some hundred links.

Under max-min fairness a flow's rate is the least *level* among the links of its route, and all flows that one link
limits have the same rate, the link's level. So there are as many unknowns as links, however many flows there are:

    sum over links l of counts[l, k] * level[l] = capacity[k]        for every link k that limits somebody,

where counts[l, k] says how many flows that l limits cross k. Links are kept in the `order` of their levels, and every
flow belongs to the first link of its route in that order, which makes the system triangular. When a flow comes or goes,
one sweep along the order, from its link on, brings all levels up to date; where a link's level falls below that of the
link before it, the two change places, and the flows of the one that cross the other change over. Levels that rise along
the order are the fair ones, because then every flow is among the fastest on a link that is full.

Each link has a clock that counts the bits which each of its flows has had; a flow ends when its link's clock reaches
its mark. How to use it, all inside compiled code:

    s = Levels(...), as `made` makes it: flat arrays, nothing else
    advance(s, seconds)           wind all clocks
    add(s, flow, bits)            a flow sets out now, over route[starts[flow]:starts[flow + 1]] of finite links
    remove(s, flow)               it is over, or called off; before, `missing(s, flow)` are the bits not yet sent
    next_end(s)                   (in how many seconds the next flow ends, which); inf and -1 where none does
    rate                          of a flow is s.level[s.owner[flow]]

`add` and `remove` answer False where rounding will not let the order come to rest: begin again with another method.
Rates agree with those of `fedsim.kernels.clock.maxmin`, which are the same whatever happened before, to about 1e-13.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.cache import jit
from fedsim.kernels.pairing_heap import meld, without

LOOSE = 1e-12  # of a level: what counts as equal
FULL = 1e-11  # of a capacity: by how much the flows of others may exceed it before a link limits them


class Levels(NamedTuple):
    """All that is known of links and flows."""

    capacity: Array  # by link, finite
    level: Array  # by link: the rate of each flow that it limits
    spare: Array  # by link: capacity less what all its flows have; 0 if it limits any, once levels are up to date
    served: Array  # by link: what its clock says
    first: Array  # by link: one of its flows, -1: none
    soonest: Array  # by link: that of its flows with the least mark, -1: none
    order: Array  # links by rising level, those that limit nobody at the end
    place: Array  # by link: where it is in the order
    counts: Array  # (links, links) flows of the row's link that cross the column's
    starts: Array  # by flow: where its route begins, and one more
    route: Array
    mark: Array  # by flow
    owner: Array  # by flow: the link that limits it, -1: not under way
    after: Array  # by flow: the next of its link's flows
    before: Array
    # A link's flows are also a pairing heap by their marks, `soonest` at its top.
    child: Array  # by flow: the first of those below it
    sibling: Array  # by flow: the next of those below the same one
    above: Array  # by flow: the sibling before it or, for the first, the one that it is below


def made(capacity: Array, starts: Array, route: Array) -> Levels:
    """No flow is under way yet."""
    links, flows = len(capacity), len(starts) - 1
    numbers, none = np.arange(links), np.full(flows, -1)
    return Levels(
        capacity, np.zeros(links), capacity.copy(), np.zeros(links), np.full(links, -1),
        np.full(links, -1), numbers, numbers.copy(), np.zeros((links, links)), starts, route,
        np.zeros(flows), none, none.copy(), none.copy(), none.copy(), none.copy(), none.copy(),
    )  # fmt: skip


@jit
def advance(s, seconds):
    """Wind all clocks."""
    served, level = s.served, s.level
    for link in range(len(level)):
        served[link] += level[link] * seconds


@jit
def missing(s, flow):
    """How many bits a flow has yet to send."""
    return max(s.mark[flow] - s.served[s.owner[flow]], 0.0)


@jit
def next_end(s):
    """In how many seconds the next flow ends if nothing else happens, and which it is."""
    order, soonest, mark, served, level = s.order, s.soonest, s.mark, s.served, s.level
    wait, link = np.inf, -1
    for k in range(len(order)):
        here = order[k]
        if soonest[here] < 0:  # so has everything after it
            break
        then = (mark[soonest[here]] - served[here]) / level[here]
        if then < wait:
            wait, link = then, here
    if link < 0:
        return np.inf, -1
    return max(wait, 0.0), soonest[link]


@jit
def add(s, flow, bits):
    """A flow sets out."""
    owner = s.route[s.starts[flow]]
    for i in range(s.starts[flow], s.starts[flow + 1]):
        if s.place[s.route[i]] < s.place[owner]:
            owner = s.route[i]
    _enlist(s, flow, owner, bits)
    for i in range(s.starts[flow], s.starts[flow + 1]):
        s.counts[owner, s.route[i]] += 1.0
        s.spare[s.route[i]] -= s.level[owner]
    return _sweep(s, s.place[owner])


@jit
def remove(s, flow):
    """A flow is over."""
    owner = s.owner[flow]
    _strike(s, flow)
    for i in range(s.starts[flow], s.starts[flow + 1]):
        s.counts[owner, s.route[i]] -= 1.0
        s.spare[s.route[i]] += s.level[owner]
    return _sweep(s, s.place[owner])


@jit
def _sweep(s, k):
    """Bring the levels up to date from this place in the order on."""
    # Arrays by name: reaching for one in the tuple counts references, which in this loop would cost more than it does.
    capacity, level, spare, first, order, counts = s.capacity, s.level, s.spare, s.first, s.order, s.counts
    links = len(order)
    patience = 200 + 40 * links
    while k < links:
        link = order[k]
        limits = first[link] >= 0
        if limits:
            change = spare[link] / counts[link, link]
            if abs(change) > LOOSE * level[link]:
                level[link] += change
                for other in range(links):
                    spare[other] -= counts[link, other] * change
                spare[link] = 0.0
        before = order[k - 1] if k > 0 else link
        if k == 0:
            falls = False
        elif limits:
            falls = first[before] < 0 or level[link] < level[before] * (1.0 - LOOSE)
        else:  # it limits nobody: for good, unless the others' flows are too much for it
            falls = spare[link] < -FULL * capacity[link]
        if falls:
            patience -= 1
            if patience < 0:
                return False
            _overtake(s, k)
            k -= 1
        else:
            k += 1
    return True


@jit
def _overtake(s, k):
    """A link changes places with the one before it, and takes over those of its flows that cross it."""
    order, place, counts, first, level = s.order, s.place, s.counts, s.first, s.level
    link, other = order[k], order[k - 1]
    order[k - 1], order[k] = link, other
    place[link], place[other] = k - 1, k
    if counts[other, link] == 0.0:
        return
    if first[link] < 0:
        level[link] = level[other]
    starts, route, spare, after = s.starts, s.route, s.spare, s.after
    gain = level[other] - level[link]
    flow = first[other]
    while flow >= 0:
        following = after[flow]
        crosses = False
        for i in range(starts[flow], starts[flow + 1]):
            crosses |= route[i] == link
        if crosses:
            left = s.mark[flow] - s.served[other]
            _strike(s, flow)
            _enlist(s, flow, link, left)
            for i in range(starts[flow], starts[flow + 1]):
                counts[other, route[i]] -= 1.0
                counts[link, route[i]] += 1.0
                spare[route[i]] += gain
        flow = following
    if first[other] < 0:
        level[other] = 0.0


@jit
def _enlist(s, flow, link, bits):
    """Among a link's flows."""
    head = s.first[link]
    if head < 0:
        s.served[link] = 0.0
    s.mark[flow], s.owner[flow] = s.served[link] + bits, link
    s.before[flow], s.after[flow] = -1, head
    if head >= 0:
        s.before[head] = flow
    s.first[link] = flow
    s.soonest[link] = meld(s.mark, s.child, s.sibling, s.above, s.soonest[link], flow)


@jit
def _strike(s, flow):
    """No longer among its link's flows."""
    before, after, first = s.before, s.after, s.first
    link = s.owner[flow]
    s.owner[flow] = -1
    if before[flow] >= 0:
        after[before[flow]] = after[flow]
    else:
        first[link] = after[flow]
    if after[flow] >= 0:
        before[after[flow]] = before[flow]
    s.soonest[link] = without(s.mark, s.child, s.sibling, s.above, s.soonest[link], flow)


@jit
def run(s, order, begins, bits, finish):
    """Flows that set out in this order at these times: when each ends. False where this method gives up."""
    now, i, under_way = 0.0, 0, 0
    while i < len(order) or under_way > 0:
        wait, flow = next_end(s)
        end = now + wait
        begin = begins[order[i]] if i < len(order) else np.inf
        if flow >= 0 and end <= begin:
            advance(s, wait)
            now = end
            finish[flow] = end
            under_way -= 1
            well = remove(s, flow)
        else:
            if begin == np.inf:
                return False
            if under_way > 0:
                advance(s, begin - now)
            now = begin
            well = add(s, order[i], bits[order[i]])
            i += 1
            under_way += 1
        if not well:
            return False
    return True
