# mypy: allow-untyped-defs
"""Events one after another, until so many rounds are closed or the arrays are full."""

from __future__ import annotations

import numpy as np

from fedsim.kernels import cache
from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock import folds, rounds
from fedsim.kernels.old_clock.heap import peek, pop, push
from fedsim.kernels.old_clock.rows import place_at, visit_at
from fedsim.kernels.old_clock.select import select, when
from fedsim.kernels.old_clock.state import (
    ARRIVES,
    BEGINS,
    BREAKS,
    COMES_ON,
    COMPUTED,
    COMPUTED_,
    COPIES,
    DONE,
    DOWNLOADED,
    DROP,
    ENDS,
    GOES_OFF,
    GONE,
    LAST,
    LOST,
    PLANS,
    REFER,
    RINGS,
    ROOM,
    STOPS,
    UPLOADED,
)  # fmt: skip
from fedsim.kernels.old_clock.visits import begins, call_off, copies, downloaded, ends, note, note_cut, plans, upload

JUMPS = 10_000  # as in `fedsim.old_engine.events`


@cache.jit
def run(state):
    """Rounds up to number `until`; why it returned. Called again with more room, it goes on where it was."""
    s = state[0]
    return _folds(s) if s.asynchronous else _rounds(s)


@jit
def _rounds(s):
    while s.open or s.round < s.until:
        if not s.open:
            if _cramped(s, True):
                return ROOM
            m = _selected(s)
            if s.refer:
                return REFER
            if m < 0:
                return GONE
            rounds.open_round(s, m)
            s.begun_notes = s.notes
        while s.open:
            if _cramped(s, False):
                return ROOM
            if not peek(s) < np.inf:
                return REFER  # it never closes
            _step(s)
            if s.refer:
                return REFER
        rounds.write_round(s)
        if s.now > s.limit:
            break
    return DONE


@jit
def _folds(s):
    while s.open or s.round < s.until:
        if not s.open:
            if _cramped(s, True):
                return ROOM
            folds.open_version(s)
            s.begun_notes = s.notes
        while s.arrived < s.replies:
            if _cramped(s, False):
                return ROOM
            if s.refer:
                return REFER
            if peek(s) == np.inf or s.now > s.limit:
                return GONE
            _step(s)
        if s.refer:
            return REFER
        folds.write_fold(s)
        if s.now > s.limit:
            break
    return DONE


@inline
def _cramped(s, opening):
    """Whether what may happen next might not fit."""
    most = 4 * s.room_visits + 64
    more = s.population if opening and s.copies else 0
    return (
        s.room_events - s.events < most + more
        or s.room_ended - s.rows < s.room_visits + 1 + (s.arrived + s.lost + 1 if s.asynchronous else 0)
        or s.room_rounds == s.rounds
        or (s.traced and s.room_notes - s.notes < most)
        or (
            s.shared
            and (s.room_flows - s.flows < most + s.coming + more or s.room_nodes - s.nodes < most + s.coming + more)
        )
    )


@jit
def _selected(s):
    """Who takes part into `chosen`; the clock jumps to when enough are there, and -1 means that they never will be."""
    if s.at_least > 0 and not _waited(s, s.at_least):
        return -1
    while True:
        m = select(s)
        if m > 0 or s.refer or when(s, 1) == s.now:
            return m
        if not _waited(s, 1):
            return -1


@jit
def _waited(s, enough):
    for _ in range(JUMPS):
        at = when(s, enough)
        if at == s.now or s.refer:
            return True
        if at == np.inf or s.now > s.limit:
            return False
        push(s, at, LAST, STOPS, 0, 0)
        while _step(s) != STOPS:
            pass
    return False


@jit
def _step(s):
    """The next event; what it was."""
    s.now, _, kind, slot, serial = pop(s)
    if kind <= LOST or kind == BEGINS:
        v = visit_at(s, slot)
        if v.serial != serial or v.over:  # called off meanwhile
            return kind
        if kind == DOWNLOADED:
            downloaded(s, v, slot)
        elif kind == COMPUTED:
            note(s, v.client, COMPUTED_, 0)
            upload(s, v, slot)
        elif kind == BEGINS:
            begins(s, v, slot)
        elif kind == ARRIVES:
            v.arrived, v.sent = 1, v.bits
            _over(s, v, slot, UPLOADED)
        elif kind == BREAKS:
            v.sent = v.bits
            _over(s, v, slot, DROP)
        else:
            _lose(s, v, slot)
    elif kind == GOES_OFF:
        place = place_at(s, slot)
        if place.until == s.now:
            v = visit_at(s, place.until_slot)
            if v.serial == place.until_serial and not v.over:
                _lose(s, v, place.until_slot)
    elif kind == RINGS:
        rounds.rings(s, serial)
    elif kind == COMES_ON:
        folds.comes_on(s, slot)
    elif kind == COPIES:
        copies(s, slot)
    elif kind == PLANS:
        plans(s)
    elif kind == ENDS:
        ends(s, serial)
    return kind


@jit
def _lose(s, v, slot):
    own = np.empty(1, np.int64)
    own[0] = slot
    call_off(s, own, 1)
    note_cut(s, v)
    _over(s, v, slot, DROP)


@jit
def _over(s, v, slot, what):
    v.over, v.ends_s = 1, s.now
    note(s, v.client, what, v.sent)
    if s.asynchronous:
        folds.heard_of(s, v, slot)
    else:
        rounds.heard(s, v)
