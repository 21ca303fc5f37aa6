"""Gossip rounds as both clocks record them, and their conversion to the gossip part of a RoundBlock."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.rounds import GossipMessages, offsets_of
from fedsim.engine.system import System
from fedsim.errors import InvalidInput
from fedsim.exchanges import Gossip
from fedsim.rules.closing import MOST_APART
from fedsim.rules.visits import ARRIVED

UNSENT, UNUSED = -1, -2  # instead of the bits of a message: not sent; not asked for by the round's mixing


class GossipColumns(NamedTuple):
    """What became of all messages that the graph allows, (R, n, messages), and of the sites, (R, n, sites)."""

    bits: Array  # int64, or UNSENT, or UNUSED
    outcome: Array  # int8
    arrived_s: Array  # nan: not in time
    aggregated: Array  # bool
    ended_s: Array


def empty_columns(gossip: Gossip, *shape: int) -> GossipColumns:
    """Return the columns of empty rounds."""
    messages, sites = (*shape, len(gossip.sender)), (*shape, gossip.sites)
    return GossipColumns(
        np.full(messages, UNUSED), np.zeros(messages, np.int8), np.full(messages, np.nan), np.zeros(sites, bool),
        np.full(sites, np.nan),
    )  # fmt: skip


def messages_of(system: System, first: int, columns: GossipColumns) -> GossipMessages:
    """Return the messages that were sent, and the weights with which sites aggregate."""
    gossip = system.gossip
    assert gossip is not None
    weight, own_weight = _weights(system, gossip, first, columns.bits != UNUSED)
    sent, arrived = columns.bits >= 0, columns.outcome == ARRIVED
    dense = bool(sent.all())

    def listed(column: Array) -> Array:
        return np.broadcast_to(column, sent.shape).ravel() if dense else np.broadcast_to(column, sent.shape)[sent]

    # What is missing gives its weight to the site itself; summed in the order of senders.
    rows = weight.shape[0] * weight.shape[1]
    missing = np.where(arrived, 0.0, weight).reshape(rows, -1)
    at = (np.arange(rows)[:, None] * gossip.sites + gossip.receiver).ravel()
    own_weight = own_weight + np.bincount(at, missing.ravel(), minlength=own_weight.size).reshape(own_weight.shape)
    return GossipMessages(
        offsets_of(np.count_nonzero(sent, axis=2)), listed(gossip.sender.astype(np.int32)),
        listed(gossip.receiver.astype(np.int32)), listed(columns.bits), listed(weight), listed(columns.outcome),
        listed(arrived & columns.aggregated[:, :, gossip.receiver]), listed(columns.arrived_s), own_weight,
        columns.aggregated, columns.ended_s,
    )  # fmt: skip


def backhaul_of(gossip: Gossip, columns: GossipColumns) -> Array:
    """Return the bits that each site sent, (R, n, sites)."""
    shape = columns.aggregated.shape
    rows = shape[0] * shape[1]
    at = (np.arange(rows)[:, None] * gossip.sites + gossip.sender).ravel()
    out = np.zeros(rows * gossip.sites, np.int64)
    np.add.at(out, at, np.maximum(columns.bits, 0).ravel())
    return out.reshape(shape)


def _weights(system: System, gossip: Gossip, first: int, used: Array) -> tuple[Array, Array]:
    """Return the weights of messages, 0 where there is none, and of the sites' own replies."""
    replicas, rounds, _ = used.shape
    weight, own = np.zeros(used.shape), np.zeros((replicas, rounds, gossip.sites))
    if system.mixing is None and gossip.drawn:  # pairs of a matching
        paired = np.zeros(own.shape, bool)
        r, i, m = np.nonzero(used)
        paired[r, i, gossip.receiver[m]] = True
        return np.where(used, 0.5, 0.0), np.where(paired, 0.5, 1.0)
    for k in range(rounds):
        mixing = system.mixing or gossip.at(0, 0, first - 1 + k)
        weight[:, k, mixing.message], own[:, k] = mixing.weight, mixing.own
    return weight, own


def too_far_apart(rounds: int) -> InvalidInput:
    """Return the refusal of sites that run away from each other."""
    if rounds > MOST_APART:
        return InvalidInput(
            f"a site is {MOST_APART:,} rounds ahead of another, which may never catch up; close with full()"
        )
    return InvalidInput(
        f"a site is {rounds:,} rounds ahead of another, and memory for more rounds of all messages would run out; "
        "close with full(), or take fewer replicas"
    )
