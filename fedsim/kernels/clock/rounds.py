"""Synchronous rounds of sites: a star, or edges under a cloud. A star is one site without a cloud."""

from __future__ import annotations

from math import inf, nan

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner
from fedsim.kernels.clock.heap import push
from fedsim.kernels.clock.messages import send_model, send_unselected
from fedsim.kernels.clock.selection import enough_online_s, is_online, select
from fedsim.kernels.clock.state import OVER, TOO_FAR_APART, TOO_LATE
from fedsim.kernels.clock.visits import end_visit, list_visit, reply_bits, start_visit
from fedsim.rules import closing
from fedsim.rules.closing import RUNNING


@called
def open_round(w, s, scratch, out, k):
    """Select site k's cohort and start its visits, or wait until enough clients are online."""
    replica, site, now_s = s.replica[0], s.sites[k], s.replica[0].now_s
    online_s = enough_online_s(w, scratch, replica.id, k, now_s)
    if online_s != online_s:
        replica.status = TOO_LATE
        return
    reason = closing.opening_stop(online_s, now_s, w.limit_s, site.jumps)
    if reason != RUNNING:
        stop(replica, site.round + 1, reason)
        return
    if online_s > now_s:
        site.jumps += 1
        push(s, online_s, closing.rank(closing.OPENING, 0, k), k, 0)
        return
    site.round += 1
    site.jumps = 0
    if closing.is_too_far_apart(site.round - replica.closed_rounds - 1, 0):
        replica.status = TOO_FAR_APART
        return
    m = select(w, scratch, replica.id, k, site.round, now_s)
    site.open, site.opened_s, site.selected, site.arrived, site.outstanding = 1, now_s, m, 0, m
    site.unselected = unselected(w, s, scratch, k, m) if w.broadcasts_to_all else 0
    first = w.slots[k]
    for j in range(m):  # loads that do not depend on each other: cache misses overlap
        s.clients[first + j] = w.client[scratch.chosen[j]]
    for j in range(m):
        c, bits = scratch.chosen[j], reply_bits(w, site.round)
        start_visit(w, s, first + j, c, scratch.multiplicity[j], k, site.round, 0, bits)
    if m == 0:
        close_round(w, s, out, k)
    else:
        site.answer_s = closing.closing_s(w.closing, now_s, now_s, m, 0)
        set_deadline(s, k, closing.first_closing_s(site.answer_s, now_s))


@inner
def stop(replica, round, reason):
    """Note that a site will never open a round; the earliest such round ends the replica."""
    if replica.stop_round == 0 or round < replica.stop_round:
        replica.stop_round, replica.stopped_by = round, reason


@inner
def set_deadline(s, k, time_s):
    """Replace the time at which a site's round closes by itself; inf: never."""
    s.sites[k].deadline += 1
    if time_s < inf:
        push(s, time_s, closing.rank(closing.DEADLINE, 0, k), k, s.sites[k].deadline)


@called
def unselected(w, s, scratch, k, m):
    """Send broadcasts to a site's online clients that were not selected; return their number."""
    now_s, at, count = s.replica[0].now_s, 0, 0
    for i in range(w.offsets[k], w.offsets[k + 1]):
        c = w.members[i]
        if at < m and scratch.chosen[at] == c:
            at += 1
        elif is_online(w, s.replica[0].id, c, now_s):
            count += 1
            send_unselected(w, s, c)
    return count


@inner
def visit_ended(w, s, out, slot, kind):
    """End a visit, and its round if that is due."""
    k, now_s = s.visits[slot].site, s.replica[0].now_s
    site = s.sites[k]
    end_visit(w, s, slot, kind)
    site.outstanding -= 1
    site.arrived += kind == closing.ARRIVAL
    previous_s = site.answer_s
    if site.outstanding > 0:
        site.answer_s = closing.closing_s(w.closing, site.opened_s, now_s, site.selected, site.arrived)
    if closing.closes_now(site.answer_s, previous_s, now_s, site.outstanding):
        close_round(w, s, out, k)
    elif site.answer_s != previous_s:
        set_deadline(s, k, site.answer_s)


@called
def close_round(w, s, out, k):
    """Cut the visits that are outstanding and aggregate, or send the model to the cloud first."""
    replica, site = s.replica[0], s.sites[k]
    if site.outstanding > 0:
        for slot in range(w.slots[k], w.slots[k] + site.selected):
            if s.visits[slot].phase != OVER:
                end_visit(w, s, slot, closing.DEADLINE)
        site.outstanding = 0
    site.open, site.times.closed_s, site.times.at_cloud_s = 0, replica.now_s, nan
    if closing.merge_due(site.round, w.every):
        send_model(w, s, k)
    else:
        aggregate(w, s, out, k)
        site.times.from_cloud_s = nan
        push(s, replica.now_s, closing.rank(closing.OPENING, 0, k), k, 0)


@called
def model_arrived(w, s, out, k):
    """Count an edge's model at the cloud, which sends its own to all edges after the last one; or open the round."""
    replica, site = s.replica[0], s.sites[k]
    if site.at_cloud:
        site.at_cloud, site.times.from_cloud_s = 0, replica.now_s
        push(s, replica.now_s, closing.rank(closing.OPENING, 0, k), k, 0)
        return
    site.times.at_cloud_s = replica.now_s
    replica.at_cloud += 1
    if replica.at_cloud == len(s.sites):
        replica.at_cloud = 0
        for other in range(len(s.sites)):
            aggregate(w, s, out, other)
            s.sites[other].at_cloud = 1
        for other in range(len(s.sites)):
            send_model(w, s, other)


@called
def aggregate(w, s, out, k):
    """List site k's round and its visits; the replica has closed a round when all its sites have."""
    replica, site, counts = s.replica[0], s.sites[k], out.counts[0]
    segment = out.segments[counts.segments]
    counts.segments += 1
    segment.position, segment.round, segment.site = replica.position, site.round, k
    segment.begin, segment.visits, segment.unselected = counts.visits, site.selected, site.unselected
    segment.opened_s, segment.aggregated_s, segment.times = site.opened_s, replica.now_s, site.times
    for j in range(site.selected):
        list_visit(out.visits, counts.visits + j, s.visits[w.slots[k] + j])
    counts.visits += site.selected
    site.closed = site.round
    replica.lagging -= site.round == replica.closed_rounds + 1
    if replica.lagging == 0:
        replica.closed_rounds += 1
        for other in range(len(s.sites)):
            replica.lagging += s.sites[other].closed <= replica.closed_rounds
