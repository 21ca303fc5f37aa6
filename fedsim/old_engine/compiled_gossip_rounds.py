"""Rounds of sites that gossip, which the compiled clock has made ahead, of all replicas, in the order of rounds."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.exchanges import Gossip
from fedsim.kernels.old_clock.gossip_state import NOTES
from fedsim.old_engine.compiled_rounds import MadeRounds
from fedsim.old_engine.copies import Copies
from fedsim.old_engine.gossip_arrays import GossipClock
from fedsim.old_engine.notes_ahead import NotesAhead
from fedsim.old_engine.round import Cohort, Ended, Round, Stopped, Stretch, Visits, columns


class CompiledGossipRounds(MadeRounds):
    """What the clocks of some replicas have written: rounds `first` on, each replica as many as it has."""

    def __init__(
        self, exchange: Gossip, first: int, active: Array, clocks: list[GossipClock], status: Array
    ) -> None:  # fmt: skip
        made = [clock.made() for clock in clocks]
        super().__init__(first, active, np.array([len(headers) for headers, _, _ in made], np.int64), status)
        self._exchange = exchange
        self._sites = np.concatenate([sites for _, sites, _ in made])[self._order]  # (pairs, sites)
        self._messages = np.concatenate([messages for _, _, messages in made])[self._order]  # (pairs, messages)
        self._ended, self._columns = self._accounts()
        headers = [headers for headers, _, _ in made]
        self._notes = NotesAhead(first, active, clocks, headers, NOTES) if clocks[0].said("traced") else None

    def round(self, number: int, active: Array, stopped: Stopped) -> Round:
        """Round `number` of these replicas."""
        own = self._own(number, 1, active)
        replicas, sites = len(own), self._exchange.sites
        visits = self._ended.part(self._visits(own))
        row = np.repeat(np.arange(replicas), sites)
        who = Cohort(row, visits.client, np.ones(len(row), np.int64), sites * np.arange(replicas + 1))
        made = {name: column[own] for name, column in self._columns.items()}
        return Round(number, active, who, visits, made, number, stopped, self._copies(number, own))

    def stretch(self, number: int, active: Array, count: int) -> Stretch:
        """So many rounds, which all these replicas have."""
        own, shape = self._own(number, count, active), (count, len(active))
        made = {name: column[own].reshape(shape) for name, column in self._columns.items()}
        ends = len(active) * self._exchange.sites * np.arange(1, count + 1)
        replied = self._replied(own).ravel()
        visits = Visits(self._ended.part(self._visits(own)), ends, None, replied)
        return Stretch(number, active, made, 0, visits=visits)

    def trace(self, number: int, count: int, active: Array, replicas: Array) -> Arrays:
        assert self._notes is not None
        return self._notes.trace(number, count, active, replicas)

    def _own(self, number: int, count: int, active: Array) -> Array:
        """The rows of these replicas in so many rounds."""
        low, high = self._pairs[number - self.first], self._pairs[number - self.first + count]
        return np.asarray(low + np.flatnonzero(np.isin(self._position[low:high], active)))

    def _visits(self, own: Array) -> Array:
        sites = self._exchange.sites
        return np.asarray((own[:, None] * sites + np.arange(sites)).ravel())

    def _accounts(self) -> tuple[Ended, Arrays]:
        s, m, sites = self._sites, self._messages, self._exchange.sites
        client = np.tile(np.arange(sites), len(s))
        dropped, none, never = s["dropped"].ravel(), np.zeros(len(client), np.int64), np.zeros(len(client), bool)
        late = self._by_sender(m["used"] & ~m["folded"] & ~m["lost"])
        unused = self._by_sender(np.where(self._folded(slice(None)), 0, m["sent"]))
        sent = (np.ascontiguousarray(s["bits"].ravel()), late, unused)
        ended = Ended(client, ~dropped, dropped, never, never, none, none, s["spent_s"].ravel(), *sent)
        selected, starts = np.full(len(s), sites), sites * np.arange(len(s) + 1)
        made = columns(s["opened"].min(axis=1), s["closed"].max(axis=1), selected, starts, ended, 0)
        made["dropped_bits"] = made["wasted_bits"] - np.where(m["folded"] | m["lost"], 0, m["sent"]).sum(axis=1)
        return ended, made

    def _by_sender(self, values: Array) -> Array:
        """Sums over the messages (pairs, messages) of every visit, (pairs * sites,)."""
        out = np.zeros((len(values), self._exchange.sites), np.int64)
        np.add.at(out.T, self._exchange.sender, values.T)
        return out.ravel()

    def _folded(self, own: Array | slice) -> Array:
        """Which messages were folded, by a site that folds."""
        folds = self._sites["folds"][own]
        return np.asarray(self._messages["folded"][own] & folds[:, self._exchange.receiver])

    def _replied(self, own: Array) -> Array:
        """Whose replies are folded, by whomever (`Round.replied`)."""
        needed = self._sites["folds"][own].copy()
        row, message = np.nonzero(self._folded(own))
        needed[row, self._exchange.sender[message]] = True
        return needed

    def _copies(self, number: int, own: Array) -> Copies:
        exchange, m = self._exchange, self._messages[own]
        row, message = np.nonzero(m["used"])
        receiver, sender = exchange.receiver[message], exchange.sender[message]
        if exchange.drawn:
            weight, matched = np.full(len(row), 0.5), np.zeros((len(own), exchange.sites), bool)
            matched[row, receiver] = True
            alone = np.where(matched, 0.5, 1.0)
        else:
            mixing = exchange.at(0, 0, number)
            weight, alone = np.tile(mixing.weight, len(own)), np.tile(mixing.own, (len(own), 1))
        return Copies(row, receiver, sender, weight, m["folded"][row, message], alone, self._sites["folds"][own])
