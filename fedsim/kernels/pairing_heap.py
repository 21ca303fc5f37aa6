# mypy: allow-untyped-defs
"""Pairing heaps of numbered items, least mark first, out of which any item can be taken.

By item: its `mark`, the first `child` of those below it, its next `sibling` among those below the same one, and
`above`: the sibling before it or, for the first, the one that it is below. -1 is nobody; a heap is its top item.
"""

from __future__ import annotations

from fedsim.kernels.cache import jit


@jit
def meld(mark, child, sibling, above, a, b):
    """One heap of two, by the items at their tops."""
    if a < 0 or b < 0:
        return max(a, b)
    if mark[b] < mark[a]:
        a, b = b, a
    head = child[a]
    sibling[b], above[b], child[a] = head, a, b
    if head >= 0:
        above[head] = b
    return a


@jit
def _merged(mark, child, sibling, above, first):
    """One heap of an item and its siblings: pairs, then the pairs from the last to the first."""
    pairs = -1
    while first >= 0:
        a, b = first, sibling[first]
        first = sibling[b] if b >= 0 else -1
        sibling[a] = above[a] = -1
        if b >= 0:
            sibling[b] = above[b] = -1
        top = meld(mark, child, sibling, above, a, b)
        sibling[top] = pairs
        pairs = top
    top = -1
    while pairs >= 0:
        following = sibling[pairs]
        sibling[pairs] = -1
        top = meld(mark, child, sibling, above, top, pairs)
        pairs = following
    return top


@jit
def without(mark, child, sibling, above, top, item):
    """The heap from which an item has been taken out."""
    below = _merged(mark, child, sibling, above, child[item])
    if top != item:
        up, following = above[item], sibling[item]
        if child[up] == item:
            child[up] = following
        else:
            sibling[up] = following
        if following >= 0:
            above[following] = up
        below = meld(mark, child, sibling, above, top, below)
    child[item] = sibling[item] = above[item] = -1
    return below
