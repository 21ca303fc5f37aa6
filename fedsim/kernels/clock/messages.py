"""Messages: phases of visits on shared links, models between an edge and the cloud, unselected broadcasts.

What differs between private and shared links is chosen by the type of `State.links`, so that a loop without flows is
compiled without them.
"""

from __future__ import annotations

from math import inf

from numba.extending import overload

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import INNER, called, inner
from fedsim.kernels.clock.flows import end_flow, new_flow, next_over, serve, set_clock, take_off
from fedsim.kernels.clock.heap import is_flow_end_stale, push
from fedsim.kernels.clock.state import COMPUTE, DOWNLOAD, UPLOAD, Links
from fedsim.kernels.clock.visits import NO_FLOW, account, account_private, begin, begin_private, schedule
from fedsim.rules import closing, visits
from fedsim.rules.visits import BEFORE, IN_COMPUTE, NO_DROP

CLOUD = -2  # the owner of site k's message to or from the cloud is CLOUD - k


def begin_shared(w, s, slot):
    v = s.visits[slot]
    if v.drop == BEFORE:
        v.phase, v.ends_s = COMPUTE, v.started_s
    else:
        v.phase = DOWNLOAD
        send(w, s, slot, w.broadcast_bits)


@inner
def send(w, s, slot, bits):
    """Start the message of a visit's phase."""
    v, client, now_s = s.visits[slot], s.clients[slot], s.replica[0].now_s
    v.sending_s, upward = now_s, v.phase == UPLOAD
    if upward:
        v.bits = bits
    bandwidth_bps = client.up_bps if upward else client.down_bps
    if bits > 0 and bandwidth_bps < inf:
        loss_factor = client.up_loss_factor if upward else client.down_loss_factor
        route = w.route_up[v.client] if upward else w.route_down[v.client]
        v.flow = new_flow(w, s, route, float(bits) * loss_factor, slot)
    else:
        last_bit_left(s, slot)


@inner
def last_bit_left(s, slot):
    """Plan the arrival of a message, one latency from now."""
    v, client, now_s = s.visits[slot], s.clients[slot], s.replica[0].now_s
    v.flow = NO_FLOW
    if v.phase == DOWNLOAD:
        schedule(s, slot, visits.arrival_s(now_s, client.down_latency_s), closing.PROGRESS)
    else:
        v.ends_s = visits.arrival_s(now_s, client.up_latency_s)
        schedule(s, slot, v.ends_s, closing.ARRIVAL if v.drop == NO_DROP else closing.BREAK)


@inner
def start_next_phase(w, s, slot):
    """Compute after the download, upload after that."""
    v, now_s = s.visits[slot], s.replica[0].now_s
    if v.phase == DOWNLOAD:
        v.phase, v.downloaded_s = COMPUTE, now_s
        v.down_bits += w.broadcast_bits
        ends_s = visits.compute_ends_s(now_s, v)
        schedule(s, slot, ends_s, closing.BREAK if v.drop == IN_COMPUTE else closing.PROGRESS)
    else:
        v.phase, v.computed_s = UPLOAD, now_s
        send(w, s, slot, visits.reply_bits(v.bits, v))


def account_shared(w, s, slot, complete):
    v, client = s.visits[slot], s.clients[slot]
    if v.phase == UPLOAD:
        v.up_bits += v.bits if complete else bits_until_now(s, slot, v.bits, client.up_loss_factor)
    elif v.phase == DOWNLOAD:
        v.down_bits += bits_until_now(s, slot, w.broadcast_bits, client.down_loss_factor)
    return v.phase == UPLOAD


@inner
def bits_until_now(s, slot, bits, loss_factor):
    """Return the bits of a message that have left its sender; take it off the links if it is still there."""
    v = s.visits[slot]
    if v.flow == NO_FLOW:
        return visits.bits_sent(s.replica[0].now_s - v.sending_s, bits, loss_factor, inf)
    carried = take_off(s, v.flow)
    v.flow = NO_FLOW
    return visits.flow_bits_sent(carried, bits, loss_factor)


@called
def end_flows(w, s, number):
    """End the flows of a group whose last bit leaves now."""
    at = next_over(s, number)
    while at >= 0:
        owner = end_flow(s, number, at)
        if owner >= 0:
            last_bit_left(s, owner)
        elif owner <= CLOUD:
            model_left(w, s, CLOUD - owner)
        at = next_over(s, number)
    set_clock(s, number)


# --- Messages between an edge and the cloud -------------------------------------------------------------------------


@called
def send_model(w, s, k):
    """Send an edge's model to the cloud, or the cloud's back if `at_cloud`."""
    site, route, now_s = s.sites[k], w.cloud[k], s.replica[0].now_s
    bits = w.from_cloud_bits if site.at_cloud else w.to_cloud_bits
    loss_factor = route.down_loss_factor if site.at_cloud else route.up_loss_factor
    bandwidth_bps = route.down_bps if site.at_cloud else route.up_bps
    if not start_model_flow(w, s, k, bits, loss_factor, bandwidth_bps):
        model_arrives(w, s, k, now_s + visits.transfer_s(bits, loss_factor, bandwidth_bps))


@inner
def model_left(w, s, k):
    model_arrives(w, s, k, s.replica[0].now_s)


@inner
def model_arrives(w, s, k, last_bit_s):
    """Plan the arrival of a model whose last bit leaves at a time."""
    latency_s = w.cloud[k].down_latency_s if s.sites[k].at_cloud else w.cloud[k].up_latency_s
    push(s, visits.arrival_s(last_bit_s, latency_s), closing.rank(closing.MERGE, 0, k), k, 0)


def start_model_flow(w, s, k, bits, loss_factor, bandwidth_bps):
    """Start the flow of a message between an edge and the cloud; return False if it needs none."""
    raise NotImplementedError


def start_model_flow_shared(w, s, k, bits, loss_factor, bandwidth_bps):
    if bits > 0 and bandwidth_bps < inf:
        row = len(w.client) + k
        route = w.route_down[row] if s.sites[k].at_cloud else w.route_up[row]
        new_flow(w, s, route, float(bits) * loss_factor, CLOUD - k)
        return True
    return False


def send_unselected(w, s, c):
    """Send a broadcast to a client that was not selected; it only takes its share of the links."""
    raise NotImplementedError


def send_unselected_shared(w, s, c):
    if w.broadcast_bits > 0 and w.client[c].down_bps < inf:
        new_flow(w, s, w.route_down[c], float(w.broadcast_bits) * w.client[c].down_loss_factor, NO_FLOW)


def link_event(w, s, kind, at):
    """Handle an event of shared links: a phase or a flow ends."""
    raise NotImplementedError


def link_event_shared(w, s, kind, at):
    if kind == closing.PROGRESS:
        start_next_phase(w, s, at)
    else:
        end_flows(w, s, at)


def share(s):
    """Share the links again."""
    raise NotImplementedError


def room_for_flows(s):
    """Return how many more flows there is room for."""
    raise NotImplementedError


# --- The kind of links ----------------------------------------------------------------------------------------------


def is_shared(s):
    """Return True if the type of a state has shared links."""
    return s.types[s.fields.index("links")].instance_class is Links


@overload(begin, jit_options=INNER)
def _(w, s, slot):
    return begin_shared if is_shared(s) else begin_private


@overload(account, jit_options=INNER)
def _(w, s, slot, complete):
    return account_shared if is_shared(s) else account_private


@overload(start_model_flow, jit_options=INNER)
def _(w, s, k, bits, loss_factor, bandwidth_bps):
    return start_model_flow_shared if is_shared(s) else lambda w, s, k, bits, loss_factor, bandwidth_bps: False


@overload(send_unselected, jit_options=INNER)
def _(w, s, c):
    return send_unselected_shared if is_shared(s) else lambda w, s, c: None


@overload(link_event, jit_options=INNER)
def _(w, s, kind, at):
    return link_event_shared if is_shared(s) else lambda w, s, kind, at: None


@overload(share, jit_options=INNER)
def _(s):
    return (lambda s: serve(s)) if is_shared(s) else lambda s: None


@overload(room_for_flows, jit_options=INNER)
def _(s):
    return (lambda s: len(s.links.flows) - s.replica[0].flows) if is_shared(s) else lambda s: 1 << 60


@overload(is_flow_end_stale, jit_options=INNER)
def _(links, at, stamp):
    if links.instance_class is Links:
        return lambda links, at, stamp: links.groups[at].stamp != stamp
    return lambda links, at, stamp: True
