# mypy: allow-untyped-defs
"""A bundle's flows by the mark at which each is over: a pairing heap of nodes, from which the dead are taken lazily."""

from __future__ import annotations

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock.rows import flow_at, node_at


@inline
def alive(s, at):
    """Whether a node's flow is under way, and in the bundle that the node is in."""
    flow = flow_at(s, node_at(s, at).flow)
    return flow.alive and flow.node == at


@jit
def add(s, root, mark, number, flow):
    """A new node; its place, and the new root."""
    if s.node_free >= 0:
        at = s.node_free
        s.node_free = node_at(s, at).child
    else:
        at = s.node_top
        s.node_top += 1
    s.nodes += 1
    node = node_at(s, at)
    node.mark, node.number, node.flow, node.child, node.sibling = mark, number, flow, -1, -1
    return at, _merged(s, root, at)


@inline
def _merged(s, a, b):
    if a < 0:
        return b
    if b < 0:
        return a
    x, y = node_at(s, a), node_at(s, b)
    if y.mark < x.mark or (y.mark == x.mark and y.number < x.number):
        x.sibling = y.child
        y.child = a
        y.sibling = -1
        return b
    y.sibling = x.child
    x.child = b
    x.sibling = -1
    return a


@jit
def without_root(s, root):
    """The heap without its first node, which is free from now on."""
    first = node_at(s, root).child
    node_at(s, root).child = s.node_free
    s.node_free = root
    s.nodes -= 1
    pairs = -1
    while first >= 0:
        second = node_at(s, first).sibling
        rest = -1
        if second >= 0:
            rest = node_at(s, second).sibling
            node_at(s, second).sibling = -1
        node_at(s, first).sibling = -1
        pair = _merged(s, first, second)
        node_at(s, pair).sibling = pairs
        pairs = pair
        first = rest
    out = -1
    while pairs >= 0:
        rest = node_at(s, pairs).sibling
        node_at(s, pairs).sibling = -1
        out = _merged(s, out, pairs)
        pairs = rest
    return out
