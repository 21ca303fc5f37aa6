"""The event loop of sites that gossip, a compile unit; it shares heap, flows, draws and rules with the other loops."""

from __future__ import annotations

from math import inf

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner, unit
from fedsim.kernels.clock.gossip import (
    aggregate,
    computed,
    drop_out,
    go_offline,
    link_ended,
    message_over,
    open_round,
)
from fedsim.kernels.clock.gossip_state import GossipState
from fedsim.kernels.clock.heap import is_flow_end_stale, pop, sink
from fedsim.kernels.clock.loops import links_of
from fedsim.kernels.clock.messages import room_for_flows, share
from fedsim.kernels.clock.references import by_reference
from fedsim.kernels.clock.rounds import stop
from fedsim.kernels.clock.state import DONE, NEEDS_GROWTH, NEVER_CLOSES
from fedsim.rules import closing


@unit
def advance_gossip(w, state, active, until):
    """Handle events until the active replicas have closed round `until`, or will never; return why it ended."""
    w, state = by_reference(w), by_reference(state)
    for r in active:
        status = advance_replica(w, by_reference(of_replica(state, r)), until)
        if status != DONE:
            return status
    return DONE


@inner
def advance_replica(w, s, until):
    replica = s.replica[0]
    while replica.closed_rounds < until and replica.closed_rounds + 1 != replica.stop_round:
        if replica.status != DONE:
            return replica.status
        if needs_growth(w, s):
            return NEEDS_GROWTH
        if replica.sharing and (replica.events == 0 or s.events[0].time_s > replica.now_s):
            share(s)
        if replica.events == 0 or s.events[0].time_s == inf:
            if w.limit_s < inf:
                stop(replica, replica.closed_rounds + 1, closing.OUT_OF_TIME)
                continue
            replica.status = NEVER_CLOSES
            return NEVER_CLOSES
        time_s, kind, at, stamp = pop(s)
        if is_stale(s, kind, at, stamp):
            continue
        replica.now_s = time_s
        if kind == closing.ARRIVAL or (kind == closing.BREAK and at >= 0):
            message_over(w, s, at)
        elif kind == closing.PROGRESS:
            computed(w, s, -1 - at)
        elif kind == closing.OPENING:
            open_round(w, s, at)
        elif kind == closing.DEADLINE:
            aggregate(s, at)
        elif kind == closing.FLOW_END:
            link_ended(w, s, at)
        elif kind == closing.OFFLINE:
            go_offline(w, s, -1 - at)
        else:
            drop_out(w, s, -1 - at)
    return replica.status


@inner
def is_stale(s, kind, at, stamp):
    """Return True if the message, work, deadline or end of a flow of an event is over."""
    if kind == closing.FLOW_END:
        return is_flow_end_stale(s.links, at, stamp)
    if kind == closing.OPENING:
        return False
    if kind == closing.DEADLINE:
        return s.sites[at].deadline != stamp
    if at >= 0:
        return s.messages[at].stamp != stamp
    return stamp > 0 and (s.sites[-1 - at].ended + 1 != stamp or not s.sites[-1 - at].computing)


@inner
def needs_growth(w, s):
    """Return True if an event may need more memory than there is, stale events discarded.

    An event may end one round and open none; it adds an event for each message of a site, for each neighbour that ends
    its round, and, when links are shared, for each flow.
    """
    replica = s.replica[0]
    most_events = 4 * w.degree + 8 + replica.flows
    if len(s.events) - replica.events < most_events:
        discard_stale(s)
    return (
        len(s.events) - replica.events < most_events
        or len(s.messages) - replica.in_flight < w.degree
        or replica.newest + 2 - replica.first_round > len(s.site_rows)
        or room_for_flows(s) < w.degree
    )


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
def of_replica(s, r):
    """Return one replica's part of the state."""
    return GossipState(
        s.replica[r : r + 1],
        s.events[r],
        s.sites[r],
        s.messages[r],
        s.site_rows[r],
        s.message_rows[r],
        links_of(s.links, r),
    )
