"""The short path: private links and devices that are always online need neither an event loop nor flows.

A visit's end is then a function of its round's opening, and edges affect each other at the cloud only.
"""

from __future__ import annotations

from math import inf, nan

from fedsim.kernels.clock import compiled_rules  # noqa: F401
from fedsim.kernels.clock.decorators import called, inner, unit
from fedsim.kernels.clock.heap import sink
from fedsim.kernels.clock.references import by_reference
from fedsim.kernels.clock.selection import select
from fedsim.kernels.clock.state import DONE, NEEDS_GROWTH, NEEDS_LOOP, NEVER_CLOSES
from fedsim.kernels.clock.visits import compute_s, draw_outcome, private_bits, private_ends_s, reply_bits
from fedsim.rules import closing, visits
from fedsim.rules.closing import ARRIVAL, BREAK, WHEN_ALL_ENDED
from fedsim.rules.visits import ARRIVED, DROPPED, NO_DROP, NONE


@unit
def uncontended_rounds(w, state, scratch, cohort, out, active, until):
    """Simulate rounds of the active replicas up to round `until`; return why it ended."""
    w, state, scratch = by_reference(w), by_reference(state), by_reference(scratch)
    cohort, out, sites = by_reference(cohort), by_reference(out), state.sites.shape[1]
    for r in active:
        while state.closed_rounds[r] < until:
            if needs_growth(w, out, sites):
                return NEEDS_GROWTH
            round = state.closed_rounds[r] + 1
            merges, last_s, never = closing.merge_due(round, w.every), -inf, False
            for k in range(sites):
                segment, route = out.segments[out.counts[0].segments + k], w.cloud[k]
                times = segment.times
                one_round(w, scratch, cohort, out, segment, state.ids[r], k, round, state.sites[r, k].opens_s)
                never = never or times.closed_s == inf
                segment.position, segment.round, segment.site = r, round, k
                times.from_cloud_s, times.at_cloud_s = state.sites[r, k].from_cloud_s, nan
                segment.aggregated_s, state.sites[r, k].from_cloud_s = times.closed_s, nan
                state.sites[r, k].opens_s = times.closed_s
                if merges:
                    sent_s = times.closed_s + visits.transfer_s(w.to_cloud_bits, route.up_loss_factor, route.up_bps)
                    times.at_cloud_s = visits.arrival_s(sent_s, route.up_latency_s)
                    last_s = times.at_cloud_s if times.at_cloud_s > last_s else last_s
            if never or last_s == inf:
                if w.limit_s == inf:
                    return NEVER_CLOSES
                break
            if merges:
                for k in range(sites):
                    route = w.cloud[k]
                    sent_s = last_s + visits.transfer_s(w.from_cloud_bits, route.down_loss_factor, route.down_bps)
                    out.segments[out.counts[0].segments + k].aggregated_s = last_s
                    state.sites[r, k].opens_s = visits.arrival_s(sent_s, route.down_latency_s)
                    state.sites[r, k].from_cloud_s = state.sites[r, k].opens_s
            for k in range(sites):
                segment = out.segments[out.counts[0].segments + k]
                if segment.unselected > 0 and state.sites[r, k].opens_s <= segment.opened_s + w.unselected_s:
                    return NEEDS_LOOP
            out.counts[0].segments += sites
            state.closed_rounds[r] = round
    return DONE


@unit
def next_cohorts(w, state, scratch, out, active):
    """List the clients of the next round of the active replicas; return how many they are."""
    w, state, scratch, out, at = by_reference(w), by_reference(state), by_reference(scratch), by_reference(out), 0
    for r in active:
        for k in range(state.sites.shape[1]):
            m = select(w, scratch, state.ids[r], k, state.closed_rounds[r] + 1, state.sites[r, k].opens_s)
            for j in range(m):
                out.visits.client[at + j], out.visits.multiplicity[at + j] = scratch.chosen[j], r
            at += m
    return at


@inner
def needs_growth(w, out, sites):
    """Return True if a round may need more memory than there is."""
    counts = out.counts[0]
    return counts.visits + w.slots[sites] > len(out.visits.client) or counts.segments + sites > len(out.segments)


@unit
def given_round(w, state, given, cohort, out, active):
    """Simulate the next round of the active replicas of a star with these cohorts; return why it ended."""
    w, state, given = by_reference(w), by_reference(state), by_reference(given)
    cohort, out = by_reference(cohort), by_reference(out)
    for i in range(len(active)):
        r, first = active[i], given.offsets[i]
        m, round = given.offsets[i + 1] - first, state.closed_rounds[r] + 1
        for j in range(m):
            cohort.client[j], cohort.drawn[j] = w.client[given.chosen[first + j]], given.drawn[first + j]
        segment = out.segments[out.counts[0].segments]
        close(w, given, first, cohort, out, segment, m, 0, round, state.sites[r, 0].opens_s)
        if segment.times.closed_s == inf:
            if w.limit_s == inf:
                return NEVER_CLOSES
            continue
        segment.position, segment.round, segment.site = r, round, 0
        segment.times.from_cloud_s = segment.times.at_cloud_s = nan
        segment.aggregated_s = state.sites[r, 0].opens_s = segment.times.closed_s
        out.counts[0].segments += 1
        state.closed_rounds[r] = round
    return DONE


@called
def one_round(w, scratch, cohort, out, segment, replica, k, round, opened_s):
    """List the visits of one round of site k; write the time of its close into the segment."""
    m = select(w, scratch, replica, k, round, opened_s)
    for j in range(m):  # loads that do not depend on each other: cache misses overlap
        cohort.client[j] = w.client[scratch.chosen[j]]
    ordered = w.closing.code != WHEN_ALL_ENDED
    for j in range(m):  # a loop by itself, which the compiler vectorises
        cohort.drawn[j].compute_s = compute_s(w, cohort.client[j], replica, scratch.chosen[j], round, 0)
    for j in range(m):
        draw_outcome(w, replica, scratch.chosen[j], round, 0, ordered, cohort.drawn[j])
    close(w, scratch, 0, cohort, out, segment, m, k, round, opened_s)


@inner
def close(w, drawn, first, cohort, out, segment, m, k, round, opened_s):
    """List m visits of site k, of the clients drawn.chosen[first], ...; write the time of the close into `segment`."""
    ended, begin = out.visits, out.counts[0].visits
    out.counts[0].visits += m
    segment.begin, segment.visits, segment.opened_s = begin, m, opened_s
    segment.unselected = w.offsets[k + 1] - w.offsets[k] - m if w.broadcasts_to_all else 0
    for j in range(m):
        ended.client[begin + j] = drawn.chosen[first + j]
        ended.multiplicity[begin + j], ended.started_s[begin + j] = drawn.multiplicity[first + j], opened_s
    if w.closing.code == WHEN_ALL_ENDED and not w.drops:
        segment.times.closed_s = wait_for_all(w, cohort, ended, begin, m, opened_s, round)
    else:
        segment.times.closed_s = close_early(w, cohort, ended, begin, m, opened_s, round)


@inner
def message_bits(w, cohort, at, round):
    """Return the bits of the reply of a listed visit."""
    return cohort.bits[at] if len(cohort.bits) > 0 else reply_bits(w, round)


@inner
def wait_for_all(w, cohort, ended, begin, m, opened_s, round):
    """List visits that all arrive; return when the last one does."""
    for j in range(m):
        bits = message_bits(w, cohort, begin + j, round)
        downloaded_s, computed_s, end_s = private_ends_s(w, cohort.client[j], cohort.drawn[j], opened_s, bits)
        ended.downloaded_s[begin + j], ended.computed_s[begin + j] = downloaded_s, computed_s
        ended.ended_s[begin + j], ended.outcome[begin + j] = end_s, ARRIVED
        ended.down_bits[begin + j], ended.up_bits[begin + j] = w.broadcast_bits, bits
    closed_s = opened_s
    for j in range(m):
        closed_s = ended.ended_s[begin + j] if ended.ended_s[begin + j] > closed_s else closed_s
    return closed_s


@called
def close_early(w, cohort, ended, begin, m, opened_s, round):
    """List visits that may drop out, or that their server may cut; return when the round closes."""
    for j in range(m):
        drawn, event, full_bits = cohort.drawn[j], cohort.events[j], message_bits(w, cohort, begin + j, round)
        ended.downloaded_s[begin + j], ended.computed_s[begin + j], event.time_s = private_ends_s(
            w, cohort.client[j], drawn, opened_s, full_bits
        )
        event.rank = closing.rank(ARRIVAL if drawn.drop == NO_DROP else BREAK, drawn.tie, ended.client[begin + j])
        event.at, ended.ended_s[begin + j], ended.outcome[begin + j] = j, event.time_s, NONE
    closed_s = close_by_rule(w, cohort.events, ended, begin, m, opened_s)
    for j in range(m):
        at, drawn = begin + j, cohort.drawn[j]
        bits = visits.reply_bits(message_bits(w, cohort, at, round), drawn)
        complete = ended.outcome[at] != NONE
        now_s = ended.ended_s[at] if complete else closed_s
        ended.down_bits[at], ended.up_bits[at] = private_bits(
            w, cohort.client[j], drawn, now_s, opened_s, ended.downloaded_s[at], ended.computed_s[at], bits, complete
        )
        if not complete:
            ended.outcome[at], ended.ended_s[at] = visits.cut_outcome(ended.computed_s[at] <= now_s), now_s
        if not ended.downloaded_s[at] <= now_s:
            ended.downloaded_s[at] = nan
        if not ended.computed_s[at] <= now_s:
            ended.computed_s[at] = nan
    return closed_s


@inner
def close_by_rule(w, events, ended, begin, m, opened_s):
    """Take the ends of visits in their order until the round closes; note outcomes; return the time."""
    now_s, arrived, outstanding = opened_s, 0, m
    if w.closing.code == WHEN_ALL_ENDED:  # their order does not matter
        for j in range(m):
            ended.outcome[begin + j] = ARRIVED if closing.kind_of(events[j].rank) == ARRIVAL else DROPPED
            now_s = events[j].time_s if events[j].time_s > now_s else now_s
        return now_s
    answer_s = closing.closing_s(w.closing, opened_s, opened_s, m, 0)
    deadline_s = closing.first_closing_s(answer_s, opened_s)
    for i in range(m // 2 - 1, -1, -1):
        sink(events, m, i, i)
    while outstanding > 0:
        first = events[0]
        if deadline_s < first.time_s:  # at the same instant visits end first
            return deadline_s
        now_s, kind, j = first.time_s, closing.kind_of(first.rank), first.at
        if now_s == inf:
            return inf
        outstanding -= 1
        sink(events, outstanding, 0, outstanding)
        arrived += kind == ARRIVAL
        ended.outcome[begin + j] = ARRIVED if kind == ARRIVAL else DROPPED
        previous_s = answer_s
        if outstanding > 0:
            answer_s = closing.closing_s(w.closing, opened_s, now_s, m, arrived)
        if closing.closes_now(answer_s, previous_s, now_s, outstanding):
            return now_s
        if answer_s != previous_s:
            deadline_s = answer_s
    return now_s
