"""The scenario as a clock reads it: parts, routes, sizes of messages and keyed draws. All of it is immutable.

This is the only module of the engine that reads the parts' own attribute names.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedsim.arrays import Array, Numbers
from fedsim.devices.model import Devices
from fedsim.exchanges import Gossip, Mixing
from fedsim.problems import reweighted, weights_of
from fedsim.problems.shards import rows_per_batch
from fedsim.protocols import Backend, NetworkModel, Visitors
from fedsim.protocols.defaults import has_columns
from fedsim.rng import Draws, Stream
from fedsim.rules.closing import counts_replies, tie_of
from fedsim.rules.draws import NO_SLOWDOWN
from fedsim.rules.selection import ALL
from fedsim.rules.visits import DRAWN
from fedsim.runtime.jobs import Setting

if TYPE_CHECKING:
    from fedsim.scenario import Scenario


class Routes(NamedTuple):
    """The routes of one direction: a row per client to its site, then, of tiers, one per edge to the cloud."""

    latency_s: Array
    loss_factor: Array
    bandwidth_bps: Array  # the bottleneck's; inf: no time but the latency


@dataclass(frozen=True)
class MessageSizes:
    """Bits of the messages of a run."""

    broadcast: int
    first_reply: int | None  # of round 1; None: it depends on values
    reply: int | None  # of later rounds
    to_cloud: int = 0  # of tiers, one edge's message
    from_cloud: int = 0

    def of_reply(self, round: int) -> int | None:
        """Return the bits of a reply in a round, counted from 1."""
        return self.first_reply if round == 1 else self.reply

    @property
    def depend_on_values(self) -> bool:
        return self.first_reply is None or self.reply is None


class System:
    """The scenario as a clock reads it; replicas are named by their position 0 ... R - 1."""

    def __init__(self, scenario: Scenario, setting: Setting, timing_only: bool) -> None:
        parts = scenario.parts
        self.scenario, self.setting, self.timing_only = scenario, setting, timing_only
        self.problem, self.algorithm, self.policy, self.devices = (
            parts.problem, parts.algorithm, parts.policy, parts.devices,
        )  # fmt: skip
        self.sites, self.budget = scenario.sites, scenario.budget
        self.gossip = scenario.exchange if isinstance(scenario.exchange, Gossip) else None
        self.network: NetworkModel | None = self.sites.network
        self.replicas = np.asarray(scenario.replica_numbers, np.int64)
        self.population, self.weights = self.problem.clients, setting.weights
        self.down, self.up = (routes_of(self.network, self.sites.routes, upward) for upward in (False, True))
        self.always_online = self.devices is None or self.devices.always_available
        self.limit_s = np.inf if self.budget.seconds is None else float(self.budget.seconds)
        self.broadcasts_to_all = scenario.broadcasts_to_all
        self.reports_loss = "loss" in self.algorithm.local_only
        may_read = self.policy.history or not has_columns(self.policy.wrapped, "policy")  # a user's own policy
        self.clock_reads_losses = may_read and self.reports_loss and not timing_only

    @cached_property
    def cumulative_weights(self) -> Array:
        """p_0, p_0 + p_1, ..., for policies that draw by weight."""
        return np.cumsum(self.weights)

    @cached_property
    def remembers(self) -> bool:
        """True if clients have memory, so that an asynchronous one waits until its reply has been aggregated."""
        return bool(self.algorithm.memory(self.problem.wrapped))

    @cached_property
    def mixing(self) -> Mixing | None:
        """The mixing of sites that gossip, if it is the same in all rounds of all replicas."""
        return self.gossip.at(0, 0, 0) if self.gossip is not None and self.gossip.constant else None

    @property
    def visits_a_round(self) -> int:
        """About how many visits end in a round, at most; over gossip, with their messages."""
        if self.gossip is not None:
            return self.population + len(self.gossip.sender)
        if self.policy.asynchronous:
            return int(self.policy.replies)
        size = self.policy.size
        return self.population if size is None else min(size * self.sites.count, self.population)

    @property
    def has_unselected_flows(self) -> bool:
        """True if broadcasts to clients that were not selected take links up."""
        all_clients = self.policy.always and self.always_online
        return self.broadcasts_to_all and self.network is not None and not all_clients

    @property
    def own_links_carry_flows(self) -> bool:
        """True if two messages may be on one client's own link at a time."""
        return self.network is not None and (self.has_unselected_flows or self.gossip is not None)

    @cached_property
    def one_timeline(self) -> bool:
        """True if no draw changes the timeline, so that one replica's is that of all.

        Ties are drawn, but order only equal events of one instant. That matters where replies are counted.
        """
        if self.policy.asynchronous or self.clock_reads_losses or (self.gossip is not None and self.gossip.drawn):
            return False
        policy = self.policy.to_columns() if has_columns(self.policy.wrapped, "policy") else None
        if policy is None or policy.selection != ALL or counts_replies(policy.closing):
            return False
        if self.devices is None:
            return True
        described = has_columns(self.devices.wrapped, "devices")
        devices = self.devices.to_columns(self.population, self.work) if described else None
        drawn = devices is None or devices.slowdown.law != NO_SLOWDOWN or not self.devices.reliable
        return self.always_online and not drawn

    def of_one(self) -> System:
        """Return the scenario with its first replica alone."""
        one = copy(self)
        one.replicas = self.replicas[:1]
        return one

    @property
    def shares_links(self) -> bool:
        """True if transfers may contend, or bandwidths change."""
        return self.network is not None and bool(self.network.contended or self.network.varying)

    # --- Draws ------------------------------------------------------------------------------------------------------

    def draws(
        self, stream: Stream, position: Numbers | slice, client: Numbers = 0, round: Numbers = 0, visit: Numbers = 0,
        single: bool = False,
    ) -> Draws:  # fmt: skip
        """Return an rng whose rows are these replicas, clients, rounds (from 0) and visits."""
        backend, replica = self.setting.backend, self.replicas[position]
        key = backend.keys(self.setting.seed, stream, replica=replica, client=client, round=round, visit=visit)
        return Draws(key, single, source=backend)

    def draw_visits(
        self, position: Numbers, client: Array, round: int, now_s: float | Array, visit: int = 0, ordered: bool = True
    ) -> Array:  # fmt: skip
        """Return what is drawn for visits that start now, as `DRAWN`; `round` is counted from 1, keys from 0.

        `ordered`: the order of events of one instant matters.
        """
        drawn = self.draw_outcomes(position, client, round, now_s, visit, ordered)
        drawn["compute_s"] = self.compute_s(position, client, self.work[client], round, now_s, visit)
        return drawn

    def draw_outcomes(
        self, position: Numbers, client: Array, round: int, now_s: float | Array, visit: int = 0, ordered: bool = True
    ) -> Array:  # fmt: skip
        """Return the same without compute times."""
        m, address, devices = len(client), (position, client, round - 1, visit), self.devices
        drawn = np.zeros(m, DRAWN)
        if ordered:
            drawn["tie"] = ties_of(self.draws(Stream.TIE, *address).uniform())
        if devices is not None and not devices.reliable:
            rng = self.draws(Stream.DROPOUT, *address)
            drop, fraction = map(np.asarray, devices.drop(client, np.full(m, now_s), rng))
            drawn["drop"], drawn["fraction"] = drop, fraction
        return drawn

    def compute_s(
        self, position: Numbers, client: Array, work: Array, round: int, now_s: float | Array, visit: int = 0
    ) -> Array:  # fmt: skip
        """Return the seconds that each visit computes, given its work."""
        devices = self.devices
        if devices is None:
            return np.zeros(len(client))
        rng = self.draws(Stream.COMPUTE, position, client, round - 1, visit)
        return np.asarray(devices.compute_s(client, work, np.full(len(client), now_s), rng), float)

    def draw_ties(self, position: int, sender: Array, receiver: Array, round: int) -> Array:
        """Return the keyed number of every message between sites in a round, counted from 1."""
        return ties_of(self.draws(Stream.TIE, position, sender, round - 1, 1 + receiver).uniform())

    @cached_property
    def work(self) -> Array:
        """(population,) local steps of a visit, times rows a step where the devices' time counts them."""
        client = np.arange(self.population)
        steps = np.zeros(self.population) + np.asarray(self.algorithm.work(Visitors(client)), np.float64)
        if self.devices is None or not self.devices.per_example:
            return steps
        sizes, batch_size = self.problem.sizes, self.algorithm.batch_size
        return np.asarray(steps * (sizes if batch_size is None else rows_per_batch(batch_size, sizes, client)))

    # --- Availability -----------------------------------------------------------------------------------------------

    def online_s(self, position: int, client: Array, now_s: float) -> Array:
        """Return the earliest time from now on at which each client is online; inf: never."""
        if self.devices is None or self.always_online:
            return np.full(len(client), now_s)
        rng = self.draws(Stream.AVAILABILITY, position, client)
        return np.asarray(self.devices.next_available(client, np.full(len(client), now_s), rng))

    def offline_s(self, position: int, client: Array, now_s: float) -> Array:
        """Return when each client, online now, goes offline; now for a client that is offline."""
        if self.devices is None or self.always_online:
            return np.full(len(client), np.inf)
        rng = self.draws(Stream.AVAILABILITY, position, client)
        until = np.asarray(self.devices.available_until(client, np.full(len(client), now_s), rng))
        return np.asarray(np.maximum(until, now_s))

    def enough_online_s(self, position: int, client: Array, enough: int, now_s: float) -> float:
        """Return now if `enough` of these clients are online, else the earliest time at which they might be."""
        if enough > len(client):
            return np.inf
        if self.always_online:
            return now_s
        online, tried = 0, 0
        while tried < len(client):  # the first few mostly suffice
            until = min(4 * max(tried, enough), len(client))
            online += int((self.online_s(position, client[tried:until], now_s) == now_s).sum())
            tried = until
            if online >= enough:
                return now_s
        return float(np.partition(self.online_s(position, client, now_s), enough - 1)[enough - 1])


def setting_of(scenario: Scenario, backend: Backend) -> Setting:
    """Return what all jobs of a scenario have in common."""
    problem, devices, network = scenario.problem, scenario.parts.devices, scenario.parts.network
    weights = weights_of(problem)
    if isinstance(scenario.exchange, Gossip) and np.any(weights != scenario.sites.weights):
        weights = scenario.sites.weights
        problem = reweighted(problem, weights)
    all_clients, rows = np.arange(problem.clients), {}
    if network is not None and network.has_server:
        for up, name in ((True, "uplink"), (False, "downlink")):
            rows[f"{name}_delay_s"] = np.broadcast_to(network.delay_s(up), all_clients.shape)
            rows[f"{name}_bottleneck_bps"] = np.broadcast_to(network.bottleneck_bps(up), all_clients.shape)
    if devices is not None and (dropout := devices.dropout_of(all_clients)) is not None:
        rows["dropout"] = dropout
    if devices is not None and type(devices.wrapped) is Devices:
        columns = devices.to_columns(problem.clients, np.ones(problem.clients))
        rows |= {} if columns is None else {"seconds_per_step": np.broadcast_to(columns.work_s, all_clients.shape)}
    return Setting(problem, weights, scenario.seed, np.dtype(scenario.dtype), backend, rows)


def routes_of(network: NetworkModel | None, rows: int, upward: bool) -> Routes:
    """Return a network's routes in one direction; without a network, messages take no time."""
    columns: tuple[Any, ...] = 0.0, 1.0, np.inf
    if network is not None:
        columns = network.delay_s(upward), network.loss_factor(upward), network.bottleneck_bps(upward)
    return Routes(*(np.broadcast_to(column, (rows,)) for column in columns))


def ties_of(uniforms: Array) -> Array:
    """Return the keyed numbers of visits or messages."""
    return np.array([tie_of(u) for u in uniforms.tolist()], np.int64)
