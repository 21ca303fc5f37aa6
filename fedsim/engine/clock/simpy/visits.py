"""One visit as a SimPy process: download the model, compute, upload the reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

import simpy

from fedsim.arrays import Array
from fedsim.engine.clock.simpy.links import Instant, Message, Process, UnsharedLinks
from fedsim.rules import closing
from fedsim.rules.visits import (
    ARRIVED,
    BEFORE,
    DROPPED,
    NO_DROP,
    NONE,
    Drawn,
    compute_ends_s,
    cut_outcome,
    reply_bits,
    uploads,
)  # fmt: skip


@dataclass(slots=True, eq=False)
class Visit:
    """One client's participation in one round: what was drawn for it, and how it ends."""

    client: int
    site: int
    version: int
    multiplicity: int
    drawn: Drawn
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
        return closing.rank(kind, self.drawn.tie, self.client)


def each(drawn: Array) -> list[Drawn]:
    """Return records of `DRAWN`, one by one."""
    return [Drawn(*row) for row in drawn.tolist()]


def participate(
    env: simpy.Environment, links: UnsharedLinks, visit: Visit, broadcast_bits: int,
    bits: int | Callable[[Visit], int],
) -> Process:  # fmt: skip
    """Download the broadcast, compute, upload a reply of `bits`. An interrupt ends the visit at once.

    A function `bits` is called when the download has ended. It sets the compute time in `visit.drawn` and returns the
    reply's bits.
    """
    drop = visit.drawn.drop
    try:
        if drop == BEFORE:
            yield Instant(env, env.now, visit.rank(closing.BREAK))
        else:
            visit.sending = Message(visit.client, False, broadcast_bits, env.now)
            yield from links.transfer(visit.sending, visit.rank(closing.PROGRESS))
            visit.sending, visit.down_bits, visit.downloaded_s = None, broadcast_bits, env.now

            bits = bits(visit) if callable(bits) else bits
            replies = uploads(visit.drawn)
            ends_s = compute_ends_s(env.now, visit.drawn)
            yield Instant(env, ends_s, visit.rank(closing.PROGRESS if replies else closing.BREAK))

            if replies:
                visit.computed_s = env.now
                visit.sending = Message(visit.client, True, reply_bits(bits, visit.drawn), env.now)
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
