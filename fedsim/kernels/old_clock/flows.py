# mypy: allow-untyped-defs
"""Messages that share links max-min fairly: `fedsim.network.flows` for one clock, operation for operation."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock import marks
from fedsim.kernels.old_clock.bundles import learn
from fedsim.kernels.old_clock.finishes import pop
from fedsim.kernels.old_clock.rows import (
    bundle_at,
    dirty_at,
    done_at,
    finish_at,
    flow_at,
    hop_at,
    link_at,
    more_at,
    node_at,
    route_at,
    route_link_at,
    starting_at,
)
from fedsim.kernels.old_clock.serving import clock, end_of, serve


@jit
def start(s, route, bits, slot, kind, priority):
    """A new flow; its place, or -1 for one that needs no time."""
    _advance(s)
    r = route_at(s, route)
    if not r.known:
        learn(s, route)
    narrowest = np.inf
    for i in range(r.begin, r.end):
        narrowest = min(narrowest, link_at(s, route_link_at(s, i).it).capacity)
    number = s.started
    s.started += 1
    if bits == 0.0 or narrowest == np.inf:
        s.instant += 1
        return -1
    if s.flow_free >= 0:
        at = s.flow_free
        s.flow_free = flow_at(s, at).next
    else:
        at = s.flow_top
        s.flow_top += 1
    s.flows += 1
    flow = flow_at(s, at)
    flow.number, flow.route, flow.bits, flow.slot, flow.kind, flow.priority = number, route, bits, slot, kind, priority
    flow.alive, flow.entered, flow.node = 1, 0, -1
    starting_at(s, s.starting).it = at
    s.starting += 1
    return at


@jit
def cancel(s, at):
    """End a flow early; how many of its bits were sent."""
    _advance(s)
    flow = flow_at(s, at)
    sent = 0.0
    if flow.entered:
        missing = flow.mark - clock(s, bundle_at(s, flow.bundle))
        flow.alive = 0
        _leave(s, flow.bundle, 1)
        sent = flow.bits - min(max(missing, 0.0), flow.bits)
    else:
        n = 0
        for i in range(s.starting):
            if starting_at(s, i).it != at:
                starting_at(s, n).it = starting_at(s, i).it
                n += 1
        s.starting = n
    release(s, at)
    return sent


@jit
def release(s, at):
    """The place of a flow that is over is free."""
    flow = flow_at(s, at)
    flow.alive, flow.next = 0, s.flow_free
    s.flow_free = at
    s.flows -= 1


@jit
def next_finish(s):
    """When the next flow ends if nothing else happens; inf if none does."""
    settle(s)
    if s.instant > 0:
        return s.flow_now
    while s.flow_events > 0:
        first = finish_at(s, 0)
        if bundle_at(s, first.bundle).stamp == first.stamp:
            return first.end
        pop(s)
    return np.inf


@jit
def finish(s):
    """The flows that end now into `done`, in the order of their numbers; how many."""
    _advance(s)
    settle(s)
    s.instant = 0
    n = 0
    while s.flow_events > 0 and finish_at(s, 0).end <= s.now:
        b, stamp = finish_at(s, 0).bundle, finish_at(s, 0).stamp
        pop(s)
        if bundle_at(s, b).stamp == stamp:
            n = _complete(s, b, n)
    for i in range(1, n):
        at = done_at(s, i).it
        j = i
        while j > 0 and flow_at(s, done_at(s, j - 1).it).number > flow_at(s, at).number:
            done_at(s, j).it = done_at(s, j - 1).it
            j -= 1
        done_at(s, j).it = at
    return n


@jit
def rate_bps(s, at):
    """At what rate a flow is served now."""
    settle(s)
    return bundle_at(s, flow_at(s, at).bundle).rate


@inline
def served_at(s, at):
    """At what rate a flow was served up to now; 0 for one that has only just started."""
    return bundle_at(s, flow_at(s, at).bundle).rate if flow_at(s, at).entered else 0.0


@jit
def _advance(s):
    if s.now != s.flow_now:
        if s.now > next_finish(s):
            s.refer = 1
        s.flow_now = s.now


@jit
def _complete(s, number, n):
    """Take out the flows of a bundle that are over."""
    b, more = bundle_at(s, number), more_at(s, number)
    last, count = b.mark, 0
    while more.root >= 0:
        node = node_at(s, more.root)
        if marks.alive(s, more.root):
            if node.mark > last and end_of(b, node.mark) > s.flow_now:
                break
            last = node.mark
            flow_at(s, node.flow).alive = 0
            done_at(s, n).it = node.flow
            n += 1
            count += 1
        more.root = marks.without_root(s, more.root)
    b.served, b.since = last, s.flow_now
    _leave(s, number, count)
    return n


@jit
def _enter(s, at, missing):
    flow = flow_at(s, at)
    number = route_at(s, flow.route).bundle
    b, more = bundle_at(s, number), more_at(s, number)
    if b.flows == 0:
        b.rate, b.served, b.since = 0.0, 0.0, s.flow_now
    b.flows += 1
    for h in range(b.hop, b.hop + b.hops):
        link_at(s, hop_at(s, h).it).load += 1
    flow.mark, flow.bundle, flow.entered = clock(s, b) + missing, number, 1
    flow.node, more.root = marks.add(s, more.root, flow.mark, flow.number, at)
    _concern(s, number)


@jit
def _leave(s, number, flows):
    b, more = bundle_at(s, number), more_at(s, number)
    _concern(s, number)
    b.flows -= flows
    for h in range(b.hop, b.hop + b.hops):
        link_at(s, hop_at(s, h).it).load -= flows
    if b.flows == 0:
        while more.root >= 0:
            more.root = marks.without_root(s, more.root)


@inline
def _concern(s, number):
    if not more_at(s, number).dirty:
        more_at(s, number).dirty = 1
        dirty_at(s, s.dirty).it = number
        s.dirty += 1


@jit
def settle(s):
    """Give new rates to all whom the latest starts and ends concern."""
    if s.moved:
        for at in range(s.flow_top):
            flow = flow_at(s, at)
            if flow.alive and flow.entered and route_at(s, flow.route).moved:
                _move(s, at)
        for route in range(s.room_routes):
            route_at(s, route).moved = 0
        s.moved = 0
    for i in range(s.starting):
        _enter(s, starting_at(s, i).it, flow_at(s, starting_at(s, i).it).bits)
    s.starting = 0
    if s.dirty > 0:
        serve(s)


@jit
def _move(s, at):
    """Put a flow into the bundle where it belongs now."""
    flow = flow_at(s, at)
    if flow.bundle != route_at(s, flow.route).bundle:
        missing = flow.mark - clock(s, bundle_at(s, flow.bundle))
        flow.node = -1
        _leave(s, flow.bundle, 1)
        _enter(s, at, min(max(missing, 0.0), flow.bits))
