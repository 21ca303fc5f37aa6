"""A round of sites that gossip, as it comes about: what each site did in it, and what became of every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array
from fedsim.old_engine.arrivals import VisitDraws
from fedsim.old_engine.copies import Copies
from fedsim.old_engine.round import Cohort, Ended, Round, Stopped, columns
from fedsim.old_engine.world import World

if TYPE_CHECKING:
    from fedsim.exchanges import Mixing


class SitesRow:
    """One replica's round: columns over its sites, and over the messages that its mixing asks for."""

    def __init__(self, sites: int, mixing: Mixing, drawn: VisitDraws | None = None) -> None:
        self.mixing, self.drawn = mixing, drawn  # drawn: None where it depends on when work begins
        messages = len(mixing.message)
        self.opened_s, self.closed_s = np.zeros(sites), np.zeros(sites)
        self.spent_s = np.zeros(sites)
        self.dropped, self.folds = np.zeros(sites, bool), np.ones(sites, bool)
        self.site_bits = np.zeros(sites, np.int64)
        self.folded, self.lost = np.zeros(messages, bool), np.zeros(messages, bool)  # neither: it came too late
        self.sent = np.zeros(messages, np.int64)
        self.missing = sites  # that have not closed it yet

    def smooth(self, opened_s: Array, closed_s: Array, senders: Array, bits: int) -> None:
        """Everybody's reply was everywhere in time."""
        self.opened_s, self.closed_s, self.missing = opened_s, closed_s, 0
        self.folded[:], self.sent[:] = True, bits
        self.site_bits = bits * np.bincount(senders, minlength=len(opened_s))


def round_of(
    world: World, number: int, active: Array, rows: list[SitesRow], stopped: Stopped, ends: tuple[Array, Array]
) -> Round:
    """The rows of all active replicas as a round; `ends` are receiver and sender of every message of the graph."""
    replicas, sites = len(rows), world.sites.count

    def joined(name: str) -> Array:
        return np.concatenate([getattr(row, name) for row in rows])

    client = np.tile(np.arange(sites), replicas)
    starts = sites * np.arange(replicas + 1)
    who = Cohort(np.repeat(np.arange(replicas), sites), client, np.ones(len(client), np.int64), starts)
    dropped, none = joined("dropped"), np.zeros(len(client), np.int64)
    never = np.zeros(len(client), bool)
    message = [row.mixing.message for row in rows]
    flat = np.concatenate(message)
    visit = ends[1][flat] + np.repeat(starts[:-1], [len(m) for m in message])  # whose message it is
    used = np.concatenate([_used(row, ends[0]) for row in rows])
    late, unused = np.zeros(len(client), np.int64), np.zeros(len(client), np.int64)
    np.add.at(late, visit, ~joined("folded") & ~joined("lost"))
    np.add.at(unused, visit, np.where(used, 0, joined("sent")))
    sent = (joined("site_bits"), late, unused)
    visits = Ended(client, ~dropped, dropped, never, never, none, none, joined("spent_s"), *sent)
    opened = np.array([row.opened_s.min() for row in rows])
    closed = np.array([row.closed_s.max() for row in rows])
    made = columns(opened, closed, who.sizes, starts, visits, 0)
    came_late = np.array([row.sent[~row.folded & ~row.lost].sum() for row in rows], np.int64)
    made["dropped_bits"] = made["wasted_bits"] - came_late
    copies = Copies(
        np.repeat(np.arange(replicas), [len(m) for m in message]), ends[0][flat], ends[1][flat],
        np.concatenate([row.mixing.weight for row in rows]), joined("folded"),
        np.stack([row.mixing.own for row in rows]), np.stack([row.folds for row in rows]),
    )  # fmt: skip
    return Round(number, active, who, visits, made, number, stopped, copies)


def _used(row: SitesRow, receiver: Array) -> Array:
    """Which messages were folded."""
    return np.asarray(row.folded & row.folds[receiver[row.mixing.message]])
