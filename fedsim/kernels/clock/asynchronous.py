"""Asynchronous clients: the server aggregates whenever K replies have arrived (`simpy/asynchronous`).

Visits and links are those of the synchronous loop. A visit is listed when it ends, so a round is a part of one list.
Between two events `give_places` assigns the free places. The place of the client whose reply closed a round is assigned
when the next round is requested, so that nothing is carried over from one block to the next.
"""

from __future__ import annotations

from math import inf

import numpy as np

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner
from fedsim.kernels.clock.heap import push, sort
from fedsim.kernels.clock.messages import send_unselected
from fedsim.kernels.clock.rounds import stop
from fedsim.kernels.clock.selection import SELECT, is_online, online_s
from fedsim.kernels.clock.state import TOO_LATE
from fedsim.kernels.clock.visits import end_visit, list_visit, reply_bits, start_visit
from fedsim.rules import closing, draws


@inner
def open_version(w, s, out):
    """Begin a round: the clients that the last one kept waiting, or the one that closed it, are idle again."""
    replica, server, clients = s.replica[0], s.server[0], len(s.idle)
    server.pending, server.unselected, server.opened_s = 0, 0, inf
    server.visits, server.starts = out.counts[0].visits, out.counts[0].starts
    if replica.closed_rounds == 0:
        return  # first starts are events
    if w.remembers:
        waited = server.waiting
        server.waiting = 0
        sort(s.idle[clients - waited :], waited)
        for i in range(clients - waited, clients):
            idle_again(s, s.idle[i])
    else:
        idle_again(s, server.filler)
    server.informs = w.broadcasts_to_all


@inner
def idle_again(s, c):
    """Note that a client may start, in its own place or where it is drawn; `give_places` comes next."""
    server = s.server[0]
    s.idle[server.idle] = c
    server.idle += 1
    server.gives = 1


@inner
def visit_ended(w, s, out, slot, kind):
    """List a visit, aggregate if its reply fills the buffer, and leave its place to a client."""
    replica, server, v, arrived = s.replica[0], s.server[0], s.visits[slot], kind == closing.ARRIVAL
    end_visit(w, s, slot, kind)
    list_ended(out, v, s.flights[slot])
    leave_flight(s, slot)
    server.opened_s = v.started_s if v.started_s < server.opened_s else server.opened_s
    server.arrived += arrived
    server.dropped = 0 if arrived else server.dropped + 1
    s.places[server.free] = slot
    server.free += 1
    server.gives = 1
    full, waits = closing.buffer_is_full(server.arrived, w.replies), arrived and w.remembers
    if waits:
        server.waiting += 1
        s.idle[len(s.idle) - server.waiting] = v.client
    elif not full:
        idle_again(s, v.client)
    if full:
        server.filler, server.pending = v.client, 1
        aggregate(s, out)
    elif closing.gives_up(server.dropped, len(s.visits)):
        stop(replica, replica.closed_rounds + 1, closing.NO_CLIENTS)


@inner
def aggregate(s, out):
    """Close the round and list it."""
    replica, server, counts = s.replica[0], s.server[0], out.counts[0]
    replica.closed_rounds += 1
    server.arrived = 0
    segment = out.segments[counts.segments]
    counts.segments += 1
    segment.position, segment.round, segment.unselected = replica.position, replica.closed_rounds, server.unselected
    segment.visits, segment.ends, segment.starts, segment.last_start = (
        server.visits, counts.visits, server.starts, counts.starts,
    )  # fmt: skip
    segment.opened_s, segment.closed_s = server.opened_s, replica.now_s
    segment.oldest = replica.closed_rounds if server.oldest < 0 else s.flights[server.oldest].version


@inner
def list_ended(out, v, flight):
    counts, at = out.counts[0], out.counts[0].visits
    counts.visits += 1
    list_visit(out.visits, at, v)
    out.version[at], out.visit[at] = flight.version, flight.visit


# --- The next visits ------------------------------------------------------------------------------------------------


@inner
def opening(w, s, at):
    """Note that a client, or the first of the idle ones, comes online."""
    server = s.server[0]
    if w.size == 0:
        idle_again(s, at)
    else:
        server.informs = w.broadcasts_to_all and server.draws == 0
        server.gives, server.opens_s = 1, inf


@inner
def give_places(w, s, out):
    """Give every free place to a client; then inform the others, if the version is new.

    Every client has its own place and takes it when its device is online; or a free place goes to a client drawn among
    the idle online ones, else to the first that comes online.
    """
    replica, server, own, at = s.replica[0], s.server[0], w.size == 0, 0
    server.gives = 0
    while (at < server.idle) if own else (server.free > 0):
        if own:
            c = np.int64(s.idle[at])
            at += 1
            slot, at_s = c, online_s(w, replica.id, c, replica.now_s)
            if at_s != at_s:
                replica.status = TOO_LATE
            if not at_s <= replica.now_s:
                if at_s < inf:
                    push(s, at_s, closing.rank(closing.OPENING, 0, c), c, 0)
                continue
        else:
            server.draws += 1
            if not draw_idle(w, s):
                wait_for_clients(w, s)
                break
            server.idle -= 1
            slot, c = s.places[server.free - 1], np.int64(s.idle[server.idle])
        server.free -= 1
        start(w, s, out, slot, c)
    if own:
        server.idle = 0
    if server.informs:
        server.informs = 0
        inform(w, s)


@called
def wait_for_clients(w, s):
    """Plan to fill the free places when the first of the idle clients comes online."""
    replica, server, earliest_s = s.replica[0], s.server[0], inf
    for i in range(0 if w.always_online else server.idle):
        at_s = online_s(w, replica.id, np.int64(s.idle[i]), replica.now_s)
        if at_s != at_s:
            replica.status = TOO_LATE
        earliest_s = at_s if at_s < earliest_s else earliest_s
    if replica.now_s < earliest_s < server.opens_s:
        replica.opening += 1
        server.opens_s = earliest_s
        push(s, earliest_s, closing.rank(closing.OPENING, 0, 0), 0, replica.opening)


@inner
def draw_idle(w, s):
    """Move a client drawn among the idle online ones to the end of the list; return False if there is none."""
    replica, idle = s.replica[0], s.idle
    count = s.server[0].idle
    for left in range(count, 0, -1):  # candidates without replacement, until one is online
        at = draws.candidate(w.seed_low, w.seed_high, SELECT, replica.id, s.server[0].draws, left)
        if is_online(w, replica.id, np.int64(idle[at]), replica.now_s):
            idle[at], idle[count - 1] = idle[count - 1], idle[at]
            return True
        idle[at], idle[left - 1] = idle[left - 1], idle[at]
    return False


@inner
def start(w, s, out, slot, c):
    """Start a client's next visit from the newest version."""
    version, flight, counts = s.replica[0].closed_rounds, s.flights[slot], out.counts[0]
    flight.version, flight.visit = version, np.int64(s.numbers[c])
    s.numbers[c] += 1
    s.clients[slot] = w.client[c]
    out.start_client[counts.starts], out.start_visit[counts.starts] = c, flight.visit
    out.started_s[counts.starts] = s.replica[0].now_s
    counts.starts += 1
    start_visit(w, s, slot, c, 1, 0, 1, flight.visit, reply_bits(w, version + 1))
    join_flight(s, slot)


@called
def inform(w, s):
    """Send the new version to the online clients that did not start from it."""
    replica, server, numbers = s.replica[0], s.server[0], s.numbers
    slot = server.newest
    while slot >= 0 and s.flights[slot].version == replica.closed_rounds:  # mark those that did
        numbers[s.visits[slot].client] = -1 - numbers[s.visits[slot].client]
        slot = s.flights[slot].older
    for c in range(len(numbers)):
        if numbers[c] < 0:
            numbers[c] = -1 - numbers[c]
        elif is_online(w, replica.id, c, replica.now_s):
            server.unselected += 1
            send_unselected(w, s, c)


# --- Visits in flight, in the order of their starts: the first one has the oldest version ---------------------------


@inner
def join_flight(s, slot):
    server, flight = s.server[0], s.flights[slot]
    flight.older, flight.newer = server.newest, -1
    if server.newest >= 0:
        s.flights[server.newest].newer = slot
    else:
        server.oldest = slot
    server.newest = slot


@inner
def leave_flight(s, slot):
    server, flight = s.server[0], s.flights[slot]
    if flight.older >= 0:
        s.flights[flight.older].newer = flight.newer
    else:
        server.oldest = flight.newer
    if flight.newer >= 0:
        s.flights[flight.newer].older = flight.older
    else:
        server.newest = flight.older
