"""Asynchronous clients as SimPy processes: they work continuously, and the server aggregates every K replies.

A visit that ends frees its place at once, before the next event of that instant. So the client whose reply fills the
buffer starts from the new version. A client with memory frees its place, too, but is idle again only after its reply
has been aggregated.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.clock import Learning
from fedsim.engine.clock.simpy.links import Instant, Process, unselected
from fedsim.engine.clock.simpy.rounds import Replica, refuse
from fedsim.engine.clock.simpy.visits import Visit, each, go_offline, participate
from fedsim.rng import Stream
from fedsim.rules import closing
from fedsim.rules.draws import candidate
from fedsim.rules.visits import ARRIVED


class Buffer:
    """A server of asynchronous clients. Every client has a place of its own."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.env, self.system, self.version = replica, replica.env, replica.system, 0
        self.numbers: defaultdict[int, int] = defaultdict(int)  # visits that each client has begun
        self.in_flight: dict[int, Visit] = {}  # by client, in the order of their starts
        self.ended: list[Visit] = []  # since the last aggregation
        self.waiting: list[int] = []  # clients with memory whose reply has not been aggregated
        self.arrived = self.dropped = 0  # of these; in a row
        self.places = self.system.population

    def begin(self) -> None:
        """Start the processes."""
        for client in range(self.system.population):
            self.env.process(self.work(client, first=True))

    def work(self, client: int, first: bool = False) -> Process:
        """Make one visit after another whenever the device is online, until the client has to wait."""
        opening, waits = closing.rank(closing.OPENING, 0, client), False
        if first:
            yield Instant(self.env, 0.0, opening)
        while not waits and (online_s := self.online_s(np.array([client]))) < inf:
            if online_s > self.env.now:
                yield Instant(self.env, online_s, opening)
            waits = yield from self.visit(client)

    def online_s(self, clients: Array) -> float:
        """Return the earliest time from now on at which one of these clients is online; inf: never."""
        return float(self.system.online_s(self.replica.position, clients, self.env.now).min(initial=inf))

    def visit(self, client: int) -> Any:
        """Make a visit from the newest version; aggregate if its reply fills the buffer.

        Return True if the client waits until its reply has been aggregated: `resume` is called then.
        """
        replica, env, sizes, round = self.replica, self.env, self.replica.sizes, self.version + 1
        visit, offline_s = self.draw(client)
        self.in_flight[client] = visit
        replica.row(round).starts.append(visit)
        replica.row(round).selected += 1
        bits = sizes.of_reply(round)
        if bits is None:
            [bits] = yield replica.ask_bits([visit])
        process = env.process(participate(env, replica.links, visit, sizes.broadcast, bits))
        if offline_s < inf:
            env.process(go_offline(env, visit, process, offline_s))
        yield process
        self.ended.append(self.in_flight.pop(client))
        arrived = visit.outcome == ARRIVED
        waits = arrived and self.system.remembers
        self.arrived, self.dropped = self.arrived + arrived, 0 if arrived else self.dropped + 1
        self.waiting += [client] if waits else []
        if closing.buffer_is_full(self.arrived, self.system.policy.replies):
            self.aggregate()
        elif closing.gives_up(self.dropped, self.places):
            replica.row(self.version + 1).stop(closing.NO_CLIENTS)
        return waits

    def draw(self, client: int) -> tuple[Visit, float]:
        """Return the next visit of a client, and when its device goes offline."""
        system, position, number, who = self.system, self.replica.position, self.numbers[client], np.array([client])
        self.numbers[client] += 1
        [drawn] = each(system.draw_visits(position, who, 1, self.env.now, number))
        visit = Visit(client, 0, self.version, 1, drawn, self.env.now, visit=number)
        return visit, float(system.offline_s(position, who, self.env.now)[0])

    def aggregate(self) -> None:
        """Close the round; clients that waited for that are idle again."""
        self.version += 1
        row = self.replica.row(self.version)
        row.visits[0], row.opened_s = sorted(self.ended, key=attrgetter("client")), min(v.started_s for v in self.ended)
        if self.in_flight:
            row.oldest_version = next(iter(self.in_flight.values())).version
        row.aggregated(self.env.now)
        waiting, self.waiting, self.ended, self.arrived = sorted(self.waiting), [], [], 0
        self.resume(waiting)
        if self.system.broadcasts_to_all:
            self.env.process(self.inform())

    def resume(self, clients: list[int]) -> None:
        """Let clients work again."""
        for client in clients:
            self.env.process(self.work(client))

    def inform(self) -> Process:
        """Send the new version to the online clients that did not start from it; nothing waits for that."""
        yield self.env.timeout(0)  # until the places have been given away, before the next event of this instant
        bits, started = (
            self.replica.sizes.broadcast,
            {c for c, v in self.in_flight.items() if v.version == self.version},
        )
        others = np.array([c for c in range(self.system.population) if c not in started], np.int64)
        others = others[self.system.online_s(self.replica.position, others, self.env.now) == self.env.now]
        self.replica.row(self.version + 1).unselected_bits += len(others) * bits
        unselected(self.replica.links, others, bits, self.env.now)


class Places(Buffer):
    """A server of asynchronous clients of which a fixed number works at a time."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self.idle, self.draws, self.opens_s = list(range(self.system.population)), 0, inf
        self.free = self.places = min(self.system.policy.size or 0, len(self.idle))

    def begin(self) -> None:
        self.env.process(self.open(0.0))

    def open(self, opens_s: float) -> Process:
        """Fill the free places at a time, unless an earlier one has been named since."""
        self.opens_s = opens_s
        yield Instant(self.env, opens_s, closing.rank(closing.OPENING, 0, 0))
        if opens_s == self.opens_s:
            self.opens_s = inf
            self.fill()
            if opens_s == 0.0 and self.system.broadcasts_to_all:
                yield from self.inform()

    def fill(self) -> None:
        """Assign every free place to a client drawn among the idle online ones, else to the first that comes online."""
        while self.free and self.draw_idle():
            self.free -= 1
            self.env.process(self.occupy(self.idle.pop()))
        if self.free:
            opens_s = self.online_s(np.array(self.idle, np.int64))
            if self.env.now < opens_s < self.opens_s:
                self.env.process(self.open(opens_s))

    def draw_idle(self) -> bool:
        """Move a client drawn among the idle online ones to the end of the list; return False if there is none."""
        idle, system, seed = self.idle, self.system, int(self.system.setting.seed)
        replica = int(system.replicas[self.replica.position])
        self.draws += 1
        for left in range(len(idle), 0, -1):  # candidates without replacement, until one is online
            at = candidate(seed & 0xFFFFFFFF, seed >> 32, int(Stream.SELECT), replica, self.draws, left)
            if system.always_online or self.online_s(np.array([idle[at]])) == self.env.now:
                idle[at], idle[-1] = idle[-1], idle[at]
                return True
            idle[at], idle[left - 1] = idle[left - 1], idle[at]
        return False

    def occupy(self, client: int) -> Process:
        """Make a visit, then leave the place to a client."""
        waits = yield from self.visit(client)
        self.idle += [] if waits else [client]
        self.free += 1
        self.fill()

    def resume(self, clients: list[int]) -> None:
        self.idle += clients


class AsynchronousReplica(Replica):
    """One replica of asynchronous clients."""

    def begin(self, learning: Learning) -> None:
        self.buffer = Buffer(self) if self.system.policy.size is None else Places(self)
        self.buffer.begin()

    def nothing_more(self, round: int) -> None:
        """Stop if no client will come online; refuse if one is under way for ever."""
        if self.buffer.in_flight:
            refuse(round, list(self.buffer.in_flight))
        self.row(round).stop(closing.NO_CLIENTS)
