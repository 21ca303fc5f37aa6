"""One visit as a SimPy process: download the model, compute, upload the reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

import simpy

from fedsim.engine.clock.simpy.links import Instant, Message, Process, UnsharedLinks
from fedsim.rules import closing
from fedsim.rules.visits import (
    ARRIVED,
    BEFORE,
    DROPPED,
    IN_COMPUTE,
    NO_DROP,
    NONE,
    compute_ends_s,
    cut_outcome,
    reply_bits,
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Visit:
    """One client's participation in one round: what was drawn for it, and how it ends."""

    client: int
    site: int
    version: int
    multiplicity: int
    compute_s: float
    drop: int
    fraction: float
    tie: int
    started_s: float
    down_bits: int = 0
    up_bits: int = 0
    downloaded_s: float = nan
    computed_s: float = nan
    ended_s: float = nan
    outcome: int = NONE
    visit: int = 0
    backhaul_bits: int = 0
    sending: Message | None = None  # the message on its way

    def rank(self, kind: int) -> int:
        return closing.rank(kind, self.tie, self.client)


def participate(
    env: simpy.Environment, links: UnsharedLinks, visit: Visit, broadcast_bits: int,
    bits: int | Callable[[Visit], int],
) -> Process:  # fmt: skip
    """Download the broadcast, compute, upload a reply of `bits`. An interrupt ends the visit at once.

    A function `bits` is called when the download has ended. It sets `visit.compute_s` and returns the reply's bits.
    """
    drop = visit.drop
    try:
        if drop == BEFORE:
            yield Instant(env, env.now, visit.rank(closing.BREAK))
        else:
            visit.sending = Message(visit.client, False, broadcast_bits, env.now)
            yield from links.transfer(visit.sending, visit.rank(closing.PROGRESS))
            visit.sending, visit.down_bits, visit.downloaded_s = None, broadcast_bits, env.now

            bits = bits(visit) if callable(bits) else bits
            ends_s = compute_ends_s(env.now, visit.compute_s, drop, visit.fraction)
            yield Instant(env, ends_s, visit.rank(closing.BREAK if drop == IN_COMPUTE else closing.PROGRESS))

            if drop != IN_COMPUTE:
                visit.computed_s = env.now
                visit.sending = Message(visit.client, True, reply_bits(bits, drop, visit.fraction), env.now)
                end = closing.ARRIVAL if drop == NO_DROP else closing.BREAK
                yield from links.transfer(visit.sending, visit.rank(end))
                visit.up_bits = visit.sending.bits
        visit.outcome = ARRIVED if drop == NO_DROP else DROPPED
    except simpy.Interrupt as interrupt:
        uploading = visit.sending is not None and visit.sending.upward
        visit.outcome = DROPPED if interrupt.cause == DROPPED else cut_outcome(uploading)
        if visit.sending is not None:
            sent = links.cancel(visit.sending)
            visit.down_bits, visit.up_bits = (visit.down_bits, sent) if uploading else (sent, 0)
    visit.ended_s = env.now


def go_offline(env: simpy.Environment, visit: Visit, process: simpy.Process, offline_s: float) -> Process:
    """Break a visit when its device goes offline."""
    yield Instant(env, offline_s, visit.rank(closing.OFFLINE))
    if process.is_alive:
        process.interrupt(DROPPED)
