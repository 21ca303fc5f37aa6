# mypy: allow-untyped-defs
"""Who takes part: the shipped policies' `select`, for one replica."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.draws import choose, choose_few
from fedsim.kernels.elementary import u32, unit64
from fedsim.kernels.inner import jit
from fedsim.kernels.lanes import philox
from fedsim.kernels.old_clock.draws import SELECTING, key_of
from fedsim.kernels.old_clock.parts import ALL, ALWAYS, COINS, WEIGHTED
from fedsim.kernels.old_clock.presence import next_on
from fedsim.kernels.old_clock.rows import client_at, numbers
from fedsim.kernels.old_clock.sorting import place_in, sort


@jit
def select(s):
    """The clients of the round into chosen[0], in order, and how often each was drawn into chosen[1]; how many."""
    key = key_of(s, SELECTING, 0, s.round, 0)
    chosen, times = numbers(s.at_chosen, s.room_chosen), numbers(s.at_times, s.room_chosen)
    if s.selects == ALL:
        n = 0
        for c in range(s.population):
            if s.presence == ALWAYS or next_on(s, c, s.now) == s.now:
                chosen[n], times[n] = c, 1
                n += 1
        return n
    if s.selects == COINS:
        return _toss(s, key, chosen, times)
    n = _by_weight(s, key, chosen) if s.selects == WEIGHTED else _sample(s, key, chosen)
    return counted(chosen, times, n)


@jit
def counted(chosen, times, n):
    """The first n draws in order, each client once, and how often it was drawn; how many are left."""
    sort(chosen, times, n)
    different = 0
    for i in range(n):
        if different and chosen[i] == chosen[different - 1]:
            times[different - 1] += 1
        else:
            chosen[different], times[different] = chosen[i], 1
            different += 1
    return different


@jit
def _toss(s, key, chosen, times):
    n = 0
    w0, w1, w2, w3 = u32(0), u32(0), u32(0), u32(0)
    for c in range(s.population):
        if c % 2 == 0:
            w0, w1, w2, w3 = philox(u32(c // 2), u32(0), key[2], key[3], key[0], key[1])
            u = unit64(w0, w1)
        else:
            u = unit64(w2, w3)
        if u < client_at(s, c).coin and (s.presence == ALWAYS or next_on(s, c, s.now) == s.now):
            chosen[n], times[n] = c, 1
            n += 1
    return n


@jit
def choice(key, step, population, size, out):
    """So many different numbers below `population`, in random order."""
    if population > 64 * size:
        room = 1
        while room < 4 * size:
            room *= 2
        places, values = np.empty(room, np.int64), np.empty(room, np.int64)
        choose_few(key[0], key[1], key[2], key[3], u32(step), population, size, places, values, out)
    else:
        choose(key[0], key[1], key[2], key[3], u32(step), population, size, np.arange(population), out)


@jit
def _sample(s, key, chosen):
    """Uniformly among those that are on."""
    if s.presence == ALWAYS:
        size = min(s.draws, s.population)
        choice(key, 0, s.population, size, chosen)
        return size
    tried, step = min(4 * s.draws, s.population), 0
    while True:
        choice(key, step, s.population, tried, chosen)
        n = 0
        for i in range(tried):
            c = chosen[i]
            if next_on(s, c, s.now) == s.now:
                chosen[n] = c
                n += 1
        if n >= s.draws or tried == s.population:
            return min(n, s.draws)
        tried, step = min(4 * tried, s.population), step + 1


@jit
def _by_weight(s, key, chosen):
    """With probability p_c among those that are on; repeats count."""
    there, total = np.empty(s.population, np.int64), np.empty(s.population)
    n, reached = 0, 0.0
    for c in range(s.population):
        if s.presence == ALWAYS or next_on(s, c, s.now) == s.now:
            reached = client_at(s, c).weight if n == 0 else reached + client_at(s, c).weight
            there[n], total[n] = c, reached
            n += 1
    if n == 0 or (s.presence != ALWAYS and total[n - 1] <= 0.0):
        return 0
    w0, w1, w2, w3 = u32(0), u32(0), u32(0), u32(0)
    for i in range(s.draws):
        if i % 2 == 0:
            w0, w1, w2, w3 = philox(u32(i // 2), u32(0), key[2], key[3], key[0], key[1])
            u = unit64(w0, w1)
        else:
            u = unit64(w2, w3)
        if s.presence != ALWAYS:
            u = u * total[n - 1]
        chosen[i] = there[min(place_in(total, n, u), n - 1)]
    return s.draws


@jit
def when(s, enough):
    """Now if so many are on, else the earliest time at which they might be; inf: never."""
    if s.presence == ALWAYS:
        return s.now
    at, who, there = np.empty(s.population), np.empty(s.population, np.int64), 0
    for c in range(s.population):
        who[c], at[c] = c, next_on(s, c, s.now)
        if at[c] == s.now:
            there += 1
            if there >= enough:
                return s.now
    sort(at, who, s.population)
    return at[enough - 1]
