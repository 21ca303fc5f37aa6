"""The records and tables of the compiled gossip loop. No Numba here.

Messages in flight have slots, as visits have in the other loops: they may outlive the rows of their round. Rows are of
rounds that some site has not ended, and of the block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.kernels.clock.state import REPLICA, AlwaysOnline, Links, PrivateLinks, record
from fedsim.rules.closing import Closing
from fedsim.rules.visits import DRAWN

ROUTE = record("sender receiver order route", "latency_s loss_factor bandwidth_bps")  # of a message of the graph
# Its own fields first: a record that begins as another one is a subtype of it for Numba, which warns.
GOSSIP_REPLICA = np.dtype(record("first_round newest sent in_flight slot_free slot_top").descr + REPLICA.descr)
GOSSIP_SITE = np.dtype(
    record("ended open computing deadline jumps sending", "opened_s answer_s offline_s").descr + DRAWN.descr
)  # sending: the latest of its messages in flight; a list
IN_FLIGHT = record("message stamp round flow bits tie arrives previous following", "sending_s")
SITE_ROW = record("expected outstanding arrived outcome aggregated", "opened_s computed_s worked_until_s ended_s")
MESSAGE_ROW = np.dtype([("bits", "i8"), ("arrived_s", "f8"), ("outcome", "i8")])


class GossipTables(NamedTuple):
    """A scenario as the loop reads it; fields of the same name are those of `state.Tables`."""

    client: Array  # (sites,) CLIENT: compute seconds
    law: Array | AlwaysOnline
    starts_s: Array
    ends_s: Array
    dropout: Array
    message: Array  # (messages,) ROUTE, by receiver, then sender
    outgoing: Array  # (messages,) by sender, then receiver
    offsets: Array  # (sites + 1,) a site's messages are outgoing[offsets[site] : offsets[site + 1]]
    route_offsets: Array
    route_links: Array
    closing: Closing
    seed_low: int
    seed_high: int
    first_reply_bits: int
    reply_bits: int
    slowdown: int
    slowdown_a: float
    slowdown_b: float
    limit_s: float
    degree: int  # the most messages of a site
    round_size: int  # of one round of all replicas, `closing.is_too_far_apart`
    takes_time: bool  # some message does
    drops: bool
    always_online: bool


class GossipState(NamedTuple):
    """What a checkpoint saves, with a leading axis of replicas; inside the loop, of one replica."""

    replica: Array  # (R,) GOSSIP_REPLICA
    events: Array  # (R, capacity) EVENT
    sites: Array  # (R, sites) GOSSIP_SITE
    messages: Array  # (R, slots) IN_FLIGHT
    site_rows: Array  # (R, rows, sites) SITE_ROW
    message_rows: Array  # (R, rows, messages) MESSAGE_ROW
    links: Links | PrivateLinks


class Ends(NamedTuple):
    """The state of the short path."""

    ids: Array  # (R,) int64: numbers of the replicas
    ended_s: Array  # (R, sites) when a site ended its latest round
    computed_s: Array  # (R, sites) when it will have computed its next reply
