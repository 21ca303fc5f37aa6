# mypy: allow-untyped-defs
"""Edges under a cloud: each keeps rounds of its own, and now and then they meet (`fedsim.old_engine.tiers`)."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock import tiers_state
from fedsim.kernels.old_clock.heap import push
from fedsim.kernels.old_clock.parts import AT_DEADLINE, AT_REPLIES
from fedsim.kernels.old_clock.rounds import FINE, write
from fedsim.kernels.old_clock.rows import chosen_at, rows_of, times_at, visit_at
from fedsim.kernels.old_clock.sorting import sort
from fedsim.kernels.old_clock.state import (
    AGGREGATE,
    BREAKS,
    DOWNLOADED,
    DROP,
    LAST,
    LATE,
    NOT,
    NUMBER,
    PROGRESS,
    RINGS,
    UPLOAD,
)  # fmt: skip
from fedsim.kernels.old_clock.tiers_select import edge_at, member_at, select_at, when_at
from fedsim.kernels.old_clock.tiers_state import AHEAD, FROM_CLOUD, MERGE, OPENS, TO_CLOUD
from fedsim.kernels.old_clock.visits import begin, call_off, copy, note, note_cut, send, set_out

header_at = rows_of("headers", tiers_state.HEADER)
asked_at = rows_of("asked", NUMBER)
site_of = rows_of("sites_of", NUMBER)


@jit
def open_edge(s, e):
    """Ask the edge's clients, once enough of them are on."""
    edge = edge_at(s, e)
    round = edge.next
    if round - s.first > AHEAD:
        s.refer = 1
        return
    if round > s.newest:
        s.newest = round
        header = header_at(s, round - s.base)
        header.missing, header.opened, header.closed, header.selected = s.room_edges, np.inf, -np.inf, 0
    at = when_at(s, e, max(s.at_least, 1))
    if at > s.now:
        if at < np.inf and at <= s.limit:
            push(s, at, PROGRESS, OPENS, e, 0)
        elif round <= s.hopeless:
            s.hopeless, s.hopeless_s = round, at
        return
    s.round = edge.round = round
    edge.next = round + 1
    n = select_at(s, e)
    edge.open, edge.opened, edge.selected, edge.in_flight, edge.arrived = 1, s.now, n, n, 0
    header = header_at(s, round - s.base)
    header.opened = min(header.opened, s.now)
    header.selected += n
    _set_out(s, edge, n)
    if s.copies:
        _copies(s, edge)
    if n == 0:
        close_edge(s, e)
    elif s.closes == AT_DEADLINE and edge.opened + s.seconds < np.inf:
        push(s, max(edge.opened + s.seconds, s.now), LAST, RINGS, e, round)


@jit
def _set_out(s, edge, n):
    """Every visit of the chosen clients; each has its place among what arrives at the same instant."""
    ties, order = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        c = chosen_at(s, i).it
        asked_at(s, edge.begin + i).it = c
        set_out(s, c, c, edge.round, 0, FINE)
        visit_at(s, c).times = times_at(s, i).it
        ties[i], order[i] = visit_at(s, c).rank, c
    sort(ties, order, n)
    for rank in range(n):
        visit_at(s, order[rank]).rank = rank
    for i in range(n):
        begin(s, asked_at(s, edge.begin + i).it)


@jit
def _copies(s, edge):
    """The broadcast to the edge's other clients."""
    i = 0
    for k in range(edge.begin, edge.end):
        c = member_at(s, k).it
        if i < edge.selected and asked_at(s, edge.begin + i).it == c:
            i += 1
        else:
            copy(s, c)


@jit
def lose(s, v, slot):
    own = np.empty(1, np.int64)
    own[0] = slot
    call_off(s, own, 1)
    note_cut(s, v)
    over(s, v, slot, DROP)


@jit
def over(s, v, slot, what):
    """A reply arrived, or the edge learnt that none will."""
    v.over, v.ends_s = 1, s.now
    note(s, v.client, what, v.sent)
    e = site_of(s, slot).it
    edge = edge_at(s, e)
    edge.in_flight -= 1
    if v.arrived:
        edge.arrived += 1
    if edge.in_flight == 0 or (s.closes == AT_REPLIES and edge.arrived >= s.replies):
        close_edge(s, e)


@jit
def rings(s, e, round):
    edge = edge_at(s, e)
    if edge.open and edge.round == round:
        s.round = round
        close_edge(s, e)


@jit
def close_edge(s, e):
    edge = edge_at(s, e)
    edge.open = 0
    if edge.in_flight > 0:
        _abandon(s, edge)
    note(s, -1 - e, AGGREGATE, 0)
    for i in range(edge.selected):
        write(s, visit_at(s, asked_at(s, edge.begin + i).it))
    if (edge.round + 1) % s.every == 0:
        _send_cloud(s, e, True)
    else:
        _closed(s, edge)
        push(s, s.now, PROGRESS, OPENS, e, 0)


@jit
def _abandon(s, edge):
    """The edge calls visits off: what had been sent by now was sent for nothing."""
    slots, n = np.empty(edge.in_flight, np.int64), 0
    for i in range(edge.selected):
        c = asked_at(s, edge.begin + i).it
        if not visit_at(s, c).over:
            slots[n] = c
            n += 1
    call_off(s, slots.copy(), n)
    for i in range(n):
        v = visit_at(s, slots[i])
        v.over, v.late, v.ends_s = 1, 1, s.now
        note_cut(s, v)
        note(s, v.client, LATE, v.sent)


@inline
def _closed(s, edge):
    header = header_at(s, edge.round - s.base)
    header.closed = max(header.closed, s.now)
    header.missing -= 1
    return header.missing


# --- The cloud --------------------------------------------------------------------------------------------


@jit
def _send_cloud(s, e, upward):
    """A message between an edge and the cloud sets out; `begins` knows by the phase what is to happen at its end."""
    slot = s.population + e
    v = visit_at(s, slot)
    v.client, v.serial, v.over, v.through, v.flow = slot, s.serial, 0, 0, -1
    s.serial += 1
    v.uploading, v.phase = (1, UPLOAD) if upward else (0, NOT)
    send(s, v, slot, s.to_cloud if upward else s.from_cloud, BREAKS if upward else DOWNLOADED, PROGRESS)


@jit
def up(s, e):
    """An edge's state is there; with the last one the cloud has a new state for all."""
    missing = _closed(s, edge_at(s, e))
    s.round = edge_at(s, 0).round  # whose the cloud's events are said to be
    note(s, -1 - e, TO_CLOUD, s.to_cloud)
    if missing == 0:
        note(s, -1 - s.room_edges, MERGE, 0)
        for other in range(s.room_edges):
            _send_cloud(s, other, False)


@jit
def came_down(s, e):
    s.round = edge_at(s, 0).round
    note(s, -1 - e, FROM_CLOUD, s.from_cloud)
    open_edge(s, e)
