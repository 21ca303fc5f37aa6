# mypy: allow-untyped-defs
"""Events of sites that gossip, one after another, until so many rounds are closed everywhere or the arrays are full.

A kernel of its own: who does not gossip does not pay for it.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels import cache
from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock.gossip import arrived, broke, computed, goes_off, lose, open_site, rings, works
from fedsim.kernels.old_clock.gossip_rows import header_at, site_at
from fedsim.kernels.old_clock.gossip_state import OPENS
from fedsim.kernels.old_clock.heap import keep, peek, pop
from fedsim.kernels.old_clock.rows import event_at, visit_at
from fedsim.kernels.old_clock.state import (
    ARRIVES,
    BEGINS,
    BREAKS,
    COMPUTED,
    DONE,
    ENDS,
    GOES_OFF,
    GONE,
    LOST,
    PLANS,
    REFER,
    RINGS,
    ROOM,
)  # fmt: skip
from fedsim.kernels.old_clock.visits import begins, ends, plans


@cache.jit
def run(state):
    """Rounds up to number `until`; why it returned. Called again with more room, it goes on where it was."""
    s = state[0]
    if not s.begun:
        for i in range(s.population):
            open_site(s, i)
        s.begun, s.begun_notes = 1, s.notes
    while s.round < s.until:
        if s.refer:
            return REFER
        if s.newest >= s.round and header_at(s, s.round - s.base).missing == 0:
            header_at(s, s.round - s.base).end_notes = s.notes
            s.round += 1
            if s.now > s.limit:
                break
            continue
        if s.hopeless == s.round:
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
    most = 4 * (s.under_way + 2 * s.degree) + 64
    if s.room_events - s.events < most:
        _forget(s)
        if s.room_events < 2 * (s.events + most):
            return True
    return (
        s.newest + 2 - s.base > s.room_headers
        or s.room_visits - s.under_way < s.degree + 1
        or (s.traced and s.room_notes - s.notes < most)
        or (s.shared and (s.room_flows - s.flows < most or s.room_nodes - s.nodes < most))
    )


@jit
def _forget(s):
    """Drop the events that will change nothing: a site has one for every round in which it might have gone off."""
    wanted = np.zeros(s.events, np.bool_)
    for k in range(s.events):
        e = event_at(s, k)
        if e.kind == COMPUTED or e.kind == LOST:
            wanted[k] = works(s, e.slot, e.serial)
        elif e.kind == GOES_OFF:
            wanted[k] = site_at(s, e.slot).latest == e.serial
        elif e.kind == RINGS:
            wanted[k] = site_at(s, e.slot).round == e.serial
        elif e.kind == ENDS:
            wanted[k] = e.serial == s.planned
        else:
            wanted[k] = e.kind == OPENS or e.kind == PLANS or _under_way(s, e.slot, e.serial)
    keep(s, wanted)


@inline
def _under_way(s, slot, serial):
    v = visit_at(s, slot)
    return v.serial == serial and not v.over


@jit
def _step(s):
    """The next event."""
    s.now, _, kind, slot, serial = pop(s)
    if kind == BEGINS:
        if _under_way(s, slot, serial):
            begins(s, visit_at(s, slot), slot)
    elif kind == ARRIVES:
        if _under_way(s, slot, serial):
            arrived(s, visit_at(s, slot), slot)
    elif kind == BREAKS:
        if _under_way(s, slot, serial):
            broke(s, visit_at(s, slot), slot)
    elif kind == OPENS:
        open_site(s, slot)
    elif kind == COMPUTED:
        if works(s, slot, serial):
            computed(s, slot, serial)
    elif kind == LOST:
        if works(s, slot, serial):
            lose(s, slot, serial)
    elif kind == GOES_OFF:
        goes_off(s, slot, serial)
    elif kind == RINGS:
        rings(s, slot, serial)
    elif kind == PLANS:
        plans(s)
    else:
        ends(s, serial)
