"""When switching devices are on, compiled: the twin of `fedsim.devices.onoff`, which explains the model.

Asynchronous rounds ask for one client at a time, and for one client the plain form spends milliseconds on the
overhead of small arrays. Same draws, same order of operations, same bits.
"""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.elementary import inline, jit, log64, u32, u64, unit64
from fedsim.kernels.lanes import philox

OFF, ON, START = 0, 1, 2
CELLS = 2.0**52  # beyond, counting cells would stand still


@inline
def _words(key, kind, cell, block, turn):
    number = u64(cell)
    k2 = key[2] ^ u32(number & u64(0xFFFFFFFF))
    k3 = key[3] ^ u32(number >> u64(32) << u64(2) | u64(kind))
    return philox(block, turn, k2, k3, key[0], key[1])


@inline
def _cycle(now, length):
    k = np.floor(now / length - 0.0)
    if (k + 0.0) * length > now:
        k -= 1.0
    if (k + 1.0 + 0.0) * length <= now:
        k += 1.0
    return k


@jit
def _around(key, kind, cell, length, now):
    """Inside a cell, the last call at or before now and the first after it, else -inf and inf."""
    last, at, turn = -np.inf, 0.0, 0
    while True:
        for block in range(2):
            w0, w1, w2, w3 = _words(key, kind, cell, block, turn)
            for half in range(2):
                u = unit64(w0, w1) if half == 0 else unit64(w2, w3)
                at += -log64(u) / 2.0
                if at >= 1.0:
                    return last, np.inf
                time = (cell + at) * length
                if time > now:
                    return last, time
                last = max(last, time)
        turn += 1


@jit
def _last(key, kind, length, now):
    cell = _cycle(now, length)
    last, _ = _around(key, kind, cell, length, now)
    while last == -np.inf and cell > 0:
        cell -= 1.0
        last, _ = _around(key, kind, cell, length, now)
    return last


@jit
def _following(key, kind, length, now):
    cell = _cycle(now, length)
    _, following = _around(key, kind, cell, length, now)
    while following == np.inf:
        cell += 1.0
        _, following = _around(key, kind, cell, length, now)
    return following


@jit
def _presence(key, on_s, off_s, now_s, until, out):
    for row in range(len(key)):
        own, now, on_cell, off_cell = key[row], now_s[row], 2.0 * on_s[row], 2.0 * off_s[row]
        if not (abs(_cycle(now, on_cell)) < CELLS and abs(_cycle(now, off_cell)) < CELLS):
            return False
        last_off, last_on = _last(own, OFF, on_cell, now), _last(own, ON, off_cell, now)
        if max(last_off, last_on) == -np.inf:
            w0, w1, _, _ = _words(own, START, 0.0, 0, 0)
            on = unit64(w0, w1) < on_s[row] / (on_s[row] + off_s[row])
        else:
            on = last_on >= last_off
        if on == until:
            out[row] = _following(own, OFF if until else ON, on_cell if until else off_cell, now)
        else:
            out[row] = now
    return True


def presence(key: Array, on_s: Array, off_s: Array, now_s: Array, until: bool) -> Array | None:
    """The end of each client's on-period (`until`), or when it is on next; None: too late to tell."""
    out = np.empty(len(key))
    columns = (np.array(c, np.float64) for c in (on_s, off_s, now_s))  # copies are all of one compiled type
    return out if _presence(np.array(key), *columns, until, out) else None
