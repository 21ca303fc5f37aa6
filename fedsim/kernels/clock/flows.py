# mypy: allow-untyped-defs
"""Messages that share links max-min fairly: `fedsim.network.flows` for one clock, operation for operation."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.clock import marks
from fedsim.kernels.clock.bundles import learn
from fedsim.kernels.clock.rows import (
    bundle_at,
    bundle_rows,
    dirty_at,
    done_at,
    finish_at,
    flow_at,
    group_at,
    hop_at,
    link_at,
    link_rows,
    listed_at,
    more_at,
    node_at,
    numbers,
    route_at,
    route_link_at,
    shorts,
    starting_at,
    user_at,
)
from fedsim.kernels.inner import inline, jit
from fedsim.kernels.sharing import share, sort_in


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
        missing = flow.mark - _clock(s, bundle_at(s, flow.bundle))
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
        _pop(s)
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
        _pop(s)
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


@inline
def _clock(s, b):
    elapsed = s.flow_now - b.since
    return b.served + b.rate * elapsed if elapsed > 0.0 else b.served


@inline
def _end(b, mark):
    missing = mark - b.served
    if missing <= 0.0:
        return b.since
    return b.since + missing / b.rate if b.rate else np.inf


@jit
def _complete(s, number, n):
    """Take out the flows of a bundle that are over."""
    b, more = bundle_at(s, number), more_at(s, number)
    last, count = b.mark, 0
    while more.root >= 0:
        node = node_at(s, more.root)
        if marks.alive(s, more.root):
            if node.mark > last and _end(b, node.mark) > s.flow_now:
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
    flow.mark, flow.bundle, flow.entered = _clock(s, b) + missing, number, 1
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
        _serve(s)


@jit
def _move(s, at):
    """Put a flow into the bundle where it belongs now."""
    flow = flow_at(s, at)
    if flow.bundle != route_at(s, flow.route).bundle:
        missing = flow.mark - _clock(s, bundle_at(s, flow.bundle))
        flow.node = -1
        _leave(s, flow.bundle, 1)
        _enter(s, at, min(max(missing, 0.0), flow.bits))


@jit
def _serve(s):
    s.flow_serial += 1
    connected = 0
    for i in range(s.dirty):
        number = dirty_at(s, i).it
        b, more = bundle_at(s, number), more_at(s, number)
        more.dirty = 0
        while more.root >= 0 and not marks.alive(s, more.root):  # cancelled
            more.root = marks.without_root(s, more.root)
        if more.root >= 0:
            b.mark = node_at(s, more.root).mark
        else:
            b.stamp = s.flow_serial
        if b.hops > 0:
            dirty_at(s, connected).it = number
            connected += 1
        elif more.root >= 0:
            _serve_alone(s, number)
    s.dirty = 0
    if connected == 0:
        return
    links, bundles = link_rows(s), bundle_rows(s)
    hops, lists = shorts(s.at_hops, s.room_hops), shorts(s.at_lists, s.room_lists)
    due = numbers(s.at_due, s.room_bundles)
    sort_in(numbers(s.at_dirty, connected), links, bundles, hops, lists)
    for i in range(connected):
        b = bundle_at(s, dirty_at(s, i).it)
        for h in range(b.hop, b.hop + b.hops):
            if user_at(s, hop_at(s, h).it).seen != s.flow_serial:
                n = _connected(s, hop_at(s, h).it)
                group = numbers(s.at_group, n)
                end, count = share(s.flow_now, s.flow_serial, group, links, bundles, hops, lists, due)
                if end < np.inf:
                    for j in range(count):
                        _push(s, end, due[j])


@jit
def _serve_alone(s, number):
    b = bundle_at(s, number)
    rate = b.cap / b.flows
    if rate != b.rate:
        b.served = _clock(s, b)
        b.since, b.rate = s.flow_now, rate
    b.stamp = s.flow_serial
    end = _end(b, b.mark)
    if end < np.inf:
        _push(s, end, number)


@jit
def _connected(s, first):
    """The trunks that busy bundles connect with one, itself included, into `group`; how many."""
    group_at(s, 0).it = first
    user_at(s, first).seen = s.flow_serial
    n, at = 1, 0
    while at < n:
        link = link_at(s, group_at(s, at).it)
        at += 1
        for i in range(link.begin, link.begin + link.listed):
            b = bundle_at(s, listed_at(s, i).it)
            for h in range(b.hop, b.hop + b.hops):
                other = hop_at(s, h).it
                if user_at(s, other).seen != s.flow_serial:
                    user_at(s, other).seen = s.flow_serial
                    group_at(s, n).it = other
                    n += 1
    return n


# --- A heap of the bundles in which flows end next; what a later event has overtaken is stale ------------


@jit
def _push(s, end, bundle):
    if s.flow_events == s.room_finishes:
        n = 0
        for i in range(s.flow_events):
            f = finish_at(s, i)
            if bundle_at(s, f.bundle).stamp == f.stamp:
                finish_at(s, n).end, finish_at(s, n).bundle, finish_at(s, n).stamp = f.end, f.bundle, f.stamp
                n += 1
        s.flow_events = n
        for at in range(n // 2 - 1, -1, -1):
            _sink(s, at, n, finish_at(s, at).end, finish_at(s, at).bundle, finish_at(s, at).stamp)
    at = s.flow_events
    s.flow_events += 1
    while at > 0:
        up = (at - 1) >> 1
        f = finish_at(s, up)
        if f.end <= end:
            break
        finish_at(s, at).end, finish_at(s, at).bundle, finish_at(s, at).stamp = f.end, f.bundle, f.stamp
        at = up
    f = finish_at(s, at)
    f.end, f.bundle, f.stamp = end, bundle, bundle_at(s, bundle).stamp


@jit
def _pop(s):
    s.flow_events -= 1
    last = finish_at(s, s.flow_events)
    _sink(s, 0, s.flow_events, last.end, last.bundle, last.stamp)


@jit
def _sink(s, at, size, end, bundle, stamp):
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and finish_at(s, down + 1).end < finish_at(s, down).end:
            down += 1
        f = finish_at(s, down)
        if end <= f.end:
            break
        finish_at(s, at).end, finish_at(s, at).bundle, finish_at(s, at).stamp = f.end, f.bundle, f.stamp
        at = down
    f = finish_at(s, at)
    f.end, f.bundle, f.stamp = end, bundle, stamp
