"""Visits in slots. On private links a visit is one event, its end; on shared links every phase is one (`messages`)."""

from __future__ import annotations

from math import inf, nan

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner
from fedsim.kernels.clock.heap import push
from fedsim.kernels.clock.selection import offline_s
from fedsim.kernels.clock.state import OVER, TOO_LATE, UPLOAD
from fedsim.rng import Stream
from fedsim.rules import closing, draws, visits
from fedsim.rules.visits import ARRIVED, BEFORE, DROPPED, IN_COMPUTE, NO_DROP

TIE, COMPUTING, DROPOUT = int(Stream.TIE), int(Stream.COMPUTE), int(Stream.DROPOUT)
NO_FLOW = -1  # also the owner of a flow of an unselected broadcast


@called
def uniform(seed_low, seed_high, stream, replica, c, round, visit, step):
    """Return a uniform number of a visit."""
    return draws.uniform(draws.key_of(seed_low, seed_high, stream, replica, c, round - 1, visit), step)


@inner
def tie_of(w, replica, c, round, visit):
    """Return the keyed number of a visit that orders events of one instant."""
    return closing.tie_of(uniform(w.seed_low, w.seed_high, TIE, replica, c, round, visit, 0))


@inner
def compute_s(w, client, replica, c, round, visit):
    """Return the seconds that a visit computes."""
    if w.slowdown == draws.NO_SLOWDOWN:
        return client.work_s + client.wake_s
    key = draws.key_of(w.seed_low, w.seed_high, COMPUTING, replica, c, round - 1, visit)
    drawn = draws.normal(key) if w.slowdown == draws.LOGNORMAL else draws.uniform(key, 0)
    return client.work_s * draws.slowdown(w.slowdown, w.slowdown_a, w.slowdown_b, drawn) + client.wake_s


@inner
def draw_outcome(w, replica, c, round, visit, ordered, out):
    """Draw all but the compute time of a visit into a record; `ordered`: the order of events of one instant matters."""
    out.tie = tie_of(w, replica, c, round, visit) if ordered else 0
    out.drop, out.fraction = NO_DROP, 0.0
    if w.drops:
        out.drop = visits.drop_phase(
            uniform(w.seed_low, w.seed_high, DROPOUT, replica, c, round, visit, 0), w.dropout[c]
        )
        if out.drop != NO_DROP:
            out.fraction = uniform(w.seed_low, w.seed_high, DROPOUT, replica, c, round, visit, 1)


@inner
def draw_visit(w, client, replica, c, round, visit, out):
    """Draw a visit into a record with the fields of `DRAWN`."""
    out.compute_s = compute_s(w, client, replica, c, round, visit)
    draw_outcome(w, replica, c, round, visit, True, out)


@inner
def reply_bits(w, round):
    return w.first_reply_bits if round == 1 else w.reply_bits


@inner
def start_visit(w, s, slot, c, multiplicity, site, round, visit, bits):
    """Draw a visit of client c, whose record is in the slot, and start it; `bits`: of its reply."""
    replica, v, client = s.replica[0], s.visits[slot], s.clients[slot]
    replica.visits += 1
    v.client, v.stamp, v.site, v.multiplicity, v.outcome = c, replica.visits, site, multiplicity, visits.NONE
    v.started_s, v.downloaded_s, v.computed_s, v.ends_s = replica.now_s, nan, nan, inf
    v.flow, v.bits, v.down_bits, v.up_bits = NO_FLOW, bits, 0, 0
    draw_visit(w, client, replica.id, c, round, visit, v)
    until_s = offline_s(w, replica.id, c, replica.now_s)
    if until_s != until_s:
        replica.status = TOO_LATE
    begin(w, s, slot)
    if until_s < v.ends_s:
        schedule(s, slot, until_s, closing.OFFLINE)
    elif v.ends_s < inf:
        schedule(s, slot, v.ends_s, closing.ARRIVAL if v.drop == NO_DROP else closing.BREAK)


@inner
def schedule(s, slot, time_s, kind):
    """Add the next event of a visit."""
    v = s.visits[slot]
    push(s, time_s, closing.rank(kind, v.tie, v.client), slot, v.stamp)


@inner
def end_visit(w, s, slot, kind):
    """End a visit at its own end, when its device goes offline, or where its server cuts it: kind DEADLINE."""
    v, now_s = s.visits[slot], s.replica[0].now_s
    uploading = account(w, s, slot, now_s == v.ends_s and kind != closing.DEADLINE)
    if kind == closing.DEADLINE:
        v.outcome = visits.cut_outcome(uploading)
    else:
        v.outcome = ARRIVED if kind == closing.ARRIVAL else DROPPED
    v.phase, v.ended_s = OVER, now_s


@inner
def list_visit(ended, at, v):
    """List a visit that has ended."""
    ended.client[at], ended.multiplicity[at], ended.outcome[at] = v.client, v.multiplicity, v.outcome
    ended.started_s[at], ended.downloaded_s[at] = v.started_s, v.downloaded_s
    ended.computed_s[at], ended.ended_s[at] = v.computed_s, v.ended_s
    ended.down_bits[at], ended.up_bits[at] = v.down_bits, v.up_bits


def begin(w, s, slot):
    """Start a visit: on private links its end becomes known, on shared links its download begins."""
    raise NotImplementedError


def account(w, s, slot, complete):
    """Count the bits that left their senders; return True if the visit was uploading. `complete`: it was not cut."""
    raise NotImplementedError


# --- Private links --------------------------------------------------------------------------------------------------


@inner
def private_ends_s(w, client, drawn, start_s, bits):
    """Return when a visit's download, compute time and upload end; inf: never, because it drops out before."""
    if drawn.drop == BEFORE:
        return inf, inf, start_s
    sent_s = start_s + visits.transfer_s(w.broadcast_bits, client.down_loss_factor, client.down_bps)
    downloaded_s = visits.arrival_s(sent_s, client.down_latency_s)
    computed_s = visits.compute_ends_s(downloaded_s, drawn)
    if drawn.drop == IN_COMPUTE:
        return downloaded_s, inf, computed_s
    bits = visits.reply_bits(bits, drawn)
    sent_s = computed_s + visits.transfer_s(bits, client.up_loss_factor, client.up_bps)
    return downloaded_s, computed_s, visits.arrival_s(sent_s, client.up_latency_s)


@inner
def private_bits(w, client, drawn, now_s, start_s, downloaded_s, computed_s, bits, complete):
    """Return the bits down and up that had left their senders when a visit ended; `bits`: of its upload."""
    if drawn.drop == BEFORE:
        return 0, 0
    if now_s < downloaded_s:
        down = visits.bits_sent(now_s - start_s, w.broadcast_bits, client.down_loss_factor, client.down_bps)
        return down, 0
    if now_s < computed_s:
        return w.broadcast_bits, 0
    if complete:
        return w.broadcast_bits, bits
    return w.broadcast_bits, visits.bits_sent(now_s - computed_s, bits, client.up_loss_factor, client.up_bps)


def begin_private(w, s, slot):
    v = s.visits[slot]
    v.phase = UPLOAD
    v.downloaded_s, v.computed_s, v.ends_s = private_ends_s(w, s.clients[slot], v, v.started_s, v.bits)
    v.bits = visits.reply_bits(v.bits, v)


def account_private(w, s, slot, complete):
    v, now_s = s.visits[slot], s.replica[0].now_s
    v.down_bits, v.up_bits = private_bits(
        w, s.clients[slot], v, now_s, v.started_s, v.downloaded_s, v.computed_s, v.bits, complete
    )
    uploading = v.computed_s <= now_s
    if not v.downloaded_s <= now_s:
        v.downloaded_s = nan
    if not uploading:
        v.computed_s = nan
    return uploading
