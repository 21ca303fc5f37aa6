"""One replica's sites on one clock: each works, tells its neighbours, waits for theirs, folds, and goes on.

A message that comes before its round is open waits; one that comes after the fold is late, and was sent for nothing.
Nobody is called off: a site that has folded does not stop its neighbours from working.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from simpy.core import EmptySchedule

from fedsim.errors import InvalidInput
from fedsim.exchanges import Gossip
from fedsim.old_engine.arrivals import BEFORE, COMPUTE, UPLOAD
from fedsim.old_engine.clock import LAST, Clock, Links, Message, Moment, links
from fedsim.old_engine.gossip_rows import SitesRow
from fedsim.old_engine.view import ReplicaView
from fedsim.old_engine.visits import PROGRESS

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

AHEAD = 10_000  # rounds by which one site may leave another behind before nobody believes in it


class Copy(Message):
    """A site's reply on its way to one neighbour."""

    def __init__(self, row: int, place: int, round: int, receiver: int, links: Links) -> None:
        super().__init__(row, links)
        self.place, self.round, self.receiver = place, round, receiver


class Site:
    """Where a site stands in its current round."""

    def __init__(self) -> None:
        self.round, self.open, self.done, self.overdue = 0, False, False, False
        self.under_way: list[Copy] = []  # of its own replies, of this round and of earlier ones

    @property
    def latest(self) -> int:
        """The last round that it opened."""
        return self.round if self.open else self.round - 1


class GossipReplica:
    """The clock of one replica, its sites, and the rows of the rounds that are not yet told."""

    def __init__(self, run: Run, position: int) -> None:
        exchange = run.world.scenario.exchange
        assert isinstance(exchange, Gossip)
        self.world, self.exchange, self.position = run.world, exchange, position
        self.learner, self.number = run.learner, int(run.world.replicas[position])
        self.clock = Clock(0.0)
        self.links = links(self.clock, run.world, meeting=True)
        self.view = ReplicaView(run.world, position)
        self.note = self._trace = run.trace.note(self.number, lambda: self._at)
        self.sites = [Site() for _ in range(exchange.sites)]
        self.rows: dict[int, SitesRow] = {}
        self.hopeless: dict[int, float] = {}  # rounds that a site can never open: from when on it would wait
        self._rank: dict[int, list[int]] = {}
        self._out: dict[int, list[list[tuple[int, int]]]] = {}  # by round and sender: (place in the row, receiver)
        self._in: dict[int, list[list[int]]] = {}  # by round and receiver: how many are outstanding, and arrived
        self._at, self._first = 0, 0
        patience = run.world.policy.patience()
        assert patience is not None
        self._enough, self._patience = patience

    def start(self) -> None:
        """Every site opens its first round."""
        for i in range(len(self.sites)):
            self._open(i)

    def run_to(self, round: int) -> bool:
        """Until every site has closed that round; whether it can ever be."""
        row, step = self._row(round), self.clock.step
        try:
            while row.missing:
                if round in self.hopeless:
                    return False
                step()
        except EmptySchedule:
            raise InvalidInput(
                f"round {round + 1} never closes: some site's messages are still under way and nothing more will "
                "happen; raise the bandwidths, or close with a deadline"
            ) from None
        return True

    def take(self, round: int) -> SitesRow:
        """A row that is closed everywhere, and no more needed here."""
        row = self.rows.pop(round)
        self._first = round + 1
        for part in (self._rank, self._out, self._in):
            part.pop(round, None)
        return row

    def mute(self, silent: bool) -> None:
        """While the clock is wound forward its events were traced already."""
        self.note = None if silent else self._trace

    # --- The rows ------------------------------------------------------------------------------------

    def _row(self, round: int) -> SitesRow:
        if round in self.rows:
            return self.rows[round]
        if round - self._first > AHEAD:
            raise InvalidInput(
                f"a site is {AHEAD:,} rounds ahead of another, which may never catch up; close with full()"
            )
        world, sites = self.world, len(self.sites)
        mixing = self.exchange.at(world.setting.seed, self.number, round)
        everybody, here = np.arange(sites), np.full(sites, self.position)
        timeless = world.devices is None or world.devices.timeless
        drawn = world.visit_draws(np.zeros(sites), here, everybody, round)
        row = self.rows[round] = SitesRow(sites, mixing, drawn if timeless else None)
        rank = np.empty(sites, np.int64)
        rank[np.lexsort((everybody, drawn.tie()))] = everybody
        self._rank[round] = rank.tolist()
        out: list[list[tuple[int, int]]] = [[] for _ in range(sites)]
        waiting = [[0, 0] for _ in range(sites)]
        receivers, senders = self.exchange.receiver[mixing.message], self.exchange.sender[mixing.message]
        for place, (i, j) in enumerate(zip(receivers.tolist(), senders.tolist(), strict=True)):
            out[j].append((place, i))
            waiting[i][0] += 1
        self._out[round], self._in[round] = out, waiting
        return row

    # --- A site's round ------------------------------------------------------------------------------

    def _open(self, i: int) -> None:
        """Begin to work, if the device is on; a site that is off pauses."""
        site, now = self.sites[i], self.clock.now
        row, alone = self._row(site.round), np.array([i])
        at = float(self.view.next_available(alone, now)[0])
        if at > now:
            if at == math.inf or at > self.world.limit_s:
                self.hopeless[site.round] = at
            else:
                self.clock.at(at, lambda _: self._open(i))
            return
        site.open, site.done, site.overdue = True, False, False
        site.under_way = [copy for copy in site.under_way if not copy.over]
        row.opened_s[i] = now
        drawn, own = row.drawn, i
        if drawn is None:
            drawn = self.world.visit_draws(np.full(1, now), np.full(1, self.position), alone, site.round)
            own = 0
        compute, phase, fraction = float(drawn.compute_s[own]), int(drawn.phase[own]), float(drawn.fraction[own])
        self._say(i, "select", 0)
        self._say(i, "download", 0)  # it has its model
        off = max(float(self.view.offline_s(alone, now)[0]), now)
        round, computed = site.round, now + compute
        if phase == BEFORE:
            self.clock.at(now, lambda _: self._lose(i, round))
        elif phase == COMPUTE:
            self.clock.at(now + fraction * (computed - now), lambda _: self._lose(i, round))
        else:
            share = fraction if phase == UPLOAD else None
            self.clock.at(computed, lambda _: self._computed(i, round, share))
        if off < math.inf:
            self.clock.at(off, lambda _: self._goes_off(i, round))
        if self._patience < math.inf:
            self.clock.at(now + self._patience, lambda _: self._rings(i, round), LAST)

    def _computed(self, i: int, round: int, share: float | None) -> None:
        """The site's own reply is there: one copy to every neighbour that counts it."""
        site = self.sites[i]
        if site.round != round or not site.open or site.done:
            return  # it went off
        site.done, row = True, self.rows[round]
        row.spent_s[i] = self.clock.now - row.opened_s[i]
        self._say(i, "compute", 0)
        bits = self.learner.reply_shape(round).bits
        assert bits is not None
        broken = share is not None
        size = bits if share is None else math.floor(share * bits)
        if broken:
            row.dropped[i] = True
        for place, j in self._out[round][i]:
            copy = Copy(int(row.mixing.message[place]), place, round, j, self.links)
            site.under_way.append(copy)
            row.lost[place] = broken
            done = self._broke if broken else self._arrived
            self.links.send(copy, True, size, done, PROGRESS if broken else 1 + self._rank[round][i])
            row.sent[place] = size
            row.site_bits[i] += size
        self._consider(i, round)

    def _arrived(self, moment: Moment) -> None:
        copy = moment.visit
        if copy.over:
            return
        copy.over = True
        self._say(-1 - copy.receiver, "hear", copy.sending, copy.round)
        if self.sites[copy.receiver].round > copy.round:
            return  # too late
        self.rows[copy.round].folded[copy.place] = True
        waiting = self._in[copy.round][copy.receiver]
        waiting[0] -= 1
        waiting[1] += 1
        self._consider(copy.receiver, copy.round)

    def _broke(self, moment: Moment) -> None:
        copy = moment.visit
        if not copy.over:
            copy.over = True
            self._unheard(copy.receiver, copy.round)

    def _unheard(self, receiver: int, round: int) -> None:
        """A neighbour's reply will not come, and the receiver learns it at once."""
        if self.sites[receiver].round <= round:
            self._in[round][receiver][0] -= 1
            self._consider(receiver, round)

    def _lose(self, i: int, round: int) -> None:
        """The work was lost: the site keeps its model, sends nothing and goes on."""
        site = self.sites[i]
        if site.round != round or not site.open or site.done:
            return
        row = self.rows[round]
        row.dropped[i], row.folds[i] = True, False
        row.spent_s[i] = self.clock.now - row.opened_s[i]
        self._say(i, "drop", 0)
        for place, j in self._out[round][i]:
            row.lost[place] = True
            self._unheard(j, round)
        self._close(i)

    def _rings(self, i: int, round: int) -> None:
        """Its patience is at an end; it folds now, or as soon as its own work is done."""
        if self.sites[i].round == round:
            self.sites[i].overdue = True
            self._consider(i, round)

    def _goes_off(self, i: int, round: int) -> None:
        """Work is lost; everything that the device is sending breaks where it is, messages of earlier rounds too."""
        site = self.sites[i]
        if site.latest != round:
            return  # a later round has the same end of its on-period
        cut = [copy for copy in site.under_way if not copy.over]
        for copy, bits in zip(cut, self.links.call_off(cut), strict=True):
            copy.over = True
            if copy.round in self.rows:  # a row that is final counts all its bits
                row = self.rows[copy.round]
                row.dropped[i] = row.lost[copy.place] = True
                row.site_bits[i] += bits - int(row.sent[copy.place])
                row.sent[copy.place] = bits
                self._unheard(copy.receiver, copy.round)
        self._lose(i, round)

    def _consider(self, i: int, round: int) -> None:
        """Fold once the own work is done and the policy need not wait for any neighbour."""
        site = self.sites[i]
        if site.round != round or not site.open or not site.done:
            return
        outstanding, arrived = self._in[round][i]
        if outstanding == 0 or arrived >= self._enough or site.overdue:
            row = self.rows[round]
            self._say(i, "drop" if row.dropped[i] else "upload", int(row.site_bits[i]))
            self._say(-1 - i, "aggregate", 0)
            self._close(i)

    def _close(self, i: int) -> None:
        site = self.sites[i]
        row = self.rows[site.round]
        row.closed_s[i] = self.clock.now
        row.missing -= 1
        site.round += 1
        site.open = False
        self.clock.at(self.clock.now, lambda _: self._open(i))

    def _say(self, who: int, what: str, bits: int, round: int | None = None) -> None:
        if self.note is not None:
            self._at = self.sites[who if who >= 0 else -1 - who].round if round is None else round
            self.note(self.clock.now, who, what, bits)
