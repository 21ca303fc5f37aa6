"""The event loops that Python calls; each is a compile unit. Private and shared links are two versions of one loop."""

from __future__ import annotations

from math import inf

from numba.extending import overload

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.asynchronous import give_places, open_version, opening
from fedsim.kernels.clock.asynchronous import visit_ended as client_ended
from fedsim.kernels.clock.decorators import INNER, inner, unit
from fedsim.kernels.clock.heap import is_stale, make_room, pop
from fedsim.kernels.clock.messages import link_event, room_for_flows, share
from fedsim.kernels.clock.references import by_reference
from fedsim.kernels.clock.rounds import close_round, model_arrived, open_round, stop, visit_ended
from fedsim.kernels.clock.state import DONE, NEEDS_GROWTH, NEVER_CLOSES, AsynchronousState, Links, State
from fedsim.rules import closing


@unit
def advance(w, state, scratch, out, active, until):
    """Handle events until the active replicas have closed round `until`, or will never; return why it ended."""
    w, state, scratch, out = by_reference(w), by_reference(state), by_reference(scratch), by_reference(out)
    for r in active:
        status = advance_replica(w, by_reference(of_replica(state, r)), scratch, out, until)
        if status != DONE:
            return status
    return DONE


@inner
def advance_replica(w, s, scratch, out, until):
    replica = s.replica[0]
    while replica.closed_rounds < until and replica.closed_rounds + 1 != replica.stop_round:
        if replica.status != DONE:
            return replica.status
        if needs_growth(w, s, out):
            return NEEDS_GROWTH
        make_room(s)
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
        if closing.ends_visit(kind):
            visit_ended(w, s, out, at, kind)
        elif kind == closing.OPENING:
            open_round(w, s, scratch, out, at)
        elif kind == closing.DEADLINE:
            close_round(w, s, out, at)
        elif kind == closing.MERGE:
            model_arrived(w, s, out, at)
        else:
            link_event(w, s, kind, at)
    return replica.status


@inner
def needs_growth(w, s, out):
    """Return True if an event may need more memory than there is."""
    counts, slots, sites = out.counts[0], len(s.visits), len(s.sites)
    most_flows = slots + sites + (len(w.members) if w.broadcasts_to_all else 0)
    return (
        counts.visits + slots > len(out.visits.client)
        or counts.segments + sites > len(out.segments)
        or room_for_flows(s) < most_flows
    )


# --- Asynchronous clients -------------------------------------------------------------------------------------------


@unit
def advance_clients(w, state, out, active, until):
    """Handle events until the active replicas have aggregated `until` times, or will never; return why it ended."""
    w, state, out = by_reference(w), by_reference(state), by_reference(out)
    for r in active:
        status = advance_clients_of(w, by_reference(part_of_replica(state, r)), out, until)
        if status != DONE:
            return status
    return DONE


@inner
def advance_clients_of(w, s, out, until):
    replica, server = s.replica[0], s.server[0]
    while replica.closed_rounds < until and replica.closed_rounds + 1 != replica.stop_round:
        if replica.status != DONE:
            return replica.status
        if clients_need_growth(w, s, out):
            return NEEDS_GROWTH
        make_room(s)
        if server.pending:
            open_version(w, s, out)
        if server.gives:
            give_places(w, s, out)
            continue
        if replica.sharing and (replica.events == 0 or s.events[0].time_s > replica.now_s):
            share(s)
        if replica.events == 0 or s.events[0].time_s == inf:
            if server.oldest < 0:  # no client will come online
                stop(replica, replica.closed_rounds + 1, closing.NO_CLIENTS)
                continue
            replica.status = NEVER_CLOSES
            return NEVER_CLOSES
        time_s, kind, at, stamp = pop(s)
        if is_stale(s, kind, at, stamp):
            continue
        replica.now_s = time_s
        if closing.ends_visit(kind):
            client_ended(w, s, out, at, kind)
        elif kind == closing.OPENING:
            opening(w, s, at)
        else:
            link_event(w, s, kind, at)
    return replica.status


@inner
def clients_need_growth(w, s, out):
    """Return True if an event may need more memory than there is."""
    counts, slots = out.counts[0], len(s.visits)
    most_flows = slots + (len(w.members) if w.broadcasts_to_all else 0)
    return (
        counts.visits == len(out.version)
        or counts.starts + slots > len(out.started_s)
        or counts.segments == len(out.segments)
        or room_for_flows(s) < most_flows
    )


# --- One replica's part of the state --------------------------------------------------------------------------------


def links_of(links, r):
    """Return one replica's part of the links."""
    raise NotImplementedError


@overload(links_of, jit_options=INNER)
def _(links, r):
    if links.instance_class is not Links:
        return lambda links, r: links

    def one(links, r):
        return Links(
            links.trunks[r],
            links.routes[r],
            links.groups[r],
            links.flows[r],
            links.starting[r],
            links.hops[r],
            links.lists[r],
            links.privates[r],
            links.table[r],
            links.changed[r],
            links.due[r],
            links.component[r],
            links.offers[r],
            links.offering[r],
        )

    return one


@inner
def of_replica(s, r):
    """Return one replica's part of the state."""
    return State(s.replica[r : r + 1], s.events[r], s.sites[r], s.visits[r], s.clients[r], links_of(s.links, r))


@inner
def part_of_replica(s, r):
    """Return one replica's part of the state of asynchronous clients."""
    return AsynchronousState(
        s.replica[r : r + 1],
        s.events[r],
        s.sites[r],
        s.visits[r],
        s.clients[r],
        links_of(s.links, r),
        s.server[r : r + 1],
        s.flights[r],
        s.places[r],
        s.numbers[r],
        s.idle[r],
    )
