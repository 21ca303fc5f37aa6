# mypy: allow-untyped-defs
"""Messages that share links max-min fairly: `fedsim.network.flows` for one clock, operation for operation."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cache import inline, jit
from fedsim.kernels.clock import marks
from fedsim.kernels.clock.bundles import learn
from fedsim.kernels.sharing import share, sort_in


@jit
def start(s, net, route, bits, slot, kind, priority):
    """A new flow; its place, or -1 for one that needs no time."""
    _advance(s, net)
    r = net.routes[route]
    if not r.known:
        learn(s, net, route)
    narrowest = np.inf
    for i in range(r.begin, r.end):
        narrowest = min(narrowest, net.links[net.route_links[i]].capacity)
    number = s.started
    s.started += 1
    if bits == 0.0 or narrowest == np.inf:
        s.instant += 1
        return -1
    if s.flow_free >= 0:
        at = s.flow_free
        s.flow_free = net.flows[at].next
    else:
        at = s.flow_top
        s.flow_top += 1
    s.flows += 1
    flow = net.flows[at]
    flow.number, flow.route, flow.bits, flow.slot, flow.kind, flow.priority = number, route, bits, slot, kind, priority
    flow.alive, flow.entered, flow.node = 1, 0, -1
    net.starting[s.starting] = at
    s.starting += 1
    return at


@jit
def cancel(s, net, at):
    """End a flow early; how many of its bits were sent."""
    _advance(s, net)
    flow = net.flows[at]
    sent = 0.0
    if flow.entered:
        missing = flow.mark - _clock(s, net.bundles[flow.bundle])
        flow.alive = 0
        _leave(s, net, flow.bundle, 1)
        sent = flow.bits - min(max(missing, 0.0), flow.bits)
    else:
        n = 0
        for i in range(s.starting):
            if net.starting[i] != at:
                net.starting[n] = net.starting[i]
                n += 1
        s.starting = n
    release(s, net, at)
    return sent


@jit
def release(s, net, at):
    """The place of a flow that is over is free."""
    flow = net.flows[at]
    flow.alive, flow.next = 0, s.flow_free
    s.flow_free = at
    s.flows -= 1


@jit
def next_finish(s, net):
    """When the next flow ends if nothing else happens; inf if none does."""
    settle(s, net)
    if s.instant > 0:
        return s.flow_now
    while s.flow_events > 0:
        first = net.finishes[0]
        if net.bundles[first.bundle].stamp == first.stamp:
            return first.end
        _pop(s, net.finishes)
    return np.inf


@jit
def finish(s, net):
    """The flows that end now into `done`, in the order of their numbers; how many."""
    _advance(s, net)
    settle(s, net)
    s.instant = 0
    n = 0
    while s.flow_events > 0 and net.finishes[0].end <= s.now:
        b, stamp = net.finishes[0].bundle, net.finishes[0].stamp
        _pop(s, net.finishes)
        if net.bundles[b].stamp == stamp:
            n = _complete(s, net, b, n)
    for i in range(1, n):
        at = net.done[i]
        j = i
        while j > 0 and net.flows[net.done[j - 1]].number > net.flows[at].number:
            net.done[j] = net.done[j - 1]
            j -= 1
        net.done[j] = at
    return n


@jit
def rate_bps(s, net, at):
    """At what rate a flow is served now."""
    settle(s, net)
    return net.bundles[net.flows[at].bundle].rate


@inline
def served_at(net, at):
    """At what rate a flow was served up to now; 0 for one that has only just started."""
    return net.bundles[net.flows[at].bundle].rate if net.flows[at].entered else 0.0


@jit
def _advance(s, net):
    if s.now != s.flow_now:
        if s.now > next_finish(s, net):
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
def _complete(s, net, number, n):
    """Take out the flows of a bundle that are over."""
    b, more = net.bundles[number], net.more[number]
    last, count = b.mark, 0
    while more.root >= 0:
        node = net.nodes[more.root]
        if marks.alive(net, more.root):
            if node.mark > last and _end(b, node.mark) > s.flow_now:
                break
            last = node.mark
            net.flows[node.flow].alive = 0
            net.done[n] = node.flow
            n += 1
            count += 1
        more.root = marks.without_root(s, net.nodes, more.root)
    b.served, b.since = last, s.flow_now
    _leave(s, net, number, count)
    return n


@jit
def _enter(s, net, at, missing):
    flow = net.flows[at]
    number = net.routes[flow.route].bundle
    b, more = net.bundles[number], net.more[number]
    if b.flows == 0:
        b.rate, b.served, b.since = 0.0, 0.0, s.flow_now
    b.flows += 1
    for h in range(b.hop, b.hop + b.hops):
        net.links[net.hops[h]].load += 1
    flow.mark, flow.bundle, flow.entered = _clock(s, b) + missing, number, 1
    flow.node, more.root = marks.add(s, net.nodes, more.root, flow.mark, flow.number, at)
    _concern(s, net, number)


@jit
def _leave(s, net, number, flows):
    b, more = net.bundles[number], net.more[number]
    _concern(s, net, number)
    b.flows -= flows
    for h in range(b.hop, b.hop + b.hops):
        net.links[net.hops[h]].load -= flows
    if b.flows == 0:
        while more.root >= 0:
            more.root = marks.without_root(s, net.nodes, more.root)


@inline
def _concern(s, net, number):
    if not net.more[number].dirty:
        net.more[number].dirty = 1
        net.dirty[s.dirty] = number
        s.dirty += 1


@jit
def settle(s, net):
    """Give new rates to all whom the latest starts and ends concern."""
    if s.moved:
        for at in range(s.flow_top):
            flow = net.flows[at]
            if flow.alive and flow.entered and net.routes[flow.route].moved:
                _move(s, net, at)
        for route in range(len(net.routes)):
            net.routes[route].moved = 0
        s.moved = 0
    for i in range(s.starting):
        _enter(s, net, net.starting[i], net.flows[net.starting[i]].bits)
    s.starting = 0
    if s.dirty > 0:
        _serve(s, net)


@jit
def _move(s, net, at):
    """Put a flow into the bundle where it belongs now."""
    flow = net.flows[at]
    if flow.bundle != net.routes[flow.route].bundle:
        missing = flow.mark - _clock(s, net.bundles[flow.bundle])
        flow.node = -1
        _leave(s, net, flow.bundle, 1)
        _enter(s, net, at, min(max(missing, 0.0), flow.bits))


@jit
def _serve(s, net):
    s.flow_serial += 1
    connected = 0
    for i in range(s.dirty):
        number = net.dirty[i]
        b, more = net.bundles[number], net.more[number]
        more.dirty = 0
        while more.root >= 0 and not marks.alive(net, more.root):  # cancelled
            more.root = marks.without_root(s, net.nodes, more.root)
        if more.root >= 0:
            b.mark = net.nodes[more.root].mark
        else:
            b.stamp = s.flow_serial
        if b.hops > 0:
            net.dirty[connected] = number
            connected += 1
        elif more.root >= 0:
            _serve_alone(s, net, number)
    s.dirty = 0
    if connected == 0:
        return
    sort_in(net.dirty[:connected], net.links, net.bundles, net.hops, net.lists)
    for i in range(connected):
        b = net.bundles[net.dirty[i]]
        for h in range(b.hop, b.hop + b.hops):
            if net.users[net.hops[h]].seen != s.flow_serial:
                n = _connected(s, net, net.hops[h])
                end, due = share(
                    s.flow_now, s.flow_serial, net.group[:n], net.links, net.bundles, net.hops, net.lists, net.due
                )
                if end < np.inf:
                    for j in range(due):
                        _push(s, net, end, net.due[j])


@jit
def _serve_alone(s, net, number):
    b = net.bundles[number]
    rate = b.cap / b.flows
    if rate != b.rate:
        b.served = _clock(s, b)
        b.since, b.rate = s.flow_now, rate
    b.stamp = s.flow_serial
    end = _end(b, b.mark)
    if end < np.inf:
        _push(s, net, end, number)


@jit
def _connected(s, net, first):
    """The trunks that busy bundles connect with one, itself included, into `group`; how many."""
    net.group[0] = first
    net.users[first].seen = s.flow_serial
    n, at = 1, 0
    while at < n:
        link = net.links[net.group[at]]
        at += 1
        for i in range(link.begin, link.begin + link.listed):
            b = net.bundles[net.lists[i]]
            for h in range(b.hop, b.hop + b.hops):
                other = net.hops[h]
                if net.users[other].seen != s.flow_serial:
                    net.users[other].seen = s.flow_serial
                    net.group[n] = other
                    n += 1
    return n


# --- A heap of the bundles in which flows end next; what a later event has overtaken is stale ------------


@jit
def _push(s, net, end, bundle):
    finishes = net.finishes
    if s.flow_events == len(finishes):
        n = 0
        for i in range(s.flow_events):
            f = finishes[i]
            if net.bundles[f.bundle].stamp == f.stamp:
                finishes[n].end, finishes[n].bundle, finishes[n].stamp = f.end, f.bundle, f.stamp
                n += 1
        s.flow_events = n
        for at in range(n // 2 - 1, -1, -1):
            _sink(finishes, at, n, finishes[at].end, finishes[at].bundle, finishes[at].stamp)
    at = s.flow_events
    s.flow_events += 1
    while at > 0:
        up = (at - 1) >> 1
        f = finishes[up]
        if f.end <= end:
            break
        finishes[at].end, finishes[at].bundle, finishes[at].stamp = f.end, f.bundle, f.stamp
        at = up
    f = finishes[at]
    f.end, f.bundle, f.stamp = end, bundle, net.bundles[bundle].stamp


@jit
def _pop(s, finishes):
    s.flow_events -= 1
    last = finishes[s.flow_events]
    _sink(finishes, 0, s.flow_events, last.end, last.bundle, last.stamp)


@jit
def _sink(finishes, at, size, end, bundle, stamp):
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and finishes[down + 1].end < finishes[down].end:
            down += 1
        f = finishes[down]
        if end <= f.end:
            break
        finishes[at].end, finishes[at].bundle, finishes[at].stamp = f.end, f.bundle, f.stamp
        at = down
    f = finishes[at]
    f.end, f.bundle, f.stamp = end, bundle, stamp
