"""Synchronous rounds as SimPy processes. A star is a tier with one edge and no cloud: one site process serves both."""

from __future__ import annotations

from itertools import count
from math import inf, nan
from typing import Any

import numpy as np
import simpy

from fedsim.arrays import Array
from fedsim.engine.clock import Learning
from fedsim.engine.clock.simpy.links import Instant, Message, Process, links_of, unselected
from fedsim.engine.clock.simpy.visits import Visit, each, go_offline, participate
from fedsim.engine.rounds import CloudTimes
from fedsim.engine.system import MessageSizes, System
from fedsim.engine.view import SiteView
from fedsim.errors import InvalidInput
from fedsim.rules import closing
from fedsim.rules.visits import ARRIVED


class Site:
    """A server and its rounds. Every edge of tiers is one."""

    def __init__(self, replica: Replica, number: int, learning: Learning) -> None:
        self.replica, self.env, self.number = replica, replica.env, number
        self.view = SiteView(replica.system, replica.position, number, learning.observed)
        self.in_flight: dict[simpy.Event, Visit] = {}  # by process
        self.changed = self.env.event()

    def run(self) -> Process:
        """Open a round when enough clients are online, close it, and after some rounds merge at the cloud."""
        sites = self.replica.system.sites
        for round in count(1):
            yield Instant(self.env, self.env.now, self.rank(closing.OPENING))
            replica, enough = self.replica, self.replica.system.policy.at_least or 1
            reason = yield from wait_for_clients(
                self.env, replica.system, replica.position, self.view.members, enough, self.rank(closing.OPENING)
            )
            if reason != closing.RUNNING:
                return self.replica.row(round).stop(reason)
            yield from self.one_round(round)
            if closing.merge_due(round, sites.every):
                yield from self.replica.cloud.merge(self, round)
            else:
                self.replica.row(round).aggregated(self.env.now)

    def one_round(self, round: int) -> Process:
        """Select a cohort, start its visits, wait until the round closes, cut the visits that are outstanding."""
        env, row = self.env, self.replica.row(round)
        visits = yield from self.open(round)
        row.opened(env.now, self.number, visits)
        answer_s = self.view.closing_s(env.now) if self.in_flight else inf
        deadline = self.deadline(closing.first_closing_s(answer_s, env.now))
        while self.in_flight:
            self.changed = env.event()
            yield self.changed if deadline is None else self.changed | deadline
            if deadline is not None and deadline.processed:  # the time that the policy named last has come
                break
            previous_s, answer_s = answer_s, self.view.closing_s(env.now) if self.in_flight else inf
            if closing.closes_now(answer_s, previous_s, env.now, len(self.in_flight)):
                break
            if answer_s != previous_s:
                deadline = self.deadline(answer_s)
        if self.in_flight:
            for process in self.in_flight:
                process.interrupt()
            yield env.timeout(0)  # until they have ended, before the next event of this instant
        row.times.closed_s[self.number] = env.now

    def open(self, round: int) -> Any:
        """Select a cohort and start its visits; return these."""
        replica, env, sizes = self.replica, self.env, self.replica.sizes
        clients, multiplicity = self.view.select(round, env.now)
        drawn = replica.system.draw_visits(replica.position, clients, round, env.now)
        offline_s = replica.system.offline_s(replica.position, clients, env.now)
        if replica.system.broadcasts_to_all:
            others = np.setdiff1d(self.view.online(), clients)
            replica.row(round).unselected_bits += len(others) * sizes.broadcast
            unselected(replica.links, others, sizes.broadcast, env.now)
        visits = [
            Visit(client, self.number, round - 1, times, own, env.now)
            for client, times, own in zip(clients.tolist(), multiplicity.tolist(), each(drawn), strict=True)
        ]
        known = sizes.of_reply(round)
        replies = [known] * len(visits) if known is not None else (yield replica.ask_bits(visits))
        self.view.opened({visit.client: visit for visit in visits})
        for visit, bits, until_s in zip(visits, replies, offline_s.tolist(), strict=True):
            process = env.process(participate(env, replica.links, visit, sizes.broadcast, bits))
            process.callbacks.append(self.visit_ended)
            self.in_flight[process] = visit
            if until_s < inf:
                env.process(go_offline(env, visit, process, until_s))
        return visits

    def visit_ended(self, process: simpy.Event) -> None:
        """Store the end of a visit, for the process of the site and for its policy."""
        visit = self.in_flight.pop(process)
        self.view.ended(visit.client, visit.started_s, self.env.now, visit.outcome == ARRIVED)
        if not self.changed.triggered:
            self.changed.succeed()

    def deadline(self, time_s: float) -> Instant | None:
        """Return an event at the time at which the policy closes the round; None: it keeps waiting."""
        return Instant(self.env, time_s, self.rank(closing.DEADLINE)) if time_s < inf else None

    def rank(self, kind: int) -> int:
        return closing.rank(kind, 0, self.number)


def wait_for_clients(
    env: simpy.Environment, system: System, position: int, members: Array, enough: int, rank: int
) -> Any:  # fmt: skip
    """Wait until enough of these clients are online; return RUNNING, or why they never will be."""
    jumps = 0
    while True:
        online_s = system.enough_online_s(position, members, enough, env.now)
        reason = closing.opening_stop(online_s, env.now, system.limit_s, jumps)
        if reason != closing.RUNNING or online_s <= env.now:
            return reason
        yield Instant(env, online_s, rank)
        jumps += 1


class Cloud:
    """A barrier: edges send their models, wait for the last one, and receive the merged one."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.arrived, self.merged = replica, 0, replica.env.event()

    def merge(self, site: Site, round: int) -> Process:
        """Send the edge's model up, wait until those of all edges have arrived, wait for the cloud's."""
        replica, env, rank = self.replica, self.replica.env, site.rank(closing.MERGE)
        route = replica.system.population + site.number
        yield from replica.links.transfer(Message(route, True, replica.sizes.to_cloud, env.now), rank)
        replica.row(round).times.at_cloud_s[site.number] = env.now
        self.arrived += 1
        if self.arrived < replica.system.sites.count:
            yield self.merged
        else:
            merged, self.arrived, self.merged = self.merged, 0, env.event()
            merged.succeed()
        replica.row(round).aggregated(env.now)
        yield from replica.links.transfer(Message(route, False, replica.sizes.from_cloud, env.now), rank)
        replica.row(round + 1).times.from_cloud_s[site.number] = env.now


class Row:
    """One round of all sites of a replica, as far as it has come."""

    def __init__(self, env: simpy.Environment, round: int, sites: int) -> None:
        self.visits: list[list[Visit]] = [[] for _ in range(sites)]  # that end in it
        self.starts: list[Visit] = []  # of asynchronous clients, from the version before it
        self.selected, self.oldest_version = 0, round
        self.opened_s, self.closed_s, self.missing = inf, -inf, sites
        self.unselected_bits, self.times = 0, CloudTimes(*np.full((len(CloudTimes._fields), sites), nan))
        self.closed = env.event()  # its value: closing.RUNNING, or why the round never closes

    def opened(self, now_s: float, site: int, visits: list[Visit]) -> None:
        self.visits[site], self.opened_s = visits, min(self.opened_s, now_s)
        self.selected += len(visits)

    def aggregated(self, now_s: float) -> None:
        """Count a site that has aggregated; with the last one the round is closed."""
        self.closed_s, self.missing = max(self.closed_s, now_s), self.missing - 1
        if self.missing == 0:
            self.closed.succeed(closing.RUNNING)

    def stop(self, reason: int) -> None:
        """End the replica: a site will never open this round."""
        if not self.closed.triggered:
            self.closed.succeed(reason)


class Replica:
    """One replica: its environment, its links, and the processes of its sites."""

    def __init__(self, system: System, sizes: MessageSizes, learning: Learning, position: int) -> None:
        self.env, self.system, self.sizes, self.position = simpy.Environment(), system, sizes, position
        self.links, self.cloud = links_of(self.env, system), Cloud(self)
        self.rows: dict[int, Row] = {}
        self.questions: list[tuple[simpy.Event, list[Visit]]] = []  # whose reply's bits the clock needs
        self.begin(learning)

    def begin(self, learning: Learning) -> None:
        """Start the processes."""
        self.sites = [Site(self, number, learning) for number in range(self.system.sites.count)]
        for site in self.sites:
            self.env.process(site.run())

    def under_way(self, round: int) -> list[int]:
        """Return the clients whose visits are in flight."""
        return sorted(visit.client for site in self.sites for visit in site.in_flight.values())

    def row(self, round: int) -> Row:
        if round not in self.rows:
            if closing.is_too_far_apart(round - min(self.rows, default=round), 0):
                raise InvalidInput(f"an edge is {closing.MOST_APART:,} rounds ahead of another; merge more often")
            self.rows[round] = Row(self.env, round, self.system.sites.count)
        return self.rows[round]

    def ask_bits(self, visits: list[Visit]) -> simpy.Event:
        """Return an event whose value will be the bits of the replies of these visits, all of the open round."""
        answer = self.env.event()
        self.questions.append((answer, visits))
        return answer

    def run_to(self, round: int) -> bool:
        """Run until all sites have closed the round, or will never; False: the bits of replies are needed first."""
        closed = self.row(round).closed
        while not closed.triggered:
            if self.questions:
                return False
            if self.env.peek() == inf:
                self.nothing_more(round)
            else:
                self.env.step()
        return True

    def nothing_more(self, round: int) -> None:
        """Stop before a round that nothing will ever close; without a limit on time, refuse it."""
        if self.system.limit_s < inf:
            self.row(round).stop(closing.OUT_OF_TIME)
        else:
            refuse(round, self.under_way(round))


def refuse(round: int, clients: list[int]) -> None:
    """Refuse a round that never closes because these clients are under way for ever."""
    raise InvalidInput(
        f"round {round} never closes: clients such as {', '.join(map(str, sorted(clients)[:3]))} are still under way "
        "and nothing more will happen; raise the bandwidths, or close with a deadline"
    )
