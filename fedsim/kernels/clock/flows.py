"""Flows that share links max-min fairly: `network.flows` in arrays, operation by operation.

Every group of flows has a clock that counts bits: how many each of its flows has been served since the group became
busy. A flow is over when that clock reaches its mark, which is set once. So an event costs a few operations for each
group whose rate it changes, and a flow whose rate never changes ends at exactly start + bits / rate.
"""

from __future__ import annotations

from math import inf

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner
from fedsim.kernels.clock.flow_groups import enlist, learn, unlist
from fedsim.kernels.clock.heap import push
from fedsim.kernels.clock.maxmin import fill, relist
from fedsim.rules import closing


@inner
def served_now(group, now_s):
    """Return what a group's clock reads now."""
    elapsed_s = now_s - group.since
    return group.served + group.rate * elapsed_s if elapsed_s > 0.0 else group.served


@inner
def reading(group, flow, now_s):
    """Return what a group's clock reads now for a flow, at most its mark."""
    now = served_now(group, now_s)
    return now if now < flow.mark else flow.mark


@inner
def reaches_s(group, mark):
    """Return when a group's clock reaches a mark."""
    missing = mark - group.served
    if missing <= 0.0:
        return group.since
    return group.since + missing / group.rate if group.rate > 0.0 else inf


@called
def new_flow(w, s, route, bits, owner):
    """Start a flow at this instant; return its place."""
    replica, links = s.replica[0], s.links
    if not links.routes[route].known:
        learn(w, s, route)
    at = replica.flow_free
    if at >= 0:
        replica.flow_free = links.flows[at].following
    else:
        at = replica.flow_top
        replica.flow_top += 1
    replica.flows += 1
    flow = links.flows[at]
    flow.owner, flow.route, flow.mark, flow.entered = owner, route, bits, 0  # `enter` sets the mark for good
    links.starting[replica.starting] = at
    replica.starting += 1
    share_later(s)
    return at


@called
def take_off(s, at):
    """End a flow early; return how many of its bits the links have carried."""
    replica, links, carried = s.replica[0], s.links, 0.0
    flow = links.flows[at]
    if flow.entered:
        group = links.groups[flow.group]
        carried = reading(group, flow, replica.now_s) - flow.start
        unlist(links, group, at)
        leave(s, flow.group, 1)
    else:
        n = 0
        for i in range(replica.starting):
            if links.starting[i] != at:
                links.starting[n] = links.starting[i]
                n += 1
        replica.starting = n
    free(s, at)
    share_later(s)
    return carried


@inner
def free(s, at):
    s.links.flows[at].entered, s.links.flows[at].following = 0, s.replica[0].flow_free
    s.replica[0].flow_free = at
    s.replica[0].flows -= 1


@inner
def share_later(s):
    """Share the links once, after all other events of this instant: SHARING is the last kind, so no event is needed."""
    s.replica[0].sharing = 1


@inner
def enter(s, at, missing, carried):
    """Add a flow to the group of its route. Its start is what the group's clock read when none of it was served."""
    links, flow, now_s = s.links, s.links.flows[at], s.replica[0].now_s
    number = links.routes[flow.route].group
    group = links.groups[number]
    if group.flows == 0:
        group.rate, group.served, group.since = 0.0, 0.0, now_s
    group.flows += 1
    for h in range(group.hop, group.hop + group.hops):
        links.trunks[links.hops[h]].load += 1
    now = served_now(group, now_s)
    flow.start, flow.mark, flow.group, flow.entered = now - carried, now + missing, number, 1
    enlist(links, group, at)
    note_change(s, number)


@inner
def leave(s, number, flows):
    """Count flows that have left a group."""
    links, group = s.links, s.links.groups[number]
    note_change(s, number)
    group.flows -= flows
    for h in range(group.hop, group.hop + group.hops):
        links.trunks[links.hops[h]].load -= flows


@inner
def note_change(s, number):
    if not s.links.groups[number].changed:
        s.links.groups[number].changed = 1
        s.links.changed[s.replica[0].changed] = number
        s.replica[0].changed += 1


@called
def move(s, at):
    """Put a flow into the group where its route belongs now."""
    links, flow = s.links, s.links.flows[at]
    if flow.group != links.routes[flow.route].group:
        group = links.groups[flow.group]
        now = reading(group, flow, s.replica[0].now_s)
        missing, carried = flow.mark - now, now - flow.start
        unlist(links, group, at)
        leave(s, flow.group, 1)
        enter(s, at, missing, carried)


@called
def serve(s):
    """Give new rates to the flows that the starts and ends of this instant affect, and schedule their ends."""
    replica, links = s.replica[0], s.links
    replica.sharing = 0
    if replica.moved:
        for at in range(replica.flow_top):
            if links.flows[at].entered and links.routes[links.flows[at].route].moved:
                move(s, at)
        for i in range(len(links.routes)):
            links.routes[i].moved = 0
        replica.moved = 0
    for i in range(replica.starting):
        enter(s, links.starting[i], links.flows[links.starting[i]].mark, 0.0)
    replica.starting = 0
    replica.serial += 1
    for i in range(replica.changed):
        number = links.changed[i]
        group = links.groups[number]
        group.changed = 0
        if group.head >= 0:
            group.mark = links.flows[group.head].mark
        else:
            group.stamp = replica.serial
        if group.hops > 0:
            relist(number, links.trunks, links.groups, links.hops, links.lists)
        elif group.head >= 0:
            serve_alone(s, number)
    for i in range(replica.changed):
        group = links.groups[links.changed[i]]
        for h in range(group.hop, group.hop + group.hops):
            if links.trunks[links.hops[h]].seen != replica.serial:
                count = connect(links, links.hops[h], replica.serial)
                end_s, due = fill(
                    replica.now_s, replica.serial, links.component, count, links.trunks, links.groups, links.hops,
                    links.lists, links.due, links.offering, links.offers,
                )  # fmt: skip
                if end_s < inf:
                    for j in range(due):
                        schedule(s, links.due[j], end_s)
    replica.changed = 0


@inner
def serve_alone(s, number):
    """Give a group without trunks its rate."""
    replica, group = s.replica[0], s.links.groups[number]
    rate = group.cap / group.flows
    if rate != group.rate:
        group.served = served_now(group, replica.now_s)
        group.since, group.rate = replica.now_s, rate
    group.stamp = replica.serial
    end_s = reaches_s(group, group.mark)
    if end_s < inf:
        schedule(s, number, end_s)


@inner
def schedule(s, number, end_s):
    """Add the end of a group's next flow as an event."""
    now_s = s.replica[0].now_s
    stamp = s.links.groups[number].stamp
    push(s, end_s if end_s > now_s else now_s, closing.rank(closing.FLOW_END, 0, number), number, stamp)


@inner
def connect(links, first, serial):
    """Write the trunks that busy groups connect with one into `component`; return their number."""
    links.component[0], links.trunks[first].seen = first, serial
    n, at = 1, 0
    while at < n:
        trunk = links.trunks[links.component[at]]
        at += 1
        for i in range(trunk.begin, trunk.begin + trunk.listed):
            group = links.groups[links.lists[i]]
            for h in range(group.hop, group.hop + group.hops):
                other = links.hops[h]
                if links.trunks[other].seen != serial:
                    links.trunks[other].seen = serial
                    links.component[n] = other
                    n += 1
    return n


@inner
def next_over(s, number):
    """Return the next flow of a group that is over by now, or -1; `mark` is that of the latest one that ended."""
    links, group = s.links, s.links.groups[number]
    at = group.head
    if at < 0:
        return -1
    mark = links.flows[at].mark
    return at if mark <= group.mark or reaches_s(group, mark) <= s.replica[0].now_s else -1


@inner
def end_flow(s, number, at):
    """Take a flow that is over out of its group; return its owner."""
    links, group, owner = s.links, s.links.groups[number], s.links.flows[at].owner
    group.mark = links.flows[at].mark
    unlist(links, group, at)
    leave(s, number, 1)
    free(s, at)
    return owner


@inner
def set_clock(s, number):
    """Set a group's clock to the mark of the flow that ended, exactly, where rate times time would round."""
    group = s.links.groups[number]
    group.served, group.since = group.mark, s.replica[0].now_s
    share_later(s)
