"""Links on a SimPy clock: a process waits for its transfers.

A message shares its route's links from its first instant until its last bit has left, and arrives one latency later.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

import numpy as np
import simpy

from fedsim.arrays import Array
from fedsim.engine.system import Routes, System
from fedsim.network.flows import Flows
from fedsim.rules import closing, visits

Process: TypeAlias = Generator[simpy.Event, Any, None]
FLOW_END, SHARING = (closing.rank(kind, 0, 0) for kind in (closing.FLOW_END, closing.SHARING))


class Instant(simpy.Event):  # type: ignore[misc]
    """An event at an exact time, ordered by rank among the events of that time.

    SimPy handles the events of one instant by priority. Its own bookkeeping has priorities 0 and 1; a rank is larger
    and unique. So all consequences of one event are done before the next event.

    SimPy adds a delay to now, and for some pairs no delay leads to `time_s`. From half of `time_s` on the difference is
    exact (Sterbenz), so a second hop is made where one is not enough.
    """

    def __init__(self, env: simpy.Environment, time_s: float, rank: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None  # as simpy.Timeout does
        delay = time_s - env.now if time_s != env.now else 0.0  # inf - inf is no number
        if env.now + delay == time_s:
            env.schedule(self, rank, delay)
        else:
            closer = env.timeout(0.75 * time_s - env.now)
            closer.callbacks.append(lambda _: env.schedule(self, rank, time_s - env.now))


@dataclass(slots=True, eq=False)
class Message:
    """A message on its way: its route is a row of the network's routes, up or down."""

    row: int
    upward: bool
    bits: int
    started_s: float
    flow: int | None = None  # on shared links, until its last bit has left


class UnsharedLinks:
    """A route of its own for every client and direction: transfers do not affect each other."""

    def __init__(self, env: simpy.Environment, down: Routes, up: Routes) -> None:
        self.env, self.routes = env, (down, up)
        self.known: dict[tuple[int, bool], tuple[float, float, float]] = {}  # routes in use

    def route_of(self, message: Message) -> tuple[float, float, float]:
        """Return a message's latency, loss factor and bandwidth."""
        way = message.row, message.upward
        if way not in self.known:
            latency_s, loss_factor, bandwidth_bps = (float(column[way[0]]) for column in self.routes[way[1]])
            self.known[way] = latency_s, loss_factor, bandwidth_bps
        return self.known[way]

    def transfer(self, message: Message, rank: int) -> Process:
        """Wait until a message has arrived."""
        latency_s, loss_factor, bandwidth_bps = self.route_of(message)
        last_bit_s = self.env.now + visits.transfer_s(message.bits, loss_factor, bandwidth_bps)
        yield Instant(self.env, visits.arrival_s(last_bit_s, latency_s), rank)

    def cancel(self, message: Message) -> int:
        """Stop a message; return the bits that have left its sender."""
        _, loss_factor, bandwidth_bps = self.route_of(message)
        return visits.bits_sent(self.env.now - message.started_s, message.bits, loss_factor, bandwidth_bps)


class SharedLinks(UnsharedLinks):
    """Links that flows share max-min fairly. Rates change once an instant, after all its other events."""

    def __init__(self, env: simpy.Environment, down: Routes, up: Routes, network: Any) -> None:
        super().__init__(env, down, up)
        self.network, self.flows = network, Flows(network.capacities_bps, network.varying)
        self.last_bit: dict[int, simpy.Event] = {}  # by flow: succeeds when its last bit leaves
        self.known_routes: dict[tuple[int, bool], tuple[int, ...]] = {}
        self.rates_version, self.sharing = 0, False

    def transfer(self, message: Message, rank: int) -> Process:
        latency_s, loss_factor, bandwidth_bps = self.route_of(message)
        if message.bits > 0 and bandwidth_bps < inf:
            message.flow = self.start(message, loss_factor)
            last_bit = self.last_bit[message.flow] = self.env.event()
            yield last_bit
            message.flow = None
        yield Instant(self.env, visits.arrival_s(self.env.now, latency_s), rank)

    def cancel(self, message: Message) -> int:
        loss_factor = self.route_of(message)[1]
        if message.flow is None:  # its last bit has left
            return visits.bits_sent(self.env.now - message.started_s, message.bits, loss_factor, inf)
        served_bits = self.flows.cancel(self.env.now, message.flow)
        del self.last_bit[message.flow]
        self.share_later()
        return visits.flow_bits_sent(served_bits, message.bits, loss_factor)

    def send(self, message: Message) -> None:
        """Start a message that no process waits for; it only takes its share of the links."""
        _, loss_factor, bandwidth_bps = self.route_of(message)
        if message.bits > 0 and bandwidth_bps < inf:
            self.start(message, loss_factor)

    def start(self, message: Message, loss_factor: float) -> int:
        """Start the flow of a message; return its number."""
        way = message.row, message.upward
        if way not in self.known_routes:
            self.known_routes[way] = tuple(self.network.route(*way))
        self.share_later()
        return self.flows.start(self.env.now, self.known_routes[way], message.bits * loss_factor)

    def share_later(self) -> None:
        """Share the links once, after all other events of this instant."""
        if not self.sharing:
            self.sharing = True
            self.env.process(self.share())

    def share(self) -> Process:
        """Give every flow its fair rate, then wait until the next one ends or a bandwidth changes."""
        yield Instant(self.env, self.env.now, SHARING)
        self.sharing = False
        self.rates_version += 1
        version, next_s = self.rates_version, self.flows.next_finish_s()
        if next_s == inf:
            return
        yield Instant(self.env, max(next_s, self.env.now), FLOW_END)
        if version == self.rates_version:  # no flow has started or ended since
            for flow in self.flows.finish(self.env.now):
                if flow in self.last_bit:
                    self.last_bit.pop(flow).succeed()
            self.share_later()


class OwnRoutes:
    """Private routes as a network whose flows may meet: broadcasts of two rounds may be on one client's way down."""

    def __init__(self, down: Routes, up: Routes) -> None:
        self.varying: dict[int, Any] = {}
        self.capacities_bps = np.concatenate([down.bandwidth_bps, up.bandwidth_bps])
        self.rows = len(down.bandwidth_bps)

    def route(self, row: int, upward: bool) -> tuple[int]:
        return (row + self.rows * upward,)


def links_of(env: simpy.Environment, system: System) -> UnsharedLinks:
    """Return the links of one replica."""
    down, up = system.down, system.up
    if system.shares_links:
        return SharedLinks(env, down, up, system.network)
    if system.own_links_carry_flows:
        return SharedLinks(env, down, up, OwnRoutes(down, up))
    return UnsharedLinks(env, down, up)


def unselected(links: UnsharedLinks, clients: Array, bits: int, now_s: float) -> None:
    """Send a broadcast to clients that were not selected; no process waits for it."""
    if isinstance(links, SharedLinks):
        for client in clients.tolist():
            links.send(Message(client, False, bits, now_s))
