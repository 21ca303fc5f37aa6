"""A scenario as tables that the compiled loops read: one record per client, one number per rule, routes by number."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.clock.compiled.site_tables import site_tables
from fedsim.engine.system import MessageSizes, Routes, System
from fedsim.kernels.clock.gossip_state import ROUTE as MESSAGE
from fedsim.kernels.clock.gossip_state import GossipTables
from fedsim.kernels.clock.state import (
    CLIENT,
    FLOW,
    GROUP,
    LAW,
    ROUTE,
    TRUNK,
    AlwaysOnline,
    Links,
    SelectsAll,
    Tables,
)
from fedsim.network.route_bundles import scale_of
from fedsim.protocols import (
    AvailabilityColumns,
    DeviceColumns,
    PolicyColumns,
    RouteColumns,
    SlowdownColumns,
    has_columns,
)
from fedsim.rules.closing import Closing
from fedsim.rules.selection import ALL, BERNOULLI
from fedsim.rules.visits import DROPOUT, Dropout

INSTANT = DeviceColumns(0.0, 0.0, SlowdownColumns(), Dropout(), AvailabilityColumns())


class PartColumns:
    """A scenario's parts as columns; `missing` names a part that has none.

    `own` names a part that has none and that can be asked for the cohorts of a star, one call a round.
    """

    def __init__(self, system: System, sizes: MessageSizes) -> None:
        self.missing = self.own = ""
        self.policy = system.policy.to_columns() if has_columns(system.policy.wrapped, "policy") else None
        self.devices: DeviceColumns | None = INSTANT
        self.routes: RouteColumns | None = None  # None: private links
        if system.devices is not None:
            described = has_columns(system.devices.wrapped, "devices")
            self.devices = system.devices.to_columns(system.population, system.work) if described else None
        if system.shares_links and system.network is not None:
            described = has_columns(system.network.wrapped, "network") and not system.network.varying
            self.routes = system.network.to_columns() if described else None
            if system.network.varying:
                self.missing = "bandwidths vary in time"
            elif self.routes is None:
                self.missing = _why("network", system.network.wrapped)
        elif system.own_links_carry_flows:
            self.routes = own_routes(system.down, system.up)
        policy = system.policy
        if self.policy is None and policy.batched and policy.waits and not policy.history:
            self.policy, self.own = PolicyColumns(BERNOULLI), _why("policy", policy.wrapped)  # cohorts of any size
        if self.devices is None and system.devices is not None:
            self.devices, self.own = INSTANT, _why("devices", system.devices.wrapped)
        if self.own and system.sites.count > 1:
            self.missing = self.own
        elif self.policy is None:
            self.missing = _why("policy", policy.wrapped)
        elif system.clock_reads_losses:
            self.missing = "the policy reads losses"
        elif system.setting.backend.name != "cpu":
            self.missing = f"its draws are those of the CPU, and the backend is {system.setting.backend.name}"


def _why(role: str, part: object) -> str:
    return f"the {role} {type(part).__name__} has no columns"


def own_routes(down: Routes, up: Routes) -> RouteColumns:
    """Return private links as a network whose flows can meet: see `simpy.links.OwnRoutes`."""
    n = len(down.bandwidth_bps)
    capacities = np.concatenate([down.bandwidth_bps, up.bandwidth_bps])
    return RouteColumns(capacities, np.arange(n), np.arange(n + 1), np.arange(n, 2 * n), np.arange(n + 1))


# --- Tables ---------------------------------------------------------------------------------------------------------


def tables_of(
    system: System, sizes: MessageSizes, policy: PolicyColumns, devices: DeviceColumns, numbers: RouteNumbers
) -> Tables:  # fmt: skip
    """Return a scenario's tables."""
    n, sites = system.population, site_tables(system, policy)
    beyond = len(system.up.latency_s) - n  # routes between edges and the cloud
    client, cloud = np.zeros(n, CLIENT), np.zeros(max(1, beyond), CLIENT)
    client["work_s"], client["wake_s"] = devices.work_s, devices.wake_s
    for name, routes in (("down", system.down), ("up", system.up)):
        for column, values in zip(("latency_s", "loss_factor", "bps"), routes, strict=True):
            client[f"{name}_{column}"], cloud[f"{name}_{column}"][:beyond] = values[:n], values[n:]
    return Tables(
        client=client, cloud=cloud, **device_tables(system, devices),
        members=sites.members, offsets=sites.offsets, slots=sites.slots,
        probability=np.array(np.broadcast_to(np.asarray(policy.probability, np.float64), n)),
        weights=sites.weights, cumulative=sites.cumulative,
        route_down=numbers.down, route_up=numbers.up, route_offsets=numbers.offsets, route_links=numbers.links,
        closing=closing_of(policy),
        selection=SelectsAll() if policy.selection == ALL else policy.selection, size=int(policy.size),
        at_least=int(system.policy.at_least or 1), every=int(system.sites.every),
        broadcast_bits=int(sizes.broadcast),
        first_reply_bits=int(sizes.first_reply or 0), reply_bits=int(sizes.reply or 0),
        to_cloud_bits=int(sizes.to_cloud), from_cloud_bits=int(sizes.from_cloud),
        replies=int(system.policy.replies), remembers=bool(system.policy.asynchronous and system.remembers),
        broadcasts_to_all=bool(system.broadcasts_to_all), unselected_s=unselected_s(system, sizes),
    )  # fmt: skip


def gossip_tables(system: System, sizes: MessageSizes, parts: PartColumns, numbers: RouteNumbers) -> GossipTables:
    """Return a scenario's tables."""
    gossip, devices, policy = system.gossip, parts.devices, parts.policy
    assert gossip is not None
    assert devices is not None
    assert policy is not None
    assert sizes.first_reply is not None
    assert sizes.reply is not None
    client, message = np.zeros(gossip.sites, CLIENT), np.zeros(len(gossip.sender), MESSAGE)
    client["work_s"], client["wake_s"] = devices.work_s, devices.wake_s
    outgoing = np.lexsort((gossip.receiver, gossip.sender))
    message["sender"], message["receiver"] = gossip.sender, gossip.receiver
    message["order"][outgoing] = gossip.sites + np.arange(len(outgoing))  # among events: after the clients
    message["route"] = numbers.up if parts.routes is not None else 0
    for column, values in zip(Routes._fields, system.up, strict=True):
        message[column] = values
    return GossipTables(
        client=client, message=message, outgoing=outgoing,
        offsets=np.searchsorted(gossip.sender[outgoing], np.arange(gossip.sites + 1)),
        route_offsets=numbers.offsets, route_links=numbers.links, closing=closing_of(policy),
        first_reply_bits=int(sizes.first_reply), reply_bits=int(sizes.reply),
        degree=int(gossip.degrees.max(initial=0)),
        takes_time=bool(np.isfinite(message["bandwidth_bps"]).any()),
        round_size=len(system.replicas) * (gossip.sites + len(message)), **device_tables(system, devices),
    )  # fmt: skip


def device_tables(system: System, devices: DeviceColumns) -> dict[str, Any]:
    """Return the fields of tables that concern devices and their draws."""
    n, seed, online = system.population, int(system.setting.seed), devices.availability
    return {
        "law": AlwaysOnline() if system.always_online else per_client(n, LAW, online),
        "starts_s": np.array(online.starts_s, np.float64), "ends_s": np.array(online.ends_s, np.float64),
        "dropout": per_client(n, DROPOUT, devices.dropout),
        "slowdown": devices.slowdown.law, "slowdown_a": float(devices.slowdown.a),
        "slowdown_b": float(devices.slowdown.b), "limit_s": float(system.limit_s),
        "drops": bool(system.devices is not None and not system.devices.reliable),
        "always_online": bool(system.always_online), "seed_low": seed & 0xFFFFFFFF, "seed_high": seed >> 32,
    }  # fmt: skip


def per_client(clients: int, dtype: np.dtype[Any], columns: NamedTuple) -> Array:
    """Return a record for each client from columns of the same names, one number or one per client each."""
    out = np.zeros(clients, dtype)
    for name in dtype.names or ():
        out[name] = getattr(columns, name)
    return out


def closing_of(policy: PolicyColumns) -> Closing:
    return policy.closing._replace(a=float(policy.closing.a), b=float(policy.closing.b))


def unselected_s(system: System, sizes: MessageSizes) -> float:
    """Return the longest that an unselected broadcast may take on private links, and a little more; -inf: no time."""
    if not system.has_unselected_flows:
        return -np.inf
    n, bits = system.population, float(sizes.broadcast)
    return float((bits * system.down.loss_factor[:n] / system.down.bandwidth_bps[:n]).max()) * (1 + 1e-6) + 1e-9


# --- Shared links ---------------------------------------------------------------------------------------------------


class RouteNumbers:
    """Different routes by number, each known by its links in ascending order; None: private links."""

    def __init__(self, routes: RouteColumns | None) -> None:
        known: dict[tuple[int, ...], int] = {}
        self.capacities_bps = np.zeros(0) if routes is None else np.asarray(routes.capacities_bps, np.float64)
        self.down = self.up = np.zeros(1, np.int64)
        if routes is not None:
            self.down = _numbers(known, routes.down, routes.down_starts)
            same = routes.up is routes.down and routes.up_starts is routes.down_starts
            self.up = self.down if same else _numbers(known, routes.up, routes.up_starts)
        self.sizes = np.array([len(route) for route in known], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.links = np.array([link for route in known for link in route], np.int64)

    def new_links(self, replicas: int, flows: int) -> Links:
        """Return links without flows, with room for this many."""
        uses = np.bincount(self.links, minlength=len(self.capacities_bps))
        groups = int((self.sizes + 1).sum())  # a route changes its group when one of its links becomes a trunk
        hops, lists = int(((self.sizes + 1) * self.sizes).sum()), 2 * uses + 2
        trunks = np.zeros((replicas, len(uses)), TRUNK)
        trunks["capacity"], trunks["scale"] = self.capacities_bps, scale_of(self.capacities_bps)
        trunks["begin"] = np.cumsum(lists) - lists
        routes = np.zeros((replicas, len(self.sizes)), ROUTE)
        routes["group"] = -1

        def zeros(length: int, dtype: object = np.int64) -> Array:
            return np.zeros((replicas, length), dtype)  # type: ignore[call-overload, no-any-return]

        return Links(
            trunks, routes, zeros(groups, GROUP), zeros(flows, FLOW), zeros(flows), zeros(hops, np.uint32),
            zeros(int(lists.sum()), np.uint32), zeros(hops),
            np.full((replicas, 1 << (4 * groups + 1).bit_length()), -1, np.int64),
            zeros(groups), zeros(groups), zeros(len(uses)), zeros(len(uses), np.float64), zeros(len(uses)),
        )  # fmt: skip


def _numbers(known: dict[tuple[int, ...], int], links: Array, starts: Array) -> Array:
    rows = [tuple(sorted(links[a:b].tolist())) for a, b in pairwise(starts)]
    return np.array([known.setdefault(row, len(known)) for row in rows], np.int64)
