# mypy: allow-untyped-defs
"""A site's round: it works, tells its neighbours, waits for theirs and folds (`fedsim.old_engine.gossip_replica`)."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock.draws import compute_s, drop
from fedsim.kernels.old_clock.gossip_rows import (
    begin_round,
    header_at,
    message_at,
    message_row_at,
    outgoing_at,
    site_at,
    site_row_at,
)
from fedsim.kernels.old_clock.gossip_state import AHEAD, HEAR, OPENS
from fedsim.kernels.old_clock.heap import push
from fedsim.kernels.old_clock.presence import next_on, on_until
from fedsim.kernels.old_clock.rows import client_at, note_at, visit_at
from fedsim.kernels.old_clock.sorting import sort
from fedsim.kernels.old_clock.state import (
    AGGREGATE,
    BEFORE,
    COMPUTE,
    COMPUTED,
    COMPUTED_,
    DOWNLOAD,
    DROP,
    GOES_OFF,
    LAST,
    LOST,
    NOT,
    PROGRESS,
    RINGS,
    SELECT,
    UPLOAD,
    UPLOADED,
)  # fmt: skip
from fedsim.kernels.old_clock.visits import call_off, upload


@inline
def _say(s, who, what, bits, round):
    if s.traced:
        row = note_at(s, s.notes)
        s.notes += 1
        row.time, row.client, row.what, row.bits, row.round = s.now, who, what, bits, round


@jit
def open_site(s, i):
    """Begin to work, if the device is on; a site that is off pauses."""
    site = site_at(s, i)
    round = site.round
    if round > s.newest:
        if round - s.round > AHEAD:
            s.refer = 1
            return
        begin_round(s, round)
    at = next_on(s, i, s.now)
    if at > s.now:
        if at < np.inf and at <= s.limit:
            push(s, at, PROGRESS, OPENS, i, 0)
        elif round <= s.hopeless:
            s.hopeless, s.hopeless_s = round, at
        return
    site.open, site.done, site.overdue, site.latest = 1, 0, 0, round
    site_row_at(s, round, i).opened = s.now
    c = client_at(s, i)
    computed = s.now + compute_s(s, c, i, round, 0)
    site.phase, site.fraction = drop(s, c, i, round, 0)
    _say(s, i, SELECT, 0, round)
    _say(s, i, DOWNLOAD, 0, round)  # it has its model
    off = max(on_until(s, i, s.now), s.now)
    if site.phase == BEFORE:
        push(s, s.now, PROGRESS, LOST, i, round)
    elif site.phase == COMPUTE:
        push(s, s.now + site.fraction * (computed - s.now), PROGRESS, LOST, i, round)
    else:
        push(s, computed, PROGRESS, COMPUTED, i, round)
    if off < np.inf:
        push(s, off, PROGRESS, GOES_OFF, i, round)
    if s.seconds < np.inf:
        push(s, s.now + s.seconds, LAST, RINGS, i, round)


@jit
def computed(s, i, round):
    """The site's own reply is there: one copy to every neighbour that counts it."""
    site, row = site_at(s, i), site_row_at(s, round, i)
    site.done, row.spent_s = 1, s.now - row.opened
    _say(s, i, COMPUTED_, 0, round)
    broken = site.phase == UPLOAD
    row.dropped = broken
    for k in range(site.begin, site.end):
        m = outgoing_at(s, k).it
        copy = message_row_at(s, round, m)
        if copy.used:
            copy.lost, copy.sent = broken, _sent(s, m, round, site, row.rank)
            row.bits += copy.sent
    consider(s, i, round)


@jit
def _sent(s, m, round, site, rank):
    """A copy sets out; how many bits of it will get there."""
    if s.free >= 0:
        slot = s.free
        s.free = visit_at(s, slot).flow
    else:
        slot = s.slots
        s.slots += 1
    s.under_way += 1
    v = visit_at(s, slot)
    v.serial = s.serial
    s.serial += 1
    v.client, v.version, v.rank, v.flow = m, round, rank, -1
    v.phase, v.fraction = UPLOAD if site.phase == UPLOAD else NOT, site.fraction
    v.over = v.through = 0
    v.bits = s.first_bits if round == 0 else s.later_bits
    upload(s, v, slot)
    return v.bits


@inline
def _over(s, v, slot):
    """A copy is no longer under way; its place is free."""
    v.over, v.flow, s.free = 1, s.free, slot
    s.under_way -= 1


@jit
def arrived(s, v, slot):
    _over(s, v, slot)
    receiver, round = message_at(s, v.client).receiver, v.version
    _say(s, -1 - receiver, HEAR, v.sending, round)
    if site_at(s, receiver).round <= round:  # else it is too late
        message_row_at(s, round, v.client).folded = True
        row = site_row_at(s, round, receiver)
        row.outstanding -= 1
        row.heard += 1
        consider(s, receiver, round)


@jit
def broke(s, v, slot):
    _over(s, v, slot)
    _unheard(s, message_at(s, v.client).receiver, v.version)


@jit
def _unheard(s, receiver, round):
    """A neighbour's reply will not come, and the receiver learns it at once."""
    if site_at(s, receiver).round <= round:
        site_row_at(s, round, receiver).outstanding -= 1
        consider(s, receiver, round)


@inline
def works(s, i, round):
    """Whether the site is at work in this round."""
    site = site_at(s, i)
    return site.round == round and site.open and not site.done


@jit
def lose(s, i, round):
    """The work was lost: the site keeps its model, sends nothing and goes on."""
    site, row = site_at(s, i), site_row_at(s, round, i)
    row.dropped, row.folds, row.spent_s = True, False, s.now - row.opened
    _say(s, i, DROP, 0, round)
    for k in range(site.begin, site.end):
        m = outgoing_at(s, k).it
        copy = message_row_at(s, round, m)
        if copy.used:
            copy.lost = True
            _unheard(s, message_at(s, m).receiver, round)
    _close(s, i)


@jit
def rings(s, i, round):
    """Its patience is at an end; it folds now, or as soon as its own work is done."""
    if site_at(s, i).round == round:
        site_at(s, i).overdue = 1
        consider(s, i, round)


@jit
def goes_off(s, i, round):
    """Work is lost; everything that the device is sending breaks where it is, messages of earlier rounds too."""
    if site_at(s, i).latest != round:
        return  # a later round has the same end of its on-period
    cut, serial, n = np.empty(s.under_way, np.int64), np.empty(s.under_way), 0
    for slot in range(s.slots):
        v = visit_at(s, slot)
        if not v.over and message_at(s, v.client).sender == i:
            cut[n], serial[n] = slot, v.serial
            n += 1
    if n > 0:
        sort(serial, cut, n)  # in the order in which they set out
        call_off(s, cut, n)
        for k in range(n):
            _cut(s, i, cut[k])
    if works(s, i, round):
        lose(s, i, round)


@jit
def _cut(s, i, slot):
    v = visit_at(s, slot)
    message, round = v.client, v.version
    _over(s, v, slot)
    if round >= s.round:  # a row that is final counts all its bits
        copy, row = message_row_at(s, round, message), site_row_at(s, round, i)
        copy.lost = row.dropped = True
        row.bits += v.sent - copy.sent
        copy.sent = v.sent
        _unheard(s, message_at(s, message).receiver, round)


@jit
def consider(s, i, round):
    """Fold once the own work is done and the policy need not wait for any neighbour."""
    site = site_at(s, i)
    if site.round != round or not site.open or not site.done:
        return
    row = site_row_at(s, round, i)
    if row.outstanding == 0 or row.heard >= s.enough or site.overdue:
        _say(s, i, DROP if row.dropped else UPLOADED, row.bits, round)
        _say(s, -1 - i, AGGREGATE, 0, round)
        _close(s, i)


@jit
def _close(s, i):
    site = site_at(s, i)
    site_row_at(s, site.round, i).closed = s.now
    header_at(s, site.round - s.base).missing -= 1
    site.round += 1
    site.open = 0
    push(s, s.now, PROGRESS, OPENS, i, 0)
