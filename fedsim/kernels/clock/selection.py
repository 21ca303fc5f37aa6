"""A site's cohort, in client order: the draws and the bits of `engine/view`, and whether enough clients are online."""

from __future__ import annotations

from math import inf

from numba.extending import overload

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import INNER, called, inner
from fedsim.kernels.clock.heap import sift, sort
from fedsim.kernels.intrinsics import types
from fedsim.rng import Stream
from fedsim.rules import availability, draws
from fedsim.rules.selection import BERNOULLI, BY_WEIGHT

SELECT, AVAILABILITY = int(Stream.SELECT), int(Stream.AVAILABILITY)
WIDENING = 4  # candidates drawn for each client that is wanted, where devices go offline
FEW = 64  # a table is used for the shuffle if at most one client in FEW is drawn


def online_s(w, replica, c, now_s):
    """Return when client c is online from now on; nan: too late for its law."""
    raise NotImplementedError


def offline_s(w, replica, c, now_s):
    """Return when client c, online now, goes offline; nan: too late for its law."""
    raise NotImplementedError


@inner
def key_of(seed_low, seed_high, replica, c):
    return draws.key_of(seed_low, seed_high, AVAILABILITY, replica, c, 0, 0)


@called
def online_from_s(now_s, law, seed_low, seed_high, replica, c, starts_s, ends_s):
    return availability.online_s(now_s, law, key_of(seed_low, seed_high, replica, c), starts_s, ends_s)


@called
def offline_from_s(now_s, law, seed_low, seed_high, replica, c, starts_s, ends_s):
    return availability.offline_s(now_s, law, key_of(seed_low, seed_high, replica, c), starts_s, ends_s)


def online_by_law_s(w, replica, c, now_s):
    return online_from_s(now_s, w.law[c], w.seed_low, w.seed_high, replica, c, w.starts_s, w.ends_s)


def offline_by_law_s(w, replica, c, now_s):
    return offline_from_s(now_s, w.law[c], w.seed_low, w.seed_high, replica, c, w.starts_s, w.ends_s)


@overload(online_s, jit_options=INNER)
def _(w, replica, c, now_s):
    return online_by_law_s if has_laws(w) else lambda w, replica, c, now_s: now_s


@overload(offline_s, jit_options=INNER)
def _(w, replica, c, now_s):
    return offline_by_law_s if has_laws(w) else lambda w, replica, c, now_s: inf


def has_laws(w):
    """Return True if the type of tables has laws of availability: devices go offline."""
    return not isinstance(type_of(w, "law"), types.BaseTuple)


def type_of(w, field):
    """Return the type of a field of tables."""
    return w.types[w.fields.index(field)]


@inner
def is_online(w, replica, c, now_s):
    return w.always_online or online_s(w, replica, c, now_s) == now_s


@called
def enough_online_s(w, scratch, replica, site, now_s):
    """Return now if enough of a site's clients are online, else the earliest time at which they might be.

    inf: never; nan: too late for the law of one of them.
    """
    begin, end, enough, online = w.offsets[site], w.offsets[site + 1], w.at_least, 0
    if enough > end - begin:
        return inf
    if w.always_online:
        return now_s
    earliest = scratch.online_s  # the `enough` smallest so far, the largest of them on top
    for i in range(end - begin):
        at_s = online_s(w, replica, w.members[begin + i], now_s)
        if at_s != at_s:
            return at_s
        online += at_s == now_s
        if online >= enough:
            return now_s
        if i < enough:
            earliest[i] = at_s
            if i == enough - 1:
                for top in range(enough // 2 - 1, -1, -1):
                    sift(earliest, top, enough, earliest[top])
        elif at_s < earliest[0]:
            sift(earliest, 0, enough, at_s)
    return earliest[0]


def select(w, scratch, replica, site, round, now_s):
    """Write a site's cohort of a round, from 1, into `chosen`, and multiplicities; return the number of clients."""
    raise NotImplementedError


def select_all(w, scratch, replica, site, round, now_s):
    m = 0
    for i in range(w.offsets[site], w.offsets[site + 1]):
        if w.always_online or is_online(w, replica, w.members[i], now_s):
            scratch.chosen[m], scratch.multiplicity[m] = w.members[i], 1
            m += 1
    return m


def select_by_code(w, scratch, replica, site, round, now_s):
    key = draws.key_of(w.seed_low, w.seed_high, SELECT, replica, site, round - 1, 0)
    if w.selection == BY_WEIGHT:
        return draw_by_weight(w, scratch, replica, site, now_s, key)
    if w.selection == BERNOULLI:
        m = toss(w, scratch, replica, site, now_s, key)
    else:
        m = sample(w, scratch, replica, site, now_s, key)
    for i in range(m):
        scratch.multiplicity[i] = 1
    return m


@overload(select, jit_options=INNER)
def _(w, scratch, replica, site, round, now_s):
    return select_all if isinstance(type_of(w, "selection"), types.BaseTuple) else select_by_code


@called
def toss(w, scratch, replica, site, now_s, key):
    """Select every client with its own probability: lane c of the site's uniform numbers."""
    m = 0
    for i in range(w.offsets[site], w.offsets[site + 1]):
        c = w.members[i]
        if draws.uniform_at(key, c, 0) < w.probability[c] and is_online(w, replica, c, now_s):
            scratch.chosen[m] = c
            m += 1
    return m


@called
def sample(w, scratch, replica, site, now_s, key):
    """Select different clients, uniformly among those that are online."""
    begin, chosen, step = w.offsets[site], scratch.chosen, 0
    count = w.offsets[site + 1] - begin
    tried = min(w.size if w.always_online else WIDENING * w.size, count)
    while True:
        if count > FEW * tried:
            shuffle_few(key, step, count, tried, scratch.cells, scratch.values, chosen)
        else:
            shuffle(key, step, count, tried, scratch.places, chosen)
        m = tried
        if not w.always_online:
            m = 0
            for i in range(tried):
                if m < w.size and is_online(w, replica, w.members[begin + chosen[i]], now_s):
                    chosen[m] = chosen[i]
                    m += 1
        if m >= w.size or tried == count:
            break
        tried, step = min(WIDENING * tried, count), step + 1
    ascend(chosen, m, count, scratch.cells)
    for i in range(m):
        chosen[i] = w.members[begin + chosen[i]]
    return m


@called
def draw_by_weight(w, scratch, replica, site, now_s, key):
    """Draw clients with probability p_c among those that are online; a client drawn twice counts twice."""
    begin, chosen, multiplicity, n = w.offsets[site], scratch.chosen, scratch.multiplicity, 0
    count, total, who, cumulative = w.offsets[site + 1] - begin, 1.0, w.members[begin:], w.cumulative[begin:]
    if w.always_online:
        n = count
        if len(w.offsets) > 2:
            total = cumulative[n - 1]
    else:
        who, cumulative = scratch.places, scratch.online_s
        for i in range(begin, begin + count):
            c = w.members[i]
            if is_online(w, replica, c, now_s):
                who[n], cumulative[n] = c, w.weights[c] if n == 0 else cumulative[n - 1] + w.weights[c]
                n += 1
        total = cumulative[n - 1] if n > 0 else 0.0
    if n == 0 or total <= 0.0:
        return 0
    for i in range(w.size):
        u, low, high = draws.uniform_at(key, i, 0) * total, 0, n - 1
        while low < high:
            middle = (low + high) >> 1
            if cumulative[middle] < u:
                low = middle + 1
            else:
                high = middle
        chosen[i] = who[low]
    sort(chosen, w.size)
    m = 0
    for i in range(w.size):
        if m > 0 and chosen[i] == chosen[m - 1]:
            multiplicity[m - 1] += 1
        else:
            chosen[m], multiplicity[m] = chosen[i], 1
            m += 1
    return m


# --- A sample without replacement: `rng.choice` ---------------------------------------------------------------------


@inner
def shuffle(key, step, count, size, places, out):
    """Write the first `size` numbers of a shuffle of 0, 1, ...; `places` holds these and is restored."""
    for j in range(size):
        target = j + draws.index_below(key, j, step, count - j)
        places[j], places[target] = places[target], places[j]
        out[j] = places[j]
    for j in range(size):  # only places below `size` and those of the numbers drawn were touched
        places[out[j]] = out[j]
        places[j] = j


@inner
def shuffle_few(key, step, count, size, cells, values, out):
    """Write the same numbers with a hash table of the places that were touched."""
    mask = 1
    while mask < 4 * size:
        mask *= 2
    for at in range(mask):
        cells[at] = -1
    mask -= 1
    for j in range(size):
        target = j + draws.index_below(key, j, step, count - j)
        here, there = cell_of(cells, mask, j), cell_of(cells, mask, target)
        out[j] = values[there] if cells[there] == target else target
        moved = values[here] if cells[here] == j else j
        cells[there], values[there] = target, moved


@inner
def cell_of(cells, mask, place):
    """Return the cell that holds a place, or the empty one where it belongs."""
    at = (place * 0x9E3779B1) & mask
    while cells[at] >= 0 and cells[at] != place:
        at = (at + 1) & mask
    return at


@inner
def ascend(numbers, n, count, cells):
    """Sort n different numbers below `count`, in O(n) if they are a uniform sample.

    The hash is monotone, so that linear probing keeps all keys sorted (Gonnet and Munro 1984, linear probing sort).
    """
    cells_per_number = float(2 * n) / float(count)
    for at in range(3 * n):
        cells[at] = -1
    for i in range(n):
        key = numbers[i]
        at = int(float(key) * cells_per_number)
        while 0 <= cells[at] < key:
            at += 1
        while key >= 0:
            displaced = cells[at]
            cells[at] = key
            key = displaced
            at += 1
    kept = 0
    for at in range(3 * n):
        if cells[at] >= 0:
            numbers[kept] = cells[at]
            kept += 1
