"""A heap of events in the order of (time, rank), and a sort.

That order is total, so results do not depend on the layout of the heap. Stale events, of visits that were cut or of
deadlines that were replaced, can be discarded at any time.
"""

from __future__ import annotations

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner
from fedsim.kernels.clock.state import OVER
from fedsim.rules import closing
from fedsim.rules.closing import is_before


@inner
def push(s, time_s, rank, at, stamp):
    """Add an event. `make_room` was called before."""
    replica, events = s.replica[0], s.events
    i = replica.events
    replica.events += 1
    while i > 0 and is_before(time_s, rank, events[(i - 1) >> 1].time_s, events[(i - 1) >> 1].rank):
        events[i] = events[(i - 1) >> 1]
        i = (i - 1) >> 1
    events[i].time_s, events[i].rank, events[i].at, events[i].stamp = time_s, rank, at, stamp


@inner
def pop(s):
    """Remove the first event; return its time, its kind, what it concerns and its stamp."""
    first = s.events[0]
    time_s, kind, at, stamp = first.time_s, closing.kind_of(first.rank), first.at, first.stamp
    s.replica[0].events -= 1
    sink(s.events, s.replica[0].events, 0, s.replica[0].events)
    return time_s, kind, at, stamp


@inner
def sink(events, size, i, source):
    """Put the event at `source` where it belongs at or below `i`."""
    time_s, rank, at, stamp = events[source].time_s, events[source].rank, events[source].at, events[source].stamp
    while 2 * i + 1 < size:
        down = 2 * i + 1
        if down + 1 < size:  # an addition instead of a branch that no processor can predict
            left, right = events[down], events[down + 1]
            down += is_before(right.time_s, right.rank, left.time_s, left.rank)
        if is_before(time_s, rank, events[down].time_s, events[down].rank):
            break
        events[i] = events[down]
        i = down
    events[i].time_s, events[i].rank, events[i].at, events[i].stamp = time_s, rank, at, stamp


@inner
def is_stale(s, kind, at, stamp):
    """Return True if what an event belongs to, a visit, a deadline or the rates of a group, is over."""
    if kind == closing.PROGRESS or closing.ends_visit(kind):
        return s.visits[at].stamp != stamp or s.visits[at].phase == OVER
    if kind == closing.DEADLINE:
        return s.sites[at].deadline != stamp or not s.sites[at].open
    if kind == closing.OPENING:
        return stamp != 0 and stamp != s.replica[0].opening
    return kind == closing.FLOW_END and is_flow_end_stale(s.links, at, stamp)


def is_flow_end_stale(links, at, stamp):
    """Return True if a group of flows has been served again; `messages` defines it by the type of links."""
    raise NotImplementedError


@inner
def make_room(s):
    """Remove stale events if those that one event may add could not fit: two a visit, a few a site, one a flow."""
    if len(s.events) - s.replica[0].events < 2 * len(s.visits) + 4 * len(s.sites) + s.replica[0].flows + 8:
        discard_stale(s)


@called
def discard_stale(s):
    """Remove stale events."""
    replica, events, kept = s.replica[0], s.events, 0
    for i in range(replica.events):
        if not is_stale(s, closing.kind_of(events[i].rank), events[i].at, events[i].stamp):
            events[kept] = events[i]
            kept += 1
    replica.events = kept
    for i in range(kept // 2 - 1, -1, -1):
        sink(events, kept, i, i)


@inner
def sort(keys, n):
    """Sort the first n numbers: a heap that is taken apart."""
    for top in range(n // 2 - 1, -1, -1):
        sift(keys, top, n, keys[top])
    for last in range(n - 1, 0, -1):
        key = keys[last]
        keys[last] = keys[0]
        sift(keys, 0, last, key)


@inner
def sift(keys, i, size, key):
    """Put a key where it belongs at or below `i`, the largest on top."""
    while 2 * i + 1 < size:
        down = 2 * i + 1
        if down + 1 < size and keys[down] < keys[down + 1]:
            down += 1
        if keys[down] <= key:
            break
        keys[i] = keys[down]
        i = down
    keys[i] = key
