# mypy: allow-untyped-defs
"""Events of edges and their cloud, one after another, until so many rounds are closed everywhere.

A kernel of its own: who has no tiers does not pay for it.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels import cache
from fedsim.kernels.inner import jit
from fedsim.kernels.old_clock.heap import keep, peek, pop
from fedsim.kernels.old_clock.rows import event_at, place_at, visit_at
from fedsim.kernels.old_clock.state import (
    ARRIVES,
    BEGINS,
    BREAKS,
    COMPUTED,
    COMPUTED_,
    COPIES,
    DONE,
    DOWNLOADED,
    DROP,
    ENDS,
    GOES_OFF,
    GONE,
    LOST,
    PLANS,
    REFER,
    RINGS,
    ROOM,
    UPLOADED,
)  # fmt: skip
from fedsim.kernels.old_clock.tiers import came_down, header_at, lose, open_edge, over, rings, site_of, up
from fedsim.kernels.old_clock.tiers_select import edge_at
from fedsim.kernels.old_clock.tiers_state import OPENS
from fedsim.kernels.old_clock.visits import begins, copies, downloaded, ends, note, plans, upload


@cache.jit
def run(state):
    """Rounds up to number `until`; why it returned. Called again with more room, it goes on where it was."""
    s = state[0]
    if not s.begun:
        for e in range(s.room_edges):
            open_edge(s, e)
        s.begun, s.begun_notes = 1, s.notes
    while s.first < s.until:
        if s.refer:
            return REFER
        if s.newest >= s.first and header_at(s, s.first - s.base).missing == 0:
            header_at(s, s.first - s.base).end_notes = s.notes
            s.first += 1
            if s.now > s.limit:
                break
            continue
        if s.hopeless == s.first:
            return GONE
        if _cramped(s):
            return ROOM
        if not peek(s) < np.inf:
            return REFER  # it never closes
        _step(s)
    return DONE


@jit
def _cramped(s):
    """Whether what may happen next might not fit."""
    most = 4 * s.room_visits + 64 + s.coming + (s.population if s.copies else 0)
    if s.room_events - s.events < most:
        _forget(s)
        if s.room_events < 2 * (s.events + most):
            return True
    return (
        s.newest + 2 - s.base > s.room_headers
        or s.room_ended - s.rows < s.population
        or (s.traced and s.room_notes - s.notes < most)
        or (s.shared and (s.room_flows - s.flows < most or s.room_nodes - s.nodes < most))
    )


@jit
def _forget(s):
    """Drop the events that will change nothing."""
    wanted = np.zeros(s.events, np.bool_)
    for k in range(s.events):
        e = event_at(s, k)
        if e.kind <= LOST or e.kind == BEGINS:
            v = visit_at(s, e.slot)
            wanted[k] = v.serial == e.serial and not v.over
        elif e.kind == GOES_OFF:
            wanted[k] = place_at(s, e.slot).until == e.time
        elif e.kind == RINGS:
            wanted[k] = edge_at(s, e.slot).open and edge_at(s, e.slot).round == e.serial
        else:
            wanted[k] = e.kind != ENDS or e.serial == s.planned
    keep(s, wanted)


@jit
def _step(s):
    """The next event."""
    s.now, _, kind, slot, serial = pop(s)
    if kind <= LOST or kind == BEGINS:
        v = visit_at(s, slot)
        if v.serial == serial and not v.over:  # else called off meanwhile
            if kind == BEGINS:
                begins(s, v, slot)
            elif slot >= s.population:
                v.over = 1
                if kind == BREAKS:
                    up(s, slot - s.population)
                else:
                    came_down(s, slot - s.population)
            else:
                _on_its_way(s, v, slot, kind)
    elif kind == GOES_OFF:
        place = place_at(s, slot)
        if place.until == s.now:
            v = visit_at(s, place.until_slot)
            if v.serial == place.until_serial and not v.over:
                s.round = edge_at(s, site_of(s, slot).it).round
                lose(s, v, place.until_slot)
    elif kind == OPENS:
        open_edge(s, slot)
    elif kind == RINGS:
        rings(s, slot, serial)
    elif kind == COPIES:
        copies(s, slot)
    elif kind == PLANS:
        plans(s)
    else:
        ends(s, serial)


@jit
def _on_its_way(s, v, slot, kind):
    """Something happens to a client's visit."""
    s.round = edge_at(s, site_of(s, slot).it).round
    if kind == DOWNLOADED:
        downloaded(s, v, slot)
    elif kind == COMPUTED:
        note(s, v.client, COMPUTED_, 0)
        upload(s, v, slot)
    elif kind == ARRIVES:
        v.arrived, v.sent = 1, v.bits
        over(s, v, slot, UPLOADED)
    elif kind == BREAKS:
        v.sent = v.bits
        over(s, v, slot, DROP)
    else:
        lose(s, v, slot)
