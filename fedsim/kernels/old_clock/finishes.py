# mypy: allow-untyped-defs
"""A heap of the bundles in which flows end next; what a later event has overtaken is stale."""

from __future__ import annotations

from fedsim.kernels.inner import jit
from fedsim.kernels.old_clock.rows import bundle_at, finish_at


@jit
def push(s, end, bundle):
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
def pop(s):
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
