# mypy: allow-untyped-defs
"""Rows of the columns of sites that gossip, and how the rows of a new round begin."""

from __future__ import annotations

import numpy as np

from fedsim.kernels.inner import inline, jit
from fedsim.kernels.old_clock import gossip_state
from fedsim.kernels.old_clock.draws import key_of, tie, uniform
from fedsim.kernels.old_clock.rows import rows_of
from fedsim.kernels.old_clock.sorting import sort
from fedsim.kernels.old_clock.state import NUMBER
from fedsim.rng import Stream

MATCHING = int(Stream.MATCHING)

site_at = rows_of("sites", gossip_state.SITE)
message_at = rows_of("messages", gossip_state.MESSAGE)
outgoing_at = rows_of("outgoing", NUMBER)
mixed_at = rows_of("mixed", gossip_state.MIXED)
header_at = rows_of("headers", gossip_state.HEADER)
_site_row = rows_of("site_rows", gossip_state.SITE_ROW)
_message_row = rows_of("message_rows", gossip_state.MESSAGE_ROW)


@inline
def site_row_at(s, round, site):
    return _site_row(s, (round - s.base) * s.population + site)


@inline
def message_row_at(s, round, message):
    return _message_row(s, (round - s.base) * s.room_messages + message)


@jit
def begin_round(s, round):
    """Fresh rows: who hears whom, and everybody's place among what arrives at the same instant."""
    s.newest = round
    header_at(s, round - s.base).missing = s.population
    ties, order = np.empty(s.population), np.empty(s.population, np.int64)
    for i in range(s.population):
        ties[i], order[i] = tie(s, i, round, 0), i
    sort(ties, order, s.population)
    for rank in range(s.population):
        row = site_row_at(s, round, order[rank])
        row.opened = row.closed = row.spent_s = 0.0
        row.bits, row.rank, row.outstanding, row.heard, row.dropped, row.folds = 0, rank, 0, 0, False, True
    if s.tables == 0:
        _match(s, round)
    for m in range(s.room_messages):
        row = message_row_at(s, round, m)
        if s.tables > 0:
            row.used = mixed_at(s, round % s.tables * s.room_messages + m).it != 0
        row.sent, row.folded, row.lost = 0, False, False
        if row.used:
            site_row_at(s, round, message_at(s, m).receiver).outstanding += 1


@jit
def _match(s, round):
    """A greedy matching: edges in a drawn order, each taken if both its ends are still free (`exchanges.Gossip`)."""
    drawn, edges, n = np.empty(s.room_messages), np.empty(s.room_messages, np.int64), 0
    for m in range(s.room_messages):
        message_row_at(s, round, m).used = False
        if message_at(s, m).sender < message_at(s, m).receiver:
            drawn[n], edges[n] = uniform(key_of(s, MATCHING, n, round, 0), 0), m
            n += 1
    sort(drawn, edges, n)
    partner = np.empty(s.population, np.int64)
    for i in range(s.population):
        partner[i] = -1
    for e in range(n):
        message = message_at(s, edges[e])
        if partner[message.sender] < 0 and partner[message.receiver] < 0:
            partner[message.sender], partner[message.receiver] = message.receiver, message.sender
    for m in range(s.room_messages):
        message = message_at(s, m)
        message_row_at(s, round, m).used = partner[message.receiver] == message.sender
