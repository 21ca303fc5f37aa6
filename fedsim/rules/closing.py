"""A round: the order of events at one instant, when a round closes, when edges merge, why a replica stops."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

# Kinds of events, in the order in which the events of one instant are handled.
# BREAK: a visit or a message drops out. OFFLINE: a device goes offline, which ends what has not ended by itself.
FLOW_END, PROGRESS, ARRIVAL, BREAK, OFFLINE, DEADLINE, MERGE, OPENING, SHARING = 1, 2, 3, 4, 5, 6, 7, 8, 9

WHEN_ALL_ENDED, AT_REPLIES, AT_DEADLINE = 0, 1, 2  # codes of closing rules

RUNNING, NO_CLIENTS, OUT_OF_TIME = 0, 1, 2  # why a clock has no further round of a replica
STOPPED_BY = ("", "no clients", "seconds")
MOST_APART = 10_000  # rounds between two sites
MOST_PENDING = 200_000_000  # messages and visits of rounds that some sites have begun and others have not
MOST_DROPOUTS = 1_000  # in a row, and 100 a place, before a replica of asynchronous clients stops
MOST_JUMPS = 10_000  # of the clock in a row, from one time at which clients come online to the next


# --- Order ----------------------------------------------------------------------------------------------------------


def rank(kind: int, tie: int, number: int) -> int:
    """Return an event's place among those of its instant: kind, keyed 30-bit number, number of a client or site."""
    return (kind << 58) | (tie << 28) | number


def kind_of(rank: int) -> int:
    """Return the kind of an event from its rank."""
    return rank >> 58


def ends_visit(kind: int) -> bool:
    """Return True if an event of this kind ends a visit."""
    return ARRIVAL <= kind <= OFFLINE


def number_of(rank: int) -> int:
    """Return the client or site of an event from its rank."""
    return rank & 0xFFFFFFF


def tie_of(u: float) -> int:
    """Return the keyed 30-bit number of a visit, from its uniform in (0, 1) of the stream TIE."""
    return int(u * 1073741824.0)


def is_before(time_s: float, rank: int, other_s: float, other_rank: int) -> bool:
    """Return True if one event is handled before another."""
    return time_s < other_s or (time_s == other_s and rank < other_rank)


# --- A round --------------------------------------------------------------------------------------------------------


class Closing(NamedTuple):
    """A closing rule as columns: a code and its two numbers."""

    code: int = WHEN_ALL_ENDED
    a: float = 0.0
    b: float = 0.0


def closing_s(closing: Closing, opened_s: float, now_s: float, selected: int, arrived: int) -> float:
    """Return the time at which a policy closes the round; inf: keep waiting.

    AT_REPLIES: when a = K replies have arrived. AT_DEADLINE: a seconds after the opening. Every round also closes when
    no visit is outstanding (`closes_now`); WHEN_ALL_ENDED has no other rule.
    """
    if closing.code == AT_REPLIES:
        return now_s if float(arrived) >= closing.a else inf
    if closing.code == AT_DEADLINE:
        return opened_s + closing.a
    return inf


def counts_replies(closing: Closing) -> bool:
    """Return True if the number of replies closes a round: then ties decide which replies are aggregated."""
    return closing.code != WHEN_ALL_ENDED and closing.code != AT_DEADLINE


def first_closing_s(answer_s: float, opened_s: float) -> float:
    """Return when a round closes by the answer at its opening: never before what else happens at that instant."""
    return answer_s if answer_s > opened_s else opened_s


def closes_now(answer_s: float, previous_s: float, now_s: float, outstanding: int) -> bool:
    """Return True if a round closes at the end of a visit.

    No visit is outstanding, or the policy's new answer is now. A repeated answer does not close earlier within its
    instant: the round closes by itself then, after the arrivals.
    """
    return outstanding == 0 or (answer_s != previous_s and answer_s <= now_s)


def merge_due(round: int, every: int) -> bool:
    """Return True if the edges send their models to the cloud after this round, from 1; every = 0: no cloud."""
    return every > 0 and round % every == 0


def is_too_far_apart(rounds: int, size: int) -> bool:
    """Return True if two sites are too many rounds apart for the memory; `size` is that of a round."""
    return rounds > MOST_APART or (rounds > 1 and size > MOST_PENDING // rounds)


# --- Asynchronous clients -------------------------------------------------------------------------------------------


def buffer_is_full(arrived: int, replies: int) -> bool:
    """Return True if the server aggregates the replies of asynchronous clients."""
    return arrived >= replies


def gives_up(dropped: int, places: int) -> bool:
    """Return True if an asynchronous replica stops: that many visits dropped out since the last reply arrived."""
    return dropped >= MOST_DROPOUTS and dropped // 100 >= places


# --- Waiting for clients --------------------------------------------------------------------------------------------


def opening_stop(online_s: float, now_s: float, limit_s: float, jumps: int) -> int:
    """Return RUNNING, or why a site never opens a round: enough clients are online from `online_s` on.

    `jumps`: how often it has waited for this round, because its clients were offline again.
    """
    if jumps >= MOST_JUMPS:
        return NO_CLIENTS
    if online_s <= now_s:
        return RUNNING
    if online_s == inf:
        return NO_CLIENTS
    return OUT_OF_TIME if online_s > limit_s else RUNNING
