"""A site's round over gossip: it computes, sends its reply to its neighbours, waits for theirs and aggregates.

`at` of an event is the slot of a message in flight, or -1 - site for the site's own work: with stamp 0 its device goes
offline, else the stamp is the round.
"""

from __future__ import annotations

from math import inf, nan

from numba.extending import overload

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import INNER, called, inner
from fedsim.kernels.clock.flows import end_flow, new_flow, next_over, set_clock, take_off
from fedsim.kernels.clock.heap import push
from fedsim.kernels.clock.messages import is_shared
from fedsim.kernels.clock.rounds import stop
from fedsim.kernels.clock.selection import offline_s, online_s
from fedsim.kernels.clock.state import TOO_FAR_APART, TOO_LATE
from fedsim.kernels.clock.visits import NO_FLOW, draw_visit, reply_bits, tie_of
from fedsim.rules import closing, visits
from fedsim.rules.closing import RUNNING
from fedsim.rules.visits import ARRIVED, DROPPED, IN_UPLOAD, LATE, NO_DROP

UNUSED = -2  # instead of a message's bits: not asked for by the round's mixing


@called
def open_round(w, s, i):
    """Start to compute from the own model; pause while the device is offline."""
    replica, site, now_s = s.replica[0], s.sites[i], s.replica[0].now_s
    round = site.ended + 1
    if round > replica.newest:
        if closing.is_too_far_apart(round - replica.closed_rounds - 1, w.round_size):
            replica.status = TOO_FAR_APART
            return
        replica.newest = round
    at_s = online_s(w, replica.id, i, now_s)
    if at_s != at_s:
        replica.status = TOO_LATE
        return
    reason = closing.opening_stop(at_s, now_s, w.limit_s, site.jumps)
    if reason != RUNNING:
        stop(replica, round, reason)
        return
    if at_s > now_s:
        site.jumps += 1
        push(s, at_s, closing.rank(closing.OPENING, 0, i), i, 0)
        return
    start_round(w, s, i, round)


@inner
def start_round(w, s, i, round):
    replica, site, now_s = s.replica[0], s.sites[i], s.replica[0].now_s
    row = s.site_rows[round - replica.first_round, i]
    site.open, site.computing, site.jumps, site.opened_s, site.answer_s = 1, 1, 0, now_s, inf
    row.opened_s, row.computed_s = now_s, nan
    draw_visit(w, w.client[i], replica.id, i, round, 0, site)
    kind = closing.PROGRESS if visits.uploads(site) else closing.BREAK
    push(s, visits.compute_ends_s(now_s, site), closing.rank(kind, site.tie, i), -1 - i, round)
    until_s = offline_s(w, replica.id, i, now_s)
    if until_s != until_s:
        replica.status = TOO_LATE
    if until_s != site.offline_s:
        site.offline_s = until_s
        if until_s < inf:
            push(s, until_s, closing.rank(closing.OFFLINE, 0, i), -1 - i, 0)


@inner
def computed(w, s, i):
    """Send the own reply to every neighbour that counts it; then wait for theirs."""
    replica, site = s.replica[0], s.sites[i]
    round = site.ended + 1
    end_work(s, i, ARRIVED if site.drop == NO_DROP else DROPPED)
    s.site_rows[round - replica.first_round, i].computed_s = replica.now_s
    for k in range(w.offsets[i], w.offsets[i + 1]):
        if s.message_rows[round - replica.first_round, w.outgoing[k]].bits != UNUSED:
            send(w, s, i, w.outgoing[k], round)
    consider(w, s, i)


@inner
def end_work(s, i, outcome):
    site, replica = s.sites[i], s.replica[0]
    row = s.site_rows[site.ended + 1 - replica.first_round, i]
    site.computing, row.outcome, row.worked_until_s = 0, outcome, replica.now_s


@called
def drop_out(w, s, i):
    """End a site's round without a reply: it keeps its model, and its neighbours wait for it no longer."""
    round, first = s.sites[i].ended + 1, s.replica[0].first_round
    end_work(s, i, DROPPED)
    end_round(s, i)
    for k in range(w.offsets[i], w.offsets[i + 1]):
        m = w.outgoing[k]
        if s.message_rows[round - first, m].bits != UNUSED:
            message_ended(w, s, w.message[m].receiver, round, 0)


@inner
def consider(w, s, i):
    """Ask the policy when site i, whose own reply is there, stops waiting for its neighbours."""
    site, now_s = s.sites[i], s.replica[0].now_s
    row = s.site_rows[site.ended + 1 - s.replica[0].first_round, i]
    previous_s = site.answer_s
    site.answer_s = closing.closing_s(w.closing, site.opened_s, now_s, row.expected, row.arrived)
    if closing.closes_now(site.answer_s, previous_s, now_s, row.outstanding):
        aggregate(s, i)
    elif site.answer_s != previous_s:
        site.deadline += 1
        if site.answer_s < inf:
            push(s, site.answer_s, closing.rank(closing.DEADLINE, 0, i), i, site.deadline)


@inner
def aggregate(s, i):
    s.site_rows[s.sites[i].ended + 1 - s.replica[0].first_round, i].aggregated = 1
    end_round(s, i)


@inner
def end_round(s, i):
    """End site i's round; the replica has closed a round when all its sites have ended it."""
    replica, site = s.replica[0], s.sites[i]
    site.open = 0
    site.ended += 1
    site.deadline += 1  # the present one is stale
    s.site_rows[site.ended - replica.first_round, i].ended_s = replica.now_s
    replica.lagging -= site.ended == replica.closed_rounds + 1
    if replica.lagging == 0:
        replica.closed_rounds += 1
        for other in range(len(s.sites)):
            replica.lagging += s.sites[other].ended <= replica.closed_rounds
    push(s, replica.now_s, closing.rank(closing.OPENING, 0, i), i, 0)


# --- Messages ---------------------------------------------------------------------------------------------------------


@inner
def send(w, s, i, m, round):
    """Start message m of a round: site i's reply to one neighbour."""
    replica, site, route = s.replica[0], s.sites[i], w.message[m]
    at = replica.slot_free
    if at >= 0:
        replica.slot_free = s.messages[at].following
    else:
        at = replica.slot_top
        replica.slot_top += 1
    replica.sent += 1
    replica.in_flight += 1
    v, row = s.messages[at], s.message_rows[round - replica.first_round, m]
    v.message, v.stamp, v.round, v.flow, v.sending_s = m, replica.sent, round, NO_FLOW, replica.now_s
    v.bits = visits.reply_bits(reply_bits(w, round), site)
    v.arrives = site.drop != IN_UPLOAD
    v.tie = tie_of(w, replica.id, i, round, 1 + route.receiver)
    row.bits, row.outcome, row.arrived_s = v.bits, LATE if v.arrives else DROPPED, nan
    v.previous, v.following = -1, site.sending
    if site.sending >= 0:
        s.messages[site.sending].previous = at
    site.sending = at
    if not start_flow(w, s, at):
        arrives(w, s, at, replica.now_s + visits.transfer_s(v.bits, route.loss_factor, route.bandwidth_bps))


@inner
def arrives(w, s, at, last_bit_s):
    """Plan the end of a message whose last bit leaves at a time."""
    v, route = s.messages[at], w.message[s.messages[at].message]
    kind = closing.ARRIVAL if v.arrives else closing.BREAK
    push(s, visits.arrival_s(last_bit_s, route.latency_s), closing.rank(kind, v.tie, route.order), at, v.stamp)


@inner
def message_over(w, s, at):
    """Take a message that has arrived or broken out of its slot, and give it to its receiver."""
    v, arrived = s.messages[at], 0
    m, round = v.message, v.round
    receiver = w.message[m].receiver
    if v.arrives and s.sites[receiver].ended < round:
        row, arrived = s.message_rows[round - s.replica[0].first_round, m], 1
        row.outcome, row.arrived_s = ARRIVED, s.replica[0].now_s
    free(w, s, at)
    message_ended(w, s, receiver, round, arrived)


@inner
def free(w, s, at):
    v, replica = s.messages[at], s.replica[0]
    if v.previous >= 0:
        s.messages[v.previous].following = v.following
    else:
        s.sites[w.message[v.message].sender].sending = v.following
    if v.following >= 0:
        s.messages[v.following].previous = v.previous
    v.stamp, v.following, replica.slot_free = 0, replica.slot_free, at
    replica.in_flight -= 1


@inner
def message_ended(w, s, i, round, arrived):
    """Count a message to site i that arrived or will not; only those of the open round ask the policy."""
    site = s.sites[i]
    if site.ended < round:
        row = s.site_rows[round - s.replica[0].first_round, i]
        row.outstanding -= 1
        row.arrived += arrived
        if site.open and not site.computing and site.ended + 1 == round:
            consider(w, s, i)


@called
def end_flows(w, s, number):
    """End the flows of a group whose last bit leaves now."""
    at = next_over(s, number)
    while at >= 0:
        owner = end_flow(s, number, at)
        s.messages[owner].flow = NO_FLOW
        arrives(w, s, owner, s.replica[0].now_s)
        at = next_over(s, number)
    set_clock(s, number)


@called
def go_offline(w, s, i):
    """Break everything that a device is sending, messages of earlier rounds too, and what it computes.

    Bits first: a receiver that ends its round by it may make the row final.
    """
    replica, site = s.replica[0], s.sites[i]
    at = site.sending
    while at >= 0:
        v = s.messages[at]
        bits = bits_until_now(w, s, at)
        if v.round > replica.closed_rounds:
            row = s.message_rows[v.round - replica.first_round, v.message]
            row.bits, row.outcome = bits, DROPPED
            s.site_rows[v.round - replica.first_round, i].outcome = DROPPED
        v.arrives = 0
        at = v.following
    if site.computing:
        drop_out(w, s, i)
    while site.sending >= 0:
        message_over(w, s, site.sending)


@inner
def bits_until_now(w, s, at):
    """Return the bits of a message that have left its sender; take it off the links if it is still there."""
    v, route = s.messages[at], w.message[s.messages[at].message]
    if v.flow == NO_FLOW:
        return visits.bits_sent(s.replica[0].now_s - v.sending_s, v.bits, route.loss_factor, inf)
    carried = stop_flow(s, v.flow)
    v.flow = NO_FLOW
    return visits.flow_bits_sent(carried, v.bits, route.loss_factor)


# --- The kind of links ------------------------------------------------------------------------------------------------


def start_flow(w, s, at):
    """Start the flow of a message; return False if it needs none."""
    raise NotImplementedError


def start_flow_shared(w, s, at):
    v, route = s.messages[at], w.message[s.messages[at].message]
    if v.bits > 0 and route.bandwidth_bps < inf:
        v.flow = new_flow(w, s, route.route, float(v.bits) * route.loss_factor, at)
        return True
    return False


def stop_flow(s, flow):
    """Take a flow off the links; return the bits that they carried."""
    raise NotImplementedError


def link_ended(w, s, number):
    """End flows of a group."""
    raise NotImplementedError


@overload(start_flow, jit_options=INNER)
def _(w, s, at):
    return start_flow_shared if is_shared(s) else lambda w, s, at: False


@overload(stop_flow, jit_options=INNER)
def _(s, flow):
    return (lambda s, flow: take_off(s, flow)) if is_shared(s) else lambda s, flow: 0.0


@overload(link_ended, jit_options=INNER)
def _(w, s, number):
    return (lambda w, s, number: end_flows(w, s, number)) if is_shared(s) else lambda w, s, number: None
