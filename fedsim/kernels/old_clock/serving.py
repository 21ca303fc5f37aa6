# mypy: allow-untyped-defs
"""New rates for the bundles of flows that something concerned, and when the next of their flows end."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock import marks
from fedsim.kernels.old_clock.finishes import push
from fedsim.kernels.old_clock.rows import (
    bundle_at,
    bundle_rows,
    dirty_at,
    group_at,
    hop_at,
    link_at,
    link_rows,
    listed_at,
    more_at,
    node_at,
    numbers,
    shorts,
    user_at,
)
from fedsim.kernels.sharing import share, sort_in


@inline
def clock(s, b):
    elapsed = s.flow_now - b.since
    return b.served + b.rate * elapsed if elapsed > 0.0 else b.served


@inline
def end_of(b, mark):
    missing = mark - b.served
    if missing <= 0.0:
        return b.since
    return b.since + missing / b.rate if b.rate else np.inf


@jit
def serve(s):
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
                        push(s, end, due[j])


@jit
def _serve_alone(s, number):
    b = bundle_at(s, number)
    rate = b.cap / b.flows
    if rate != b.rate:
        b.served = clock(s, b)
        b.since, b.rate = s.flow_now, rate
    b.stamp = s.flow_serial
    end = end_of(b, b.mark)
    if end < np.inf:
        push(s, end, number)


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
