# mypy: allow-untyped-defs
"""Which flows travel together: what `fedsim.network.route_bundles` keeps in dictionaries, in plain arrays.

Routes are learnt when their first flow starts, as there: which links count as private depends on what has been seen.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.cache import jit


@jit
def learn(s, net, route):
    """A route is used for the first time."""
    r = net.routes[route]
    r.known = 1
    for i in range(r.begin, r.end):
        user = net.users[net.route_links[i]]
        user.users += 1
        if user.users == 1:
            user.first = route
        elif user.users == 2 and _assign(s, net, user.first):  # the link has become a trunk
            net.routes[user.first].moved = 1
            s.moved = 1
    _assign(s, net, route)


@jit
def _assign(s, net, route):
    """Put a route in the bundle where it belongs; whether that is another one."""
    r = net.routes[route]
    width, hashed = np.inf, np.int64(7)
    for i in range(r.begin, r.end):
        link = net.route_links[i]
        if net.users[link].users > 1 and net.links[link].capacity < np.inf:
            width = min(width, net.links[link].capacity)
            hashed = hashed * 1000003 + link
    hashed = hashed * 1000003 - 1
    for i in range(r.begin, r.end):
        link = net.route_links[i]
        if net.users[link].users == 1 and net.links[link].capacity < width:
            hashed = hashed * 1000003 + link
    at = hashed & (len(net.table) - 1)
    while net.table[at] >= 0 and not _same(net, net.table[at], route, width):
        at = (at + 1) & (len(net.table) - 1)
    if net.table[at] < 0:
        net.table[at] = _made(s, net, route, width)
    before, r.bundle = r.bundle, net.table[at]
    return r.bundle != before


@jit
def _same(net, b, route, width):
    """Whether a bundle has just the trunks and the narrow private links that a route has now."""
    r, bundle, more = net.routes[route], net.bundles[b], net.more[b]
    hop, private = 0, 0
    for i in range(r.begin, r.end):
        link = net.route_links[i]
        if net.users[link].users > 1:
            if net.links[link].capacity < np.inf:
                if hop == bundle.hops or net.hops[bundle.hop + hop] != link:
                    return False
                hop += 1
        elif net.links[link].capacity < width:
            if private == more.privates or net.privates[more.private + private] != link:
                return False
            private += 1
    return hop == bundle.hops and private == more.privates


@jit
def _made(s, net, route, width):
    r, b = net.routes[route], s.bundles
    s.bundles += 1
    bundle, more = net.bundles[b], net.more[b]
    bundle.hop, bundle.hops, bundle.key, bundle.cap = s.hops, 0, -1.0, np.inf
    bundle.flows, bundle.stamp = 0, 0
    more.root, more.private, more.privates, more.dirty = -1, s.privates, 0, 0
    for i in range(r.begin, r.end):
        link = net.route_links[i]
        if net.users[link].users > 1:
            if net.links[link].capacity < np.inf:
                net.hops[s.hops] = link
                s.hops += 1
                bundle.hops += 1
        elif net.links[link].capacity < width:
            net.privates[s.privates] = link
            s.privates += 1
            more.privates += 1
            bundle.cap = min(bundle.cap, net.links[link].capacity)
    return b
