# mypy: allow-untyped-defs
"""Who is on, and until when: `fedsim.devices.availability` and `onoff` for one client at a time."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.elementary import unit64
from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock.draws import PRESENT, key_of, uniform
from fedsim.kernels.old_clock.parts import ALWAYS, DIURNAL, MARKOV
from fedsim.kernels.old_clock.rows import client_at, interval_at
from fedsim.kernels.presence import CELLS, OFF, ON, START, _cycle, _following, _last, _words


@jit
def next_on(s, client, now):
    """Now for a client that is on, else when it comes on; inf: never."""
    if s.presence == ALWAYS:
        return now
    c = client_at(s, client)
    if s.presence == MARKOV:
        on, key = _switched_on(s, c, client, now)
        return now if on else _following(key, ON, 2.0 * c.presence_b, now)
    if s.presence == DIURNAL:
        end, following = _window(s, c, client, now)
        if c.presence_a <= 0.0:
            return np.inf
        return now if now < end or c.presence_a >= 1.0 else following
    base, following, at = _find(s, c, now)
    if at >= c.begin and now < _end(s, c, at, base, following):
        return now
    if at + 1 < c.end:
        return base + interval_at(s, at + 1).start
    return following + interval_at(s, c.begin).start if c.end > c.begin else np.inf


@jit
def on_until(s, client, now):
    """When a client, on now, goes off."""
    if s.presence == ALWAYS:
        return np.inf
    c = client_at(s, client)
    if s.presence == MARKOV:
        on, key = _switched_on(s, c, client, now)
        return _following(key, OFF, 2.0 * c.presence_a, now) if on else now
    if s.presence == DIURNAL:
        end, _ = _window(s, c, client, now)
        return np.inf if c.presence_a >= 1.0 else max(end, now)
    base, following, at = _find(s, c, now)
    if at < c.begin:
        return now
    until = _end(s, c, at, base, following)
    if not now < until:
        return now
    if until == following and interval_at(s, c.begin).start == 0.0:  # it may go on in the first of the next period
        return np.inf if at == c.begin else following + interval_at(s, c.begin).end
    return until


@inline
def _switched_on(s, c, client, now):
    key = key_of(s, PRESENT, client, 0, 0)
    on_cell, off_cell = 2.0 * c.presence_a, 2.0 * c.presence_b
    if not (abs(_cycle(now, on_cell)) < CELLS and abs(_cycle(now, off_cell)) < CELLS):
        s.refer = 1
        return True, key
    last_off, last_on = _last(key, OFF, on_cell, now), _last(key, ON, off_cell, now)
    if max(last_off, last_on) == -np.inf:
        w0, w1, _, _ = _words(key, START, 0.0, 0, 0)
        return unit64(w0, w1) < c.presence_a / (c.presence_a + c.presence_b), key
    return last_on >= last_off, key


@inline
def _cycle_from(s, now, length, start):
    k = np.floor(now / length - start)
    if (k + start) * length > now:
        k -= 1.0
    if (k + 1.0 + start) * length <= now:
        k += 1.0
    if not abs(k) < CELLS:
        s.refer = 1
    return k


@inline
def _window(s, c, client, now):
    phase = c.presence_b
    if phase != phase:  # drawn
        phase = uniform(key_of(s, PRESENT, client, 0, 0), 0)
    k = _cycle_from(s, now, c.period, phase)
    end, following = (k + phase + c.presence_a) * c.period, (k + 1.0 + phase) * c.period
    return min(end, following), following


@inline
def _find(s, c, now):
    base, following = 0.0, np.inf
    if c.period < np.inf:
        k = _cycle_from(s, now, c.period, 0.0)
        base, following = k * c.period, (k + 1.0) * c.period
    low, high = c.begin - 1, c.end
    while high - low > 1:
        middle = (low + high) // 2
        if base + interval_at(s, middle).start <= now:
            low = middle
        else:
            high = middle
    return base, following, low


@inline
def _end(s, c, at, base, following):
    end = interval_at(s, at).end
    return following if end == c.period else min(base + end, following)
