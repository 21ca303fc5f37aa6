# mypy: allow-untyped-defs
"""Whom an edge asks among its own clients: `select`, for one of several sites."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.elementary import u32, unit64
from fedsim.kernels.inner import inline, jit
from fedsim.kernels.lanes import philox
from fedsim.kernels.old_clock import select, tiers_state
from fedsim.kernels.old_clock.draws import SELECTING, key_of
from fedsim.kernels.old_clock.parts import ALL, ALWAYS, COINS, WEIGHTED
from fedsim.kernels.old_clock.presence import next_on
from fedsim.kernels.old_clock.rows import client_at, numbers, rows_of
from fedsim.kernels.old_clock.sorting import place_in, sort
from fedsim.kernels.old_clock.state import NUMBER

edge_at = rows_of("edges", tiers_state.EDGE)
member_at = rows_of("members", NUMBER)


@jit
def select_at(s, e):
    """The clients of edge e into `chosen`, in order, and how often each was drawn into `times`; how many."""
    if s.room_edges == 1:
        return select.select(s)
    key, edge = key_of(s, SELECTING, e, s.round, 0), edge_at(s, e)
    chosen, times = numbers(s.at_chosen, s.room_chosen), numbers(s.at_times, s.room_chosen)
    if s.selects == ALL or s.selects == COINS:
        n = 0
        for k in range(edge.begin, edge.end):
            c = member_at(s, k).it
            if (s.selects == ALL or _lane(key, c) < client_at(s, c).coin) and _on(s, c):
                chosen[n], times[n] = c, 1
                n += 1
        return n
    n = _by_weight(s, edge, key, chosen) if s.selects == WEIGHTED else _sample(s, edge, key, chosen)
    return select.counted(chosen, times, n)


@inline
def _on(s, c):
    return s.presence == ALWAYS or next_on(s, c, s.now) == s.now


@inline
def _lane(key, lane):
    """A lane of the first uniform numbers."""
    w0, w1, w2, w3 = philox(u32(lane // 2), u32(0), key[2], key[3], key[0], key[1])
    return unit64(w0, w1) if lane % 2 == 0 else unit64(w2, w3)


@jit
def _sample(s, edge, key, chosen):
    """Uniformly among those that are on."""
    there, step = edge.end - edge.begin, 0
    tried = min(s.draws if s.presence == ALWAYS else 4 * s.draws, there)
    while True:
        select.choice(key, step, there, tried, chosen)
        n = 0
        for i in range(tried):
            c = member_at(s, edge.begin + chosen[i]).it
            if _on(s, c):
                chosen[n] = c
                n += 1
        if n >= s.draws or tried == there:
            return min(n, s.draws)
        tried, step = min(4 * tried, there), step + 1


@jit
def _by_weight(s, edge, key, chosen):
    """With probability p_c among those that are on; repeats count."""
    most = edge.end - edge.begin
    there, total = np.empty(most, np.int64), np.empty(most)
    n, reached = 0, 0.0
    for k in range(edge.begin, edge.end):
        c = member_at(s, k).it
        if _on(s, c):
            reached = client_at(s, c).weight if n == 0 else reached + client_at(s, c).weight
            there[n], total[n] = c, reached
            n += 1
    if n == 0 or total[n - 1] <= 0.0:
        return 0
    for i in range(s.draws):
        chosen[i] = there[min(place_in(total, n, _lane(key, i) * total[n - 1]), n - 1)]
    return s.draws


@jit
def when_at(s, e, enough):
    """Now if so many of an edge's clients are on, else the earliest time at which they might be; inf: never."""
    if s.presence == ALWAYS:
        return s.now
    edge = edge_at(s, e)
    most, there = edge.end - edge.begin, 0
    at, who = np.empty(most), np.empty(most, np.int64)
    for i in range(most):
        who[i], at[i] = i, next_on(s, member_at(s, edge.begin + i).it, s.now)
        if at[i] == s.now:
            there += 1
            if there >= enough:
                return s.now
    sort(at, who, most)
    return at[enough - 1]
