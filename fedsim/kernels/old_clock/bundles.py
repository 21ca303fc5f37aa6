# mypy: allow-untyped-defs
"""Which flows travel together: what `fedsim.network.route_bundles` keeps in dictionaries, in plain arrays.

Routes are learnt when their first flow starts, as there: which links count as private depends on what has been seen.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import jit
from fedsim.kernels.old_clock.rows import (
    bucket_at,
    bundle_at,
    hop_at,
    link_at,
    more_at,
    private_at,
    route_at,
    route_link_at,
    user_at,
)


@jit
def learn(s, route):
    """A route is used for the first time."""
    r = route_at(s, route)
    r.known = 1
    for i in range(r.begin, r.end):
        user = user_at(s, route_link_at(s, i).it)
        user.users += 1
        if user.users == 1:
            user.first = route
        elif user.users == 2 and _assign(s, user.first):  # the link has become a trunk
            route_at(s, user.first).moved = 1
            s.moved = 1
    _assign(s, route)


@jit
def _assign(s, route):
    """Put a route in the bundle where it belongs; whether that is another one."""
    r = route_at(s, route)
    width, hashed = np.inf, np.int64(7)
    for i in range(r.begin, r.end):
        link = route_link_at(s, i).it
        if user_at(s, link).users > 1 and link_at(s, link).capacity < np.inf:
            width = min(width, link_at(s, link).capacity)
            hashed = hashed * 1000003 + link
    hashed = hashed * 1000003 - 1
    for i in range(r.begin, r.end):
        link = route_link_at(s, i).it
        if user_at(s, link).users == 1 and link_at(s, link).capacity < width:
            hashed = hashed * 1000003 + link
    at = hashed & (s.room_table - 1)
    while bucket_at(s, at).it >= 0 and not _same(s, bucket_at(s, at).it, route, width):
        at = (at + 1) & (s.room_table - 1)
    if bucket_at(s, at).it < 0:
        bucket_at(s, at).it = _made(s, route, width)
    before, r.bundle = r.bundle, bucket_at(s, at).it
    return r.bundle != before


@jit
def _same(s, b, route, width):
    """Whether a bundle has just the trunks and the narrow private links that a route has now."""
    r, bundle, more = route_at(s, route), bundle_at(s, b), more_at(s, b)
    hop, private = 0, 0
    for i in range(r.begin, r.end):
        link = route_link_at(s, i).it
        if user_at(s, link).users > 1:
            if link_at(s, link).capacity < np.inf:
                if hop == bundle.hops or hop_at(s, bundle.hop + hop).it != link:
                    return False
                hop += 1
        elif link_at(s, link).capacity < width:
            if private == more.privates or private_at(s, more.private + private).it != link:
                return False
            private += 1
    return hop == bundle.hops and private == more.privates


@jit
def _made(s, route, width):
    r, b = route_at(s, route), s.bundles
    s.bundles += 1
    bundle, more = bundle_at(s, b), more_at(s, b)
    bundle.hop, bundle.hops, bundle.key, bundle.cap = s.hops, 0, -1.0, np.inf
    bundle.flows, bundle.stamp = 0, 0
    more.root, more.private, more.privates, more.dirty = -1, s.privates, 0, 0
    for i in range(r.begin, r.end):
        link = route_link_at(s, i).it
        if user_at(s, link).users > 1:
            if link_at(s, link).capacity < np.inf:
                hop_at(s, s.hops).it = link
                s.hops += 1
                bundle.hops += 1
        elif link_at(s, link).capacity < width:
            private_at(s, s.privates).it = link
            s.privates += 1
            more.privates += 1
            bundle.cap = min(bundle.cap, link_at(s, link).capacity)
    return b
