"""A message and a visit: when they end, and how many bits had left the sender when they were cut.

A message shares its route's links from its first instant until its last bit has left, and arrives one latency later.
"""

from __future__ import annotations

from math import floor, inf
from typing import NamedTuple, get_type_hints

import numpy as np

NO_DROP, BEFORE, IN_COMPUTE, IN_UPLOAD = 0, 1, 2, 3  # where a visit drops out, as `devices.drop` returns it
NONE, ARRIVED, LATE, CALLED_OFF, DROPPED = 0, 1, 2, 3, 4  # outcomes; LATE: cut in its upload, CALLED_OFF: before it
ALMOST = 1.0 + 2.0**-30  # 4799.999999 bits sent are 4800: a rounding error must not cost a bit


def floor_bits(x: float) -> int:
    """Return a number of bits: 0 for nan and below 0, 2**62 at most."""
    if not x > 0.0:
        return 0
    if x >= 4611686018427387904.0:
        return 4611686018427387904
    return floor(x)


def at_most(count: int, limit: int) -> int:
    """Return the smaller of two integers."""
    return count if count < limit else limit


# --- A message on a link of its own ---------------------------------------------------------------------------------


def transfer_s(bits: int, loss_factor: float, bandwidth_bps: float) -> float:
    """Return the seconds from the first bit to the last on a link of its own; `bandwidth_bps` > 0, inf: none."""
    return float(bits) * loss_factor / bandwidth_bps


def arrival_s(last_bit_s: float, latency_s: float) -> float:
    """Return when a message arrives whose last bit left at `last_bit_s`."""
    return last_bit_s + latency_s


def bits_sent(elapsed_s: float, bits: int, loss_factor: float, bandwidth_bps: float) -> int:
    """Return how many bits of a message on a link of its own left its sender in the time before it was cut."""
    if not elapsed_s > 0.0:
        return 0
    if bandwidth_bps == inf:
        return bits
    return at_most(floor_bits(elapsed_s * (bandwidth_bps / loss_factor) * ALMOST), bits)


# --- A message on shared links, a flow ------------------------------------------------------------------------------


def flow_bits_sent(served_bits: float, bits: int, loss_factor: float) -> int:
    """Return how many bits of a message left its sender when the links had carried `served_bits` of its flow."""
    return at_most(floor_bits(served_bits / loss_factor * ALMOST), bits)


# --- A visit --------------------------------------------------------------------------------------------------------


class Dropout(NamedTuple):
    """The probabilities of a client's visits to drop out, by phase; as columns, one number or one per client."""

    before: float = 0.0
    compute: float = 0.0
    upload: float = 0.0


class Drawn(NamedTuple):
    """What is drawn for a visit. Rules take this tuple, or a record with the same fields (`DRAWN`)."""

    compute_s: float = 0.0
    drop: int = NO_DROP  # the phase in which it drops out
    fraction: float = 0.0  # how far into that phase
    tie: int = 0  # its keyed number among the events of one instant


DROPOUT, DRAWN = (np.dtype(list(get_type_hints(kind).items())) for kind in (Dropout, Drawn))  # the same as records


def drop_phase(u: float, dropout: Dropout) -> int:
    """Return the phase in which a visit drops out, from a uniform u."""
    if u < dropout.before:
        return BEFORE
    if u < dropout.before + dropout.compute:
        return IN_COMPUTE
    return IN_UPLOAD if u < dropout.before + dropout.compute + dropout.upload else NO_DROP


def compute_ends_s(start_s: float, drawn: Drawn) -> float:
    """Return when a client stops computing: it is done, or drops out at once, or a fraction of the way."""
    if drawn.drop == BEFORE:
        return start_s
    done_s = start_s + drawn.compute_s
    return start_s + drawn.fraction * (done_s - start_s) if drawn.drop == IN_COMPUTE else done_s


def uploads(drawn: Drawn) -> bool:
    """Return True if a visit begins its upload."""
    return drawn.drop != BEFORE and drawn.drop != IN_COMPUTE


def reply_bits(bits: int, drawn: Drawn) -> int:
    """Return the bits that a client uploads: all, or those before its dropout."""
    return at_most(floor_bits(drawn.fraction * float(bits)), bits) if drawn.drop == IN_UPLOAD else bits


def cut_outcome(uploading: bool) -> int:
    """Return the outcome of a visit that its server cuts at the close."""
    return LATE if uploading else CALLED_OFF
