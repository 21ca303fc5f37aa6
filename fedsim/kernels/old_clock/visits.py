# mypy: allow-untyped-defs
"""A client's way through a round: download, compute, upload, or lost on the way (`old_engine.visits`, `clock`)."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock import flows
from fedsim.kernels.old_clock.draws import compute_s, drop, tie
from fedsim.kernels.old_clock.heap import push
from fedsim.kernels.old_clock.parts import ALWAYS
from fedsim.kernels.old_clock.presence import on_until
from fedsim.kernels.old_clock.rows import client_at, done_at, flow_at, note_at, place_at, visit_at
from fedsim.kernels.old_clock.state import (
    ARRIVES,
    BEFORE,
    BEGINS,
    BREAKS,
    COMPUTE,
    COMPUTED,
    COPIES,
    CUT,
    DOWNLOAD,
    DOWNLOADED,
    ENDS,
    GOES_OFF,
    LAST,
    LOST,
    PLANS,
    PROGRESS,
    SELECT,
    UPLOAD,
)  # fmt: skip

WHOLE = 1 + 2.0**-30  # as in `fedsim.old_engine.arrivals`


@inline
def note(s, client, what, bits):
    if s.traced:
        row = note_at(s, s.notes)
        s.notes += 1
        row.time, row.client, row.what, row.bits, row.round = s.now, client, what, bits, s.round


@jit
def set_out(s, slot, client, round, visit, scale):
    """A new visit in a slot, as it is drawn; `scale` is how finely ties are told apart."""
    v, c = visit_at(s, slot), client_at(s, client)
    v.client = client
    v.serial = s.serial
    s.serial += 1
    v.compute_s = compute_s(s, c, client, round, visit)
    v.phase, v.fraction = drop(s, c, client, round, visit)
    v.rank = np.int64(tie(s, client, round, visit) * scale)
    v.over = v.arrived = v.late = v.downloaded = v.uploading = v.through = 0
    v.bits = s.first_bits if s.round == 0 else s.later_bits
    v.sent = v.came_down = v.sending = 0
    v.started_s = v.ends_s = v.sending_s = 0.0
    v.flow, v.version, v.number, v.times = -1, s.round, visit, 1


@jit
def begin(s, slot):
    """Send the broadcast; the visit is lost if its client goes offline before it is through."""
    v = visit_at(s, slot)
    note(s, v.client, SELECT, s.down_bits)
    v.started_s = s.now
    if v.phase == BEFORE:
        push(s, s.now, PROGRESS, LOST, slot, v.serial)
        return
    if s.presence != ALWAYS:
        off = on_until(s, v.client, s.now)
        if off < np.inf:
            off = max(off, s.now)
            place = place_at(s, v.client)
            before, place.until = place.until, off
            place.until_slot, place.until_serial = slot, v.serial
            if before != off or off == s.now:  # one event for each of a client's on-periods
                push(s, off, PROGRESS, GOES_OFF, v.client, 0)
    send(s, v, slot, s.down_bits, DOWNLOADED, PROGRESS)


@jit
def downloaded(s, v, slot):
    v.downloaded, v.came_down = 1, v.sending
    s.came_down += v.sending
    note(s, v.client, DOWNLOAD, v.sending)
    computed = s.now + v.compute_s
    if v.phase == COMPUTE:
        push(s, s.now + v.fraction * (computed - s.now), PROGRESS, LOST, slot, v.serial)
    else:
        push(s, computed, PROGRESS, COMPUTED, slot, v.serial)


@jit
def upload(s, v, slot):
    """Send the reply, or as much of it as gets out."""
    v.uploading = 1
    if v.phase == UPLOAD:
        v.bits = np.int64(np.floor(v.fraction * v.bits))
        send(s, v, slot, v.bits, BREAKS, PROGRESS)
    else:
        send(s, v, slot, v.bits, ARRIVES, 1 + v.rank)


@jit
def send(s, v, slot, bits, kind, priority):
    c = client_at(s, v.client)
    latency = c.latency_up if v.uploading else c.latency_down
    stretch = c.stretch_up if v.uploading else c.stretch_down
    bandwidth = c.bandwidth_up if v.uploading else c.bandwidth_down
    v.sending_s, v.sending = s.now, bits
    if not s.shared:
        push(s, s.now + latency + bits * stretch / bandwidth, priority, kind, slot, v.serial)
        return
    v.flow, v.through = -1, 0
    if bits == 0 or bandwidth == np.inf:  # nobody can be in its way
        push(s, s.now + latency, priority, kind, slot, v.serial)
    else:
        push(s, s.now + latency, PROGRESS, BEGINS, slot, v.serial)


# --- Shared links ---------------------------------------------------------------------------------------


@jit
def begins(s, v, slot):
    """A message meets others on the links from now on."""
    c = client_at(s, v.client)
    if not v.uploading:
        v.flow = flows.start(s, c.route_down, v.sending * c.stretch_down, slot, DOWNLOADED, PROGRESS)
    elif v.phase == UPLOAD:
        v.flow = flows.start(s, c.route_up, v.sending * c.stretch_up, slot, BREAKS, PROGRESS)
    else:
        v.flow = flows.start(s, c.route_up, v.sending * c.stretch_up, slot, ARRIVES, 1 + v.rank)
    _settle(s)


@jit
def copy(s, client):
    """A broadcast copy that nobody waits for sets out."""
    s.coming += 1
    push(s, s.now + client_at(s, client).latency_down, PROGRESS, COPIES, client, 0)


@jit
def copies(s, client):
    s.coming -= 1
    c = client_at(s, client)
    flows.start(s, c.route_down, s.down_bits * c.stretch_down, -1, 0, 0)
    _settle(s)


@inline
def _settle(s):
    """Plan the next finish once per instant, after everything that starts or stops in it."""
    if not s.settling:
        s.settling = 1
        push(s, s.now, LAST - 1, PLANS, 0, 0)


@jit
def plans(s):
    s.settling = 0
    s.planned += 1
    at = flows.next_finish(s)
    if at < np.inf:
        push(s, max(at, s.now), PROGRESS, ENDS, 0, s.planned)


@jit
def ends(s, token):
    if token != s.planned:
        return
    for i in range(flows.finish(s)):
        at = done_at(s, i).it
        flow = flow_at(s, at)
        if flow.slot >= 0:
            v = visit_at(s, flow.slot)
            v.flow, v.through = -1, 1
            push(s, s.now, flow.priority, flow.kind, flow.slot, v.serial)
        flows.release(s, at)
    _settle(s)


# --- Calling off ------------------------------------------------------------------------------------------


@jit
def call_off(s, slots, n):
    """Take what is under way off the links together, and note how much of it had left its sender."""
    m = 0
    for i in range(n):
        v = visit_at(s, slots[i])
        if v.uploading or not (v.downloaded or v.phase == BEFORE):
            slots[m] = slots[i]
            m += 1
    rates = np.empty(m if s.shared else 0)
    if s.shared:
        _rates(s, slots, rates)
    for i in range(m):
        v = visit_at(s, slots[i])
        bits = _taken_off(s, v, rates[i]) if s.shared else _left(s, client_at(s, v.client), v)
        if v.uploading:
            v.sent = bits
        else:
            v.came_down = bits
            s.came_down += bits


@inline
def _left(s, c, v):
    stretch = c.stretch_up if v.uploading else c.stretch_down
    bandwidth = c.bandwidth_up if v.uploading else c.bandwidth_down
    elapsed = s.now - v.sending_s
    if bandwidth == np.inf:
        return v.sending if elapsed > 0 else 0
    gone = elapsed * (bandwidth / stretch) * WHOLE
    return v.sending if gone >= v.sending else np.int64(gone)


@jit
def _rates(s, slots, rates):
    """At what rate each message is served, or would be if it had got as far as the links already."""
    fresh = np.zeros(len(rates), np.bool_)
    for i in range(len(rates)):
        v = visit_at(s, slots[i])
        rates[i] = flows.served_at(s, v.flow) if v.flow >= 0 else np.inf
    for i in range(len(rates)):
        v = visit_at(s, slots[i])
        c = client_at(s, v.client)
        ideal = (c.bandwidth_up if v.uploading else c.bandwidth_down) == np.inf
        if v.flow < 0 and not (v.through or v.sending == 0 or ideal):
            route = c.route_up if v.uploading else c.route_down
            stretch = c.stretch_up if v.uploading else c.stretch_down
            v.flow = flows.start(s, route, v.sending * stretch, slots[i], 0, 0)
            fresh[i] = True
    for i in range(len(rates)):
        if fresh[i] or rates[i] == 0.0:
            rates[i] = flows.rate_bps(s, visit_at(s, slots[i]).flow)


@jit
def _taken_off(s, v, rate):
    """What had left of a message that is, or would be, served at this rate; its flow ends here."""
    elapsed = s.now - v.sending_s
    if v.flow < 0:
        return v.sending if v.through or elapsed > 0 else 0
    c = client_at(s, v.client)
    served = flows.cancel(s, v.flow)
    _settle(s)
    v.flow = -1
    under_way = rate * min(elapsed, c.latency_up if v.uploading else c.latency_down)
    gone = (served + under_way) / (c.stretch_up if v.uploading else c.stretch_down) * WHOLE
    return v.sending if gone >= v.sending else np.int64(gone)


@inline
def note_cut(s, v):
    if not v.downloaded and v.came_down:
        note(s, v.client, CUT, v.came_down)
