# mypy: allow-untyped-defs
"""Events one after another, until so many rounds are closed or the arrays are full."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cache import inline, jit
from fedsim.kernels.clock import folds, rounds
from fedsim.kernels.clock.heap import peek, pop, push
from fedsim.kernels.clock.select import select, when
from fedsim.kernels.clock.state import (
    ARRIVES, BEGINS, BREAKS, COMES_ON, COMPUTED, COMPUTED_, COPIES, DONE, DOWNLOADED, DROP, ENDS, GOES_OFF, GONE,
    LAST, LOST, PLANS, REFER, RINGS, ROOM, STOPS, UPLOADED,
)  # fmt: skip
from fedsim.kernels.clock.visits import begins, call_off, copies, downloaded, ends, note, note_cut, plans, upload

JUMPS = 10_000  # as in `fedsim.engine.events`


@jit
def run(k):
    """Rounds up to number `until`; why it returned. Called again with more room, it goes on where it was."""
    s = k.state[0]
    return _folds(s, k) if s.asynchronous else _rounds(s, k)


@jit
def _rounds(s, k):
    while s.open or s.round < s.until:
        if not s.open:
            if _cramped(s, k, True):
                return ROOM
            m = _selected(s, k)
            if s.refer:
                return REFER
            if m < 0:
                return GONE
            rounds.open_round(s, k, m)
            s.begun_notes = s.notes
        while s.open:
            if _cramped(s, k, False):
                return ROOM
            if not peek(s, k.events) < np.inf:
                return REFER  # it never closes
            _step(s, k)
            if s.refer:
                return REFER
        rounds.write_round(s, k)
        if s.now > s.limit:
            break
    return DONE


@jit
def _folds(s, k):
    while s.open or s.round < s.until:
        if not s.open:
            if _cramped(s, k, True):
                return ROOM
            folds.open_version(s, k)
            s.begun_notes = s.notes
        while s.arrived < s.replies:
            if _cramped(s, k, False):
                return ROOM
            if s.refer:
                return REFER
            if peek(s, k.events) == np.inf or s.now > s.limit:
                return GONE
            _step(s, k)
        if s.refer:
            return REFER
        folds.write_fold(s, k)
        if s.now > s.limit:
            break
    return DONE


@inline
def _cramped(s, k, opening):
    """Whether what may happen next might not fit."""
    most = 4 * len(k.visits) + 64
    more = s.population if opening and s.copies else 0
    return (
        len(k.events) - s.events < most + more
        or len(k.ended) - s.rows < len(k.visits) + 1
        or len(k.rounds) == s.rounds
        or (s.traced and len(k.notes) - s.notes < most)
        or (
            s.shared
            and (
                len(k.net.flows) - s.flows < most + s.coming + more
                or len(k.net.nodes) - s.nodes < most + s.coming + more
            )
        )
    )


@jit
def _selected(s, k):
    """Who takes part into `chosen`; the clock jumps to when enough are there, and -1 means that they never will be."""
    if s.at_least > 0 and not _waited(s, k, s.at_least):
        return -1
    while True:
        m = select(s, k.clients, k.intervals, k.chosen)
        if m > 0 or s.refer or when(s, k.clients, k.intervals, 1) == s.now:
            return m
        if not _waited(s, k, 1):
            return -1


@jit
def _waited(s, k, enough):
    for _ in range(JUMPS):
        at = when(s, k.clients, k.intervals, enough)
        if at == s.now or s.refer:
            return True
        if at == np.inf or s.now > s.limit:
            return False
        push(s, k.events, at, LAST, STOPS, 0, 0)
        while _step(s, k) != STOPS:
            pass
    return False


@jit
def _step(s, k):
    """The next event; what it was."""
    s.now, _, kind, slot, serial = pop(s, k.events)
    if kind <= LOST or kind == BEGINS:
        v = k.visits[slot]
        if v.serial != serial or v.over:  # called off meanwhile
            return kind
        if kind == DOWNLOADED:
            downloaded(s, k, v, slot)
        elif kind == COMPUTED:
            note(s, k.notes, v.client, COMPUTED_, 0)
            upload(s, k, v, slot)
        elif kind == BEGINS:
            begins(s, k, v, slot)
        elif kind == ARRIVES:
            v.arrived, v.sent = 1, v.bits
            _over(s, k, v, slot, UPLOADED)
        elif kind == BREAKS:
            v.sent = v.bits
            _over(s, k, v, slot, DROP)
        else:
            _lose(s, k, v, slot)
    elif kind == GOES_OFF:
        place = k.places[slot]
        if place.until == s.now:
            v = k.visits[place.until_slot]
            if v.serial == place.until_serial and not v.over:
                _lose(s, k, v, place.until_slot)
    elif kind == RINGS:
        rounds.rings(s, k, serial)
    elif kind == COMES_ON:
        folds.comes_on(s, k, slot)
    elif kind == COPIES:
        copies(s, k, slot)
    elif kind == PLANS:
        plans(s, k)
    elif kind == ENDS:
        ends(s, k, serial)
    return kind


@jit
def _lose(s, k, v, slot):
    own = np.empty(1, np.int64)
    own[0] = slot
    call_off(s, k, own, 1)
    note_cut(s, k, v)
    _over(s, k, v, slot, DROP)


@jit
def _over(s, k, v, slot, what):
    v.over, v.ends_s = 1, s.now
    note(s, k.notes, v.client, what, v.sent)
    if s.asynchronous:
        folds.heard_of(s, k, v, slot)
    else:
        rounds.heard(s, k, v)
