# mypy: allow-untyped-defs
"""A bundle's flows by the mark at which each is over: a pairing heap of nodes, from which the dead are taken lazily."""

from __future__ import annotations

from fedsim.kernels.cache import inline, jit


@inline
def alive(net, at):
    """Whether a node's flow is under way, and in the bundle that the node is in."""
    flow = net.flows[net.nodes[at].flow]
    return flow.alive and flow.node == at


@jit
def add(s, nodes, root, mark, number, flow):
    """A new node; its place, and the new root."""
    if s.node_free >= 0:
        at = s.node_free
        s.node_free = nodes[at].child
    else:
        at = s.node_top
        s.node_top += 1
    s.nodes += 1
    node = nodes[at]
    node.mark, node.number, node.flow, node.child, node.sibling = mark, number, flow, -1, -1
    return at, _merged(nodes, root, at)


@inline
def _merged(nodes, a, b):
    if a < 0:
        return b
    if b < 0:
        return a
    x, y = nodes[a], nodes[b]
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
def without_root(s, nodes, root):
    """The heap without its first node, which is free from now on."""
    first = nodes[root].child
    nodes[root].child = s.node_free
    s.node_free = root
    s.nodes -= 1
    pairs = -1
    while first >= 0:
        second = nodes[first].sibling
        rest = -1
        if second >= 0:
            rest = nodes[second].sibling
            nodes[second].sibling = -1
        nodes[first].sibling = -1
        pair = _merged(nodes, first, second)
        nodes[pair].sibling = pairs
        pairs = pair
        first = rest
    out = -1
    while pairs >= 0:
        rest = nodes[pairs].sibling
        nodes[pairs].sibling = -1
        out = _merged(nodes, out, pairs)
        pairs = rest
    return out
