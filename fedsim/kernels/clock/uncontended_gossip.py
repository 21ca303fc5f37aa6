"""The short path of gossip: full(), links of their own, and devices that neither drop out nor go offline.

A site then ends its round at the latest of its own reply and of its neighbours' messages: no event loop is needed.
Where a message would meet the one before it on its link, the loop takes over.
"""

from __future__ import annotations

from math import inf

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import inner, unit
from fedsim.kernels.clock.gossip import UNUSED
from fedsim.kernels.clock.references import by_reference
from fedsim.kernels.clock.state import DONE, NEEDS_LOOP
from fedsim.kernels.clock.visits import compute_s, reply_bits
from fedsim.rules import visits
from fedsim.rules.visits import ARRIVED


@unit
def uncontended_gossip(w, state, site_rows, message_rows, active, first):
    """Simulate the rounds of all rows of the active replicas; return DONE, or NEEDS_LOOP."""
    w, state = by_reference(w), by_reference(state)
    for r in active:
        if first == 1:
            for i in range(len(w.client)):
                state.computed_s[r, i] = compute_s(w, w.client[i], state.ids[r], i, 1, 0)
        for k in range(site_rows.shape[1]):
            if not one_round(
                w, state.ids[r], first + k, state.ended_s[r], state.computed_s[r], site_rows[r, k], message_rows[r, k]
            ):
                return NEEDS_LOOP
    return DONE


@inner
def one_round(w, replica, round, ended_s, computed_s, sites, messages):
    """Write what becomes of one round of all sites; return False if only the loop can serve it."""
    bits = reply_bits(w, round)
    for i in range(len(sites)):
        row = sites[i]
        row.opened_s, row.outcome, row.aggregated = ended_s[i], ARRIVED, 1
        row.computed_s = row.worked_until_s = row.ended_s = computed_s[i]
    for m in range(len(messages)):
        message, route = messages[m], w.message[m]
        if message.bits != UNUSED:
            sent_s = sites[route.sender].computed_s + visits.transfer_s(bits, route.loss_factor, route.bandwidth_bps)
            message.bits, message.outcome, message.arrived_s = bits, ARRIVED, visits.arrival_s(sent_s, route.latency_s)
            receiver = sites[route.receiver]
            receiver.ended_s = message.arrived_s if message.arrived_s > receiver.ended_s else receiver.ended_s
    for i in range(len(sites)):
        ended_s[i] = sites[i].ended_s
        if ended_s[i] == inf:
            return False
        computed_s[i] = ended_s[i] + compute_s(w, w.client[i], replica, i, round + 1, 0)
    return not (w.takes_time and bits > 0 and may_meet(w, computed_s, sites, messages, bits))


@inner
def may_meet(w, next_s, sites, messages, bits):
    """Return True if a site's next message may find the present one on its link: both would share it."""
    for m in range(len(messages)):
        route = w.message[m]
        if messages[m].bits != UNUSED and route.bandwidth_bps < inf:
            sent_s = sites[route.sender].computed_s + visits.transfer_s(bits, route.loss_factor, route.bandwidth_bps)
            if next_s[route.sender] < sent_s:
                return True
    return False
