"""Gossip as SimPy processes: every client is a site, and aggregates its own reply with those of its neighbours.

Sites are rounds apart. A message that comes before its round waits in the row of its round; one that comes after
its receiver has ended that round is late, and was sent in vain.
"""

from __future__ import annotations

from itertools import count, pairwise
from math import inf, nan

import numpy as np
import simpy

from fedsim.arrays import Array
from fedsim.engine.clock import Learning
from fedsim.engine.clock.gossip_rows import UNSENT, UNUSED, GossipColumns, empty_columns, too_far_apart
from fedsim.engine.clock.simpy.links import Instant, Message, Process
from fedsim.engine.clock.simpy.rounds import Replica, Row, wait_for_clients
from fedsim.engine.clock.simpy.visits import Visit, each
from fedsim.engine.system import MessageSizes, System
from fedsim.exchanges import Gossip
from fedsim.rules import closing
from fedsim.rules.closing import closes_now, closing_s, is_too_far_apart
from fedsim.rules.visits import (
    ARRIVED,
    DROPPED,
    IN_UPLOAD,
    LATE,
    NO_DROP,
    compute_ends_s,
    reply_bits,
    uploads,
)  # fmt: skip


class GossipSite:
    """A client that holds a model."""

    def __init__(self, replica: GossipReplica, number: int) -> None:
        self.replica, self.env, self.number = replica, replica.env, number
        self.ended, self.computing, self.offline_s = 0, False, -inf  # ended: rounds
        self.sending: dict[Message, simpy.Process] = {}
        self.changed = self.env.event()
        self.process = self.env.process(self.run())

    def run(self) -> Process:
        """Make one round after another; pause while the device is offline."""
        env, replica, alone, rank = self.env, self.replica, np.array([self.number]), self.rank(closing.OPENING)
        for round in count(1):
            yield Instant(env, env.now, rank)
            row = replica.row(round)
            reason = yield from wait_for_clients(env, replica.system, replica.position, alone, 1, rank)
            if reason != closing.RUNNING:
                return row.stop(reason)
            yield from self.one_round(row)
            self.ended, row.times.closed_s[self.number] = round, env.now
            row.aggregated(env.now)

    def one_round(self, row: GossipRow) -> Process:
        """Compute a reply from the own model, send it to the neighbours, wait for theirs, aggregate."""
        visit = row.open(self.number, self.env.now)
        self.schedule_going_offline()
        yield from self.compute(visit)
        if visit.computed_s == visit.computed_s:
            for message in self.replica.outgoing[self.number]:
                self.send(visit, row, message)
            yield from self.wait_for_neighbours(row, visit.started_s)
            row.has_aggregated[self.number] = True
        else:  # it keeps its model and sends nothing
            for message in self.replica.outgoing[self.number]:
                if row.bits[message] != UNUSED:
                    self.replica.receiver_of(message).message_ended(row)

    def compute(self, visit: Visit) -> Process:
        """Compute the own reply. An interrupt is a dropout: the device goes offline."""
        lost = not uploads(visit.drawn)
        self.computing = True
        try:
            yield Instant(
                self.env,
                compute_ends_s(self.env.now, visit.drawn),
                visit.rank(closing.BREAK if lost else closing.PROGRESS),
            )
        except simpy.Interrupt:
            lost = True
        self.computing, visit.ended_s = False, self.env.now
        visit.outcome = ARRIVED if visit.drawn.drop == NO_DROP and not lost else DROPPED
        visit.computed_s = nan if lost else self.env.now

    # --- Messages ---------------------------------------------------------------------------------------------------

    def send(self, visit: Visit, row: GossipRow, number: int) -> None:
        """Start a message, if the round's mixing asks for it."""
        if row.bits[number] == UNUSED:
            return
        bits = self.replica.sizes.of_reply(row.round)
        assert bits is not None
        row.bits[number] = reply_bits(bits, visit.drawn)
        row.outcome[number] = DROPPED if visit.drawn.drop == IN_UPLOAD else LATE  # unless it arrives in time
        message = Message(number, True, row.bits[number], self.env.now)
        self.sending[message] = self.env.process(self.deliver(message, visit, row))

    def deliver(self, message: Message, visit: Visit, row: GossipRow) -> Process:
        """Wait until a message has arrived or broken. An interrupt breaks it: the device goes offline."""
        number, links, arrives = message.row, self.replica.links, visit.drawn.drop != IN_UPLOAD
        kind = closing.ARRIVAL if arrives else closing.BREAK
        try:
            yield from links.transfer(message, closing.rank(kind, row.tie[number], self.replica.order[number]))
        except simpy.Interrupt:
            arrives, bits = False, links.cancel(message)
            if row.missing:  # the row of a round that all sites have ended is final: it counts all bits
                row.bits[number], row.outcome[number], visit.outcome = bits, DROPPED, DROPPED
        del self.sending[message]
        receiver = self.replica.receiver_of(number)
        if arrives and receiver.ended < row.round:
            row.outcome[number], row.arrived_s[number] = ARRIVED, self.env.now
        receiver.message_ended(row, arrives)

    def message_ended(self, row: GossipRow, arrived: bool = False) -> None:
        """Count a neighbour's message that arrived or will not; only those of the open round ask the policy."""
        if self.ended < row.round:
            row.outstanding[self.number] -= 1
            row.arrived[self.number] += arrived
            if row.round == self.ended + 1 and not self.changed.triggered:
                self.changed.succeed()

    def wait_for_neighbours(self, row: GossipRow, opened_s: float) -> Process:
        """Wait until the policy closes the round, or no message is outstanding."""
        env, i, rule, answer_s = self.env, self.number, self.replica.closing, inf
        deadline: Instant | None = None
        while True:
            previous_s, answer_s = answer_s, closing_s(rule, opened_s, env.now, row.expected[i], row.arrived[i])
            if closes_now(answer_s, previous_s, env.now, row.outstanding[i]):
                return
            if answer_s != previous_s:
                deadline = Instant(env, answer_s, self.rank(closing.DEADLINE)) if answer_s < inf else None
            self.changed = env.event()
            yield self.changed if deadline is None else self.changed | deadline
            if deadline is not None and deadline.processed:
                return

    # --- Availability -----------------------------------------------------------------------------------------------

    def schedule_going_offline(self) -> None:
        """Start one process for each time that the device is online."""
        system, alone = self.replica.system, np.array([self.number])
        offline_s = float(system.offline_s(self.replica.position, alone, self.env.now)[0])
        if offline_s != self.offline_s:
            self.offline_s = offline_s
            if offline_s < inf:
                self.env.process(self.go_offline(offline_s))

    def go_offline(self, offline_s: float) -> Process:
        """Break everything that the device is sending, messages of earlier rounds too, and what it computes."""
        yield Instant(self.env, offline_s, self.rank(closing.OFFLINE))
        if offline_s == self.offline_s:
            for process in self.sending.values():
                process.interrupt()
            if self.computing:
                self.process.interrupt()

    def rank(self, kind: int) -> int:
        return closing.rank(kind, 0, self.number)


class GossipRow(Row):
    """One round of all sites, as far as it has come: what was drawn for it, and what became of its messages."""

    def __init__(self, replica: GossipReplica, round: int) -> None:
        gossip, system, position = replica.gossip, replica.system, replica.position
        super().__init__(replica.env, round, gossip.sites)
        self.round, self.replica = round, replica
        mixing = system.mixing or gossip.at(system.setting.seed, int(system.replicas[position]), round - 1)
        bits = np.full(len(gossip.sender), UNUSED)
        bits[mixing.message] = UNSENT
        self.bits = bits.tolist()
        self.expected = np.bincount(gossip.receiver[mixing.message], minlength=gossip.sites).tolist()
        self.outstanding, self.arrived = list(self.expected), [0] * gossip.sites
        self.outcome, self.arrived_s, self.has_aggregated = [0] * len(bits), [nan] * len(bits), [False] * gossip.sites
        self.tie = system.draw_ties(position, gossip.sender, gossip.receiver, round).tolist()
        timeless = system.devices is None or system.devices.timeless
        self.drawn = self.draw(np.arange(gossip.sites), 0.0) if timeless else None

    def draw(self, clients: Array, now_s: float) -> list[Visit]:
        system, position, round = self.replica.system, self.replica.position, self.round
        drawn = each(system.draw_visits(position, clients, round, now_s))
        return [Visit(c, c, round - 1, 1, own, nan) for c, own in zip(clients.tolist(), drawn, strict=True)]

    def open(self, site: int, now_s: float) -> Visit:
        """Return the visit of a site's own client, which starts now: it has its model."""
        visit = self.draw(np.array([site]), now_s)[0] if self.drawn is None else self.drawn[site]
        visit.started_s = visit.downloaded_s = now_s
        self.opened(now_s, site, [visit])
        return visit


class GossipReplica(Replica):
    """One replica of sites that gossip."""

    def __init__(self, system: System, sizes: MessageSizes, learning: Learning, position: int) -> None:
        assert system.gossip is not None
        self.gossip: Gossip = system.gossip
        columns = system.policy.to_columns()
        assert columns is not None  # `checks.check_run` refuses others
        self.closing = columns.closing
        by_sender = np.lexsort((self.gossip.receiver, self.gossip.sender))
        ends = np.searchsorted(self.gossip.sender[by_sender], np.arange(self.gossip.sites + 1))
        self.outgoing = [by_sender[a:b].tolist() for a, b in pairwise(ends)]
        order = np.empty(len(by_sender), np.int64)  # among events: after the clients, by sender, then receiver
        order[by_sender] = self.gossip.sites + np.arange(len(by_sender))
        self.order: list[int] = order.tolist()
        self.receivers: list[int] = self.gossip.receiver.tolist()
        self.round_size = len(system.replicas) * (self.gossip.sites + len(self.receivers))
        self.gossip_sites: list[GossipSite] = []
        super().__init__(system, sizes, learning, position)

    def begin(self, learning: Learning) -> None:
        self.gossip_sites = [GossipSite(self, number) for number in range(self.gossip.sites)]

    def row(self, round: int) -> GossipRow:
        row = self.rows.get(round)
        if row is None:
            lead = round - min(self.rows, default=round)
            if is_too_far_apart(lead, self.round_size):
                raise too_far_apart(lead)
            row = self.rows[round] = GossipRow(self, round)
        assert isinstance(row, GossipRow)
        return row

    def receiver_of(self, message: int) -> GossipSite:
        return self.gossip_sites[self.receivers[message]]

    def under_way(self, round: int) -> list[int]:
        return [site.number for site in self.gossip_sites if site.ended < round]


def columns_of(gossip: Gossip, shape: tuple[int, int], rows: list[list[Row]]) -> GossipColumns:
    """Return what rows noted about their messages and sites."""
    columns = empty_columns(gossip, *shape)
    for r, of_replica in enumerate(rows):
        for i, row in enumerate(of_replica):
            assert isinstance(row, GossipRow)
            values = row.bits, row.outcome, row.arrived_s, row.has_aggregated, row.times.closed_s
            for column, value in zip(columns, values, strict=True):
                column[r, i] = value
    return columns
