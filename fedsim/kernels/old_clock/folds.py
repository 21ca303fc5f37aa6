# mypy: allow-untyped-defs
"""Continuously working clients: a round is what lies between two folds (`fedsim.old_engine.asynchronous_replica`)."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import jit
from fedsim.kernels.old_clock.draws import SELECTING, key_of
from fedsim.kernels.old_clock.heap import push
from fedsim.kernels.old_clock.presence import next_on
from fedsim.kernels.old_clock.rounds import copy_ended, write
from fedsim.kernels.old_clock.rows import chosen_at, ended_at, numbers, place_at, round_at, visit_at, waiting_at
from fedsim.kernels.old_clock.select import choice, select
from fedsim.kernels.old_clock.sorting import sort
from fedsim.kernels.old_clock.state import AGGREGATE, COMES_ON, PROGRESS
from fedsim.kernels.old_clock.visits import begin, copy, note, set_out

PATIENCE = 3_000  # as in `fedsim.old_engine.asynchronous_replica`
COARSE = 2.0**40  # how finely ties are told apart here


@jit
def open_version(s):
    """A new model version: whoever waits for work starts from it."""
    s.opened, s.arrived, s.lost, s.selected, s.copied, s.came_down = s.now, 0, 0, 0, 0, 0
    s.open = 1
    if s.round == 0:
        _staff(s)
    else:
        n = s.waiting
        waiting = numbers(s.at_waiting, n).copy()
        s.waiting = 0
        for i in range(n):
            _replace(s, waiting[i])
    if s.reaches:
        busy = 0
        for c in range(s.population):
            slot = place_at(s, c).slot
            if slot >= 0 and visit_at(s, slot).version == s.round:
                busy += 1
            elif s.copies:
                copy(s, c)
        s.copied = s.population - busy


@jit
def _staff(s):
    """The first model: those chosen start, and who is off yet takes the free places as they come on."""
    n = select(s)
    taken = np.zeros(s.population, np.bool_)
    slots = np.empty(n, np.int64)
    for i in range(n):
        taken[chosen_at(s, i).it] = True
        slots[i] = _prepare(s, chosen_at(s, i).it)
    for i in range(n):
        begin(s, slots[i])
    if n < s.places:
        others, at = np.empty(s.population - n, np.int64), np.empty(s.population - n)
        m = 0
        for c in range(s.population):
            if not taken[c]:
                others[m], at[m] = c, next_on(s, c, s.now)
                m += 1
        sort(at, others, m)
        for i in range(min(m, s.places - n)):
            _start_at(s, others[i], at[i])


@jit
def _prepare(s, client):
    if s.free >= 0:
        slot = s.free
        s.free = visit_at(s, slot).flow
    else:
        slot = s.in_flight
    place = place_at(s, client)
    set_out(s, slot, client, 0, place.visits, COARSE)
    visit_at(s, slot).number = place.visits
    place.slot = slot
    place.visits += 1
    s.in_flight += 1
    s.selected += 1
    return slot


@jit
def _start(s, client):
    begin(s, _prepare(s, client))


@jit
def _start_at(s, client, at):
    if at == s.now:
        _start(s, client)
    elif at < np.inf:
        push(s, at, PROGRESS, COMES_ON, client, 0)
    elif s.draws > 0:
        waiting_at(s, s.waiting).it = client  # somebody else may take its place after the next fold
        s.waiting += 1


@jit
def comes_on(s, client):
    if _idle(s, client):
        _start(s, client)
    else:
        _replace(s, client)


@jit
def _replace(s, client):
    """The next visit: the same client again where all work, else a client drawn from the idle."""
    if s.draws > 0:
        client, at = _draw_idle(s, client)
    else:
        at = next_on(s, client, s.now)
    _start_at(s, client, at)


@jit
def _idle(s, client):
    place = place_at(s, client)
    return place.slot < 0 and not (s.remembers and place.heard == s.round)


@jit
def _draw_idle(s, client):
    """A client that is on and has nothing to do, or else whoever comes on first, and when."""
    key = key_of(s, SELECTING, client, s.round, place_at(s, client).visits)
    tried, step = min(16, s.population), 0
    while True:
        choice(key, step, s.population, tried, numbers(s.at_chosen, tried))
        best, soonest = -1, np.inf
        for i in range(tried):
            c = chosen_at(s, i).it
            if _idle(s, c):
                at = next_on(s, c, s.now)
                if best < 0 or at < soonest:
                    best, soonest = c, at
        if best >= 0 and (soonest == s.now or tried == s.population):
            return best, soonest
        if tried == s.population:
            return client, np.inf
        tried, step = min(4 * tried, s.population), step + 1


@jit
def heard_of(s, v, slot):
    """A reply arrived, or the server learnt that none will."""
    client = v.client
    place = place_at(s, client)
    place.slot = -1
    write(s, v)
    s.in_flight -= 1
    if v.arrived:
        s.arrived += 1
        place.heard = s.round
        s.unanswered = 0
    else:
        s.lost += 1
        s.unanswered += 1
        if s.unanswered > PATIENCE + 100 * s.population:
            s.refer = 1
    arrived = v.arrived
    v.flow, s.free = s.free, slot
    full = s.arrived >= s.replies
    if full:
        note(s, -1, AGGREGATE, 0)
    if full or (arrived and s.remembers):
        waiting_at(s, s.waiting).it = client
        s.waiting += 1
    else:
        _replace(s, client)


@jit
def write_fold(s):
    """Those that arrived first, in the order in which the server folds them."""
    n = s.arrived + s.lost
    begin, place, order = s.rows - n, np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        row, order[i] = ended_at(s, begin + i), i
        place[i] = (row.client << 24 | row.number) if row.arrived else np.int64(1 << 62) + i
    sort(place, order, n)
    for i in range(n):  # to the end of the column and back, in order
        copy_ended(ended_at(s, begin + order[i]), ended_at(s, s.rows + i))
    for i in range(n):
        copy_ended(ended_at(s, s.rows + i), ended_at(s, begin + i))
    row = round_at(s, s.rounds)
    s.rounds += 1
    row.opened, row.closed, row.selected, row.copied = s.opened, s.now, s.selected, s.copied
    row.came_down, row.end, row.begun_notes, row.end_notes = s.came_down, s.rows, s.begun_notes, s.notes
    s.round += 1
    s.open = 0
