"""Groups of flows that have one rate at all times: `network.route_bundles` in arrays.

A link that one known route uses is private, the others are trunks. Flows with the same trunks, and private links too
wide to matter, are one group; narrower private links cap a group of their own. Routes become known when their first
flow starts, as there: which links are private depends on it, and the rounding of a moved flow's bits too.
"""

from __future__ import annotations

from math import inf

import numpy as np

from fedsim.kernels.clock.decorators import called, inner


@called
def learn(w, s, route):
    """Make a route known; note routes that change their group by it."""
    links = s.links
    links.routes[route].known = 1
    for i in range(w.route_offsets[route], w.route_offsets[route + 1]):
        trunk = links.trunks[w.route_links[i]]
        trunk.users += 1
        if trunk.users == 1:
            trunk.first = route
        elif trunk.users == 2:
            before = links.routes[trunk.first].group
            assign(w, s, trunk.first)
            if links.routes[trunk.first].group != before:
                links.routes[trunk.first].moved = 1
                s.replica[0].moved = 1
    assign(w, s, route)


@called
def assign(w, s, route):
    """Put a route into the group where it belongs."""
    links, width, hashed = s.links, inf, np.int64(7)
    begin, end, mask = w.route_offsets[route], w.route_offsets[route + 1], len(s.links.table) - 1
    for i in range(begin, end):
        trunk = links.trunks[w.route_links[i]]
        if trunk.users > 1 and trunk.capacity < inf:
            width = trunk.capacity if trunk.capacity < width else width
            hashed = hashed * 1000003 + w.route_links[i]
    hashed = hashed * 1000003 - 1
    for i in range(begin, end):
        trunk = links.trunks[w.route_links[i]]
        if trunk.users == 1 and trunk.capacity < width:
            hashed = hashed * 1000003 + w.route_links[i]
    at = hashed & mask
    while links.table[at] >= 0 and not is_group_of(w, links, links.table[at], route, width):
        at = (at + 1) & mask
    if links.table[at] < 0:
        links.table[at] = new_group(w, s, route, width)
    links.routes[route].group = links.table[at]


@called
def is_group_of(w, links, number, route, width):
    """Return True if a group has the trunks and the narrow private links that a route has now."""
    group, hop, private = links.groups[number], 0, 0
    for i in range(w.route_offsets[route], w.route_offsets[route + 1]):
        link = w.route_links[i]
        trunk = links.trunks[link]
        if trunk.users > 1:
            if trunk.capacity < inf:
                if hop == group.hops or links.hops[group.hop + hop] != link:
                    return False
                hop += 1
        elif trunk.capacity < width:
            if private == group.privates or links.privates[group.private + private] != link:
                return False
            private += 1
    return hop == group.hops and private == group.privates


@called
def new_group(w, s, route, width):
    """Make the group of a route; return its number."""
    replica, links = s.replica[0], s.links
    number = replica.groups
    replica.groups += 1
    group = links.groups[number]
    group.hop, group.hops, group.key, group.cap, group.flows, group.stamp = replica.hops, 0, -1.0, inf, 0, 0
    group.head, group.tail, group.private, group.privates, group.changed = -1, -1, replica.privates, 0, 0
    for i in range(w.route_offsets[route], w.route_offsets[route + 1]):
        link = w.route_links[i]
        trunk = links.trunks[link]
        if trunk.users > 1:
            if trunk.capacity < inf:
                links.hops[replica.hops] = link
                replica.hops += 1
                group.hops += 1
        elif trunk.capacity < width:
            links.privates[replica.privates] = link
            replica.privates += 1
            group.privates += 1
            group.cap = trunk.capacity if trunk.capacity < group.cap else group.cap
    return number


# --- The flows of a group, by the mark at which each is over --------------------------------------------------------


@inner
def enlist(links, group, at):
    """Insert a flow behind those whose marks are not larger; new flows mostly belong to the end."""
    flow, previous = links.flows[at], group.tail
    while previous >= 0 and links.flows[previous].mark > flow.mark:
        previous = links.flows[previous].previous
    following = group.head if previous < 0 else links.flows[previous].following
    flow.previous, flow.following = previous, following
    if previous < 0:
        group.head = at
    else:
        links.flows[previous].following = at
    if following < 0:
        group.tail = at
    else:
        links.flows[following].previous = at


@inner
def unlist(links, group, at):
    """Take a flow out of its group's list."""
    flow = links.flows[at]
    if flow.previous < 0:
        group.head = flow.following
    else:
        links.flows[flow.previous].following = flow.following
    if flow.following < 0:
        group.tail = flow.previous
    else:
        links.flows[flow.following].previous = flow.previous
