# mypy: allow-untyped-defs
"""Sorting numbers together with what belongs to them. NumPy's own would take longer to compile than the whole clock."""

from __future__ import annotations

from fedsim.kernels.inner import inline, jit


@jit
def sort(keys, others, n):
    """The first n pairs in place, by key, then by the other: a heap that is taken apart."""
    for top in range(n // 2 - 1, -1, -1):
        _sink(keys, others, top, n, keys[top], others[top])
    for last in range(n - 1, 0, -1):
        key, other = keys[last], others[last]
        keys[last], others[last] = keys[0], others[0]
        _sink(keys, others, 0, last, key, other)


@inline
def _sink(keys, others, at, size, key, other):
    while 2 * at + 1 < size:
        down = 2 * at + 1
        right = down + 1
        if right < size and (keys[down] < keys[right] or (keys[down] == keys[right] and others[down] < others[right])):
            down = right
        if keys[down] < key or (keys[down] == key and others[down] < other):
            break
        keys[at], others[at] = keys[down], others[down]
        at = down
    keys[at], others[at] = key, other


@jit
def place_in(total, n, value):
    """How many of the first n sums are below a value."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if total[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
