# mypy: allow-untyped-defs
"""Events in the order of time, priority and number, as SimPy's own queue has them."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock.rows import event_at


@inline
def _before(t, p, n, e):
    return t < e.time or (t == e.time and (p < e.priority or (p == e.priority and n < e.number)))


@jit
def push(s, time, priority, kind, slot, serial):
    """Something happens at `time`."""
    at = s.events
    s.events += 1
    number = s.numbered
    s.numbered += 1
    while at > 0:
        up = (at - 1) >> 1
        e = event_at(s, up)
        if not _before(time, priority, number, e):
            break
        _copy(e, event_at(s, at))
        at = up
    e = event_at(s, at)
    e.time, e.priority, e.number, e.kind, e.slot, e.serial = time, priority, number, kind, slot, serial


@jit
def pop(s):
    """Take the first event off: its time, priority, kind, slot and serial."""
    top = event_at(s, 0)
    time, priority, kind, slot, serial = top.time, top.priority, top.kind, top.slot, top.serial
    s.events -= 1
    if s.events > 0:
        _sink(s, 0, s.events, s.events)
    return time, priority, kind, slot, serial


@jit
def _sink(s, at, size, last):
    """Put the event `last` where it belongs at or below the hole `at`."""
    own = event_at(s, last)
    t, p, n, kind, slot, serial = own.time, own.priority, own.number, own.kind, own.slot, own.serial
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        if down + 1 < size:
            right = event_at(s, down + 1)
            if _before(right.time, right.priority, right.number, event_at(s, down)):
                down += 1
        e = event_at(s, down)
        if _before(t, p, n, e):
            break
        _copy(e, event_at(s, at))
        at = down
    e = event_at(s, at)
    e.time, e.priority, e.number, e.kind, e.slot, e.serial = t, p, n, kind, slot, serial


@inline
def _copy(source, to):
    to.time, to.priority, to.number = source.time, source.priority, source.number
    to.kind, to.slot, to.serial = source.kind, source.slot, source.serial


@jit
def keep(s, wanted):
    """Only the wanted ones of the first events, bool (n,)."""
    n = 0
    for i in range(s.events):
        if wanted[i]:
            if n != i:
                _copy(event_at(s, i), event_at(s, n))
            n += 1
    s.events = n
    for at in range(n // 2 - 1, -1, -1):
        _sink(s, at, n, at)


@jit
def peek(s):
    return event_at(s, 0).time if s.events > 0 else np.inf
