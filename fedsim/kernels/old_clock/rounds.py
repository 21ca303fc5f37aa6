# mypy: allow-untyped-defs
"""Synchronous rounds: opening, closing, and what is written of them (`fedsim.old_engine.events`)."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import jit
from fedsim.kernels.old_clock.heap import keep, push
from fedsim.kernels.old_clock.parts import AT_DEADLINE, AT_REPLIES
from fedsim.kernels.old_clock.rows import chosen_at, ended_at, event_at, place_at, round_at, times_at, visit_at
from fedsim.kernels.old_clock.state import AGGREGATE, COPIES, ENDS, GOES_OFF, LAST, LATE, PLANS, RINGS
from fedsim.kernels.old_clock.visits import begin, call_off, copy, note, note_cut, set_out

FINE = 2.0**53  # a tie is a whole number of these parts


@jit
def open_round(s, m):
    """Every visit of the m chosen clients sets out."""
    if s.events > 4 * m + 64:
        _forget(s)
    for i in range(m):
        set_out(s, i, chosen_at(s, i).it, s.round, 0, FINE)
        visit_at(s, i).times = times_at(s, i).it
    s.open, s.selected, s.in_flight, s.arrived, s.opened = 1, m, m, 0, s.now
    for i in range(m):
        begin(s, i)
    if s.copies:
        i = 0
        for c in range(s.population):
            if i < m and chosen_at(s, i).it == c:
                i += 1
            else:
                copy(s, c)
    if m == 0:
        _close(s)
    elif s.closes == AT_DEADLINE:
        at = s.opened + s.seconds
        if at < np.inf:
            push(s, max(at, s.now), LAST, RINGS, 0, s.round)


@jit
def _forget(s):
    """Drop the events of visits that were called off; nobody is under way."""
    wanted = np.zeros(s.events, np.bool_)
    for i in range(s.events):
        e = event_at(s, i)
        if e.kind == GOES_OFF:
            wanted[i] = place_at(s, e.slot).until == e.time
        else:
            wanted[i] = e.kind == COPIES or e.kind == PLANS or (e.kind == ENDS and e.serial == s.planned)
    keep(s, wanted)


@jit
def heard(s, v):
    """A reply arrived, or the server learnt that none will."""
    s.in_flight -= 1
    if v.arrived:
        s.arrived += 1
    if s.in_flight == 0 or (s.closes == AT_REPLIES and s.arrived >= s.replies):
        _close(s)


@jit
def rings(s, round):
    if s.open and s.round == round:
        _close(s)


@jit
def _close(s):
    s.open = 0
    if s.in_flight > 0:
        slots, n = np.empty(s.in_flight, np.int64), 0
        for i in range(s.selected):
            if not visit_at(s, i).over:
                slots[n] = i
                n += 1
        call_off(s, slots.copy(), n)
        for i in range(n):
            v = visit_at(s, slots[i])
            v.over, v.late, v.ends_s = 1, 1, s.now
            note_cut(s, v)
            note(s, v.client, LATE, v.sent)
    note(s, -1, AGGREGATE, 0)


@jit
def write_round(s):
    for i in range(s.selected):
        write(s, visit_at(s, i))
    row = round_at(s, s.rounds)
    s.rounds += 1
    row.opened, row.closed, row.selected, row.came_down, row.end = s.opened, s.now, s.selected, 0, s.rows
    row.copied = s.population - s.selected if s.reaches else 0
    row.begun_notes, row.end_notes = s.begun_notes, s.notes
    s.round += 1


@jit
def write(s, v):
    """What became of a visit."""
    row = ended_at(s, s.rows)
    s.rows += 1
    row.client, row.times, row.arrived, row.late, row.uploading = v.client, v.times, v.arrived, v.late, v.uploading
    row.sent, row.came_down, row.spent_s = v.sent, v.came_down, v.ends_s - v.started_s
    row.version, row.number = v.version, v.number


@jit
def copy_ended(source, to):
    to.client, to.times, to.arrived, to.late = source.client, source.times, source.arrived, source.late
    to.uploading, to.sent, to.came_down, to.spent_s = source.uploading, source.sent, source.came_down, source.spent_s
    to.version, to.number = source.version, source.number
