"""A scenario in the columns of the compiled clock (`kernels.old_clock`): some for all replicas, some for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.kernels.found import Found
from fedsim.kernels.old_clock.parts import ALWAYS, FOLDS, DeviceArrays, PolicyArrays, RouteArrays
from fedsim.kernels.old_clock.state import (
    CLIENT,
    ENDED,
    EVENT,
    INTERVAL,
    NOTE,
    PLACE,
    ROUND,
    STATE,
    VISIT,
)  # fmt: skip
from fedsim.old_engine.flow_columns import FlowColumns
from fedsim.old_engine.replica_clock import ReplicaClock
from fedsim.old_engine.world import World

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

LARGEST = 2e9  # bytes of all replicas' clocks
Parts = tuple[PolicyArrays, DeviceArrays | None, RouteArrays | None]


def parts_of(run: Run) -> Parts | None:
    """The scenario's parts in arrays; None if one of them is somebody's own, or a reply's length is not known."""
    world, network = run.world, run.world.network
    policy = world.policy.as_arrays()
    if policy is None or world.policy.history or world.setting.backend.name != "cpu":
        return None
    if network is not None and network.varying:
        return None
    if any(run.learner.reply_shape(round).bits is None for round in (0, 1)):
        return None
    devices = routes = None
    if world.devices is not None:
        devices = world.devices.as_arrays(world.population, world.work_of(np.arange(world.population)))
        if devices is None:
            return None
    if network is not None and network.contended:
        routes = network.as_arrays()
        if routes is None:
            return None
    elif world.copies and world.paths is not None:
        routes = _own_links(world)
    return policy, devices, routes


def where_compiled() -> Found:
    """Where the compiled loop is found."""
    from fedsim.kernels.cache import find
    from fedsim.kernels.old_clock.loop import run

    return find(run, np.zeros(1, STATE))


def _own_links(world: World) -> RouteArrays:
    """Everybody's own links as a network whose flows can meet: see `clock.OwnLinks`."""
    assert world.paths is not None
    n = len(world.paths[0].bandwidth_bps)
    capacities = np.concatenate([way.bandwidth_bps for way in world.paths])
    return RouteArrays(capacities, np.arange(n), np.arange(n + 1), np.arange(n, 2 * n), np.arange(n + 1))


class ClockArrays:
    """What all replicas' clocks have in common, and how one of them begins."""

    def __init__(self, run: Run, parts: Parts) -> None:
        self.world, (self.policy, self.devices, self.routes) = run.world, parts
        learner, world = run.learner, run.world
        self.down_bits = learner.down_bits(learner.broadcast(np.arange(1)))
        self.bits = [learner.reply_shape(round).bits for round in (0, 1)]
        self.remembers, self.traced = bool(learner.memory), run.trace.kept
        self.asynchronous = self.policy.closes == FOLDS
        asked = world.population if self.policy.draws == 0 else min(self.policy.draws, world.population)
        self.slots = max(1, asked)
        self.flows = FlowColumns(self.routes)
        self.clients = self._client_columns()
        self.intervals = interval_columns(self.devices)
        always = self.devices is None or self.devices.presence.kind == ALWAYS
        self._followed = self.asynchronous or not always

    @property
    def bytes_each(self) -> float:
        """About how much one replica's clock needs."""
        places = PLACE.itemsize * self.world.population if self._followed else 0
        return float(self.flows.bytes_each + places + self.slots * (VISIT.itemsize + 8 * EVENT.itemsize))

    def begin(self, position: int) -> ReplicaClock:
        """A replica's clock at time 0."""
        state, columns = self.begun(position)
        return ReplicaClock(state, columns | self.flows.columns(8 * self.slots + 128))

    def begun(self, position: int) -> tuple[Array, Arrays]:
        """A replica's state and columns at time 0, without flows."""
        world, policy, devices = self.world, self.policy, self.devices
        state = begun(world, position, devices)
        s = state[0]
        s["selects"], s["draws"], s["closes"] = policy.selects, policy.draws, policy.closes
        s["replies"], s["seconds"], s["at_least"] = policy.replies, policy.seconds, world.policy.at_least or 0
        s["down_bits"], (s["first_bits"], s["later_bits"]) = self.down_bits, self.bits
        s["shared"], s["copies"], s["reaches"] = self.routes is not None, world.copies, world.reaches_all
        s["remembers"], s["asynchronous"], s["traced"] = self.remembers, self.asynchronous, self.traced
        s["places"] = self.slots if policy.draws else world.population
        return state, self._own_columns()

    def _own_columns(self) -> Arrays:
        slots, population = self.slots, self.world.population
        places = np.zeros(population if self._followed else 1, PLACE)
        places["slot"], places["heard"], places["until"] = -1, -1, np.nan
        drawn = max(population, self.policy.draws)
        visits = np.zeros(slots, VISIT)
        visits["serial"] = -1
        return {
            "events": np.zeros(8 * slots + 128, EVENT), "visits": visits, "clients": self.clients, "places": places,
            "ended": np.zeros(2 * slots + 64, ENDED), "rounds": np.zeros(8, ROUND),
            "notes": np.zeros(8 * slots + 128 if self.traced else 1, NOTE), "intervals": self.intervals,
            "chosen": np.zeros(drawn, np.int64), "times": np.zeros(drawn, np.int64),
            "waiting": np.zeros(2 * population if self.asynchronous else 1, np.int64),
        }  # fmt: skip

    # --- Columns ------------------------------------------------------------------------------------------

    def _client_columns(self) -> Array:
        """A row per way: of all clients, and, behind them, of edges to their cloud."""
        world = self.world
        ways = world.population + (world.sites.count if world.sites.every else 0)
        out = device_columns(ways, world.population, self.devices)
        if world.paths is not None:
            for way, name in zip(world.paths, ("down", "up"), strict=True):
                out[f"latency_{name}"], out[f"stretch_{name}"], out[f"bandwidth_{name}"] = way
        out["route_down"], out["route_up"] = self.flows.down, self.flows.up
        clients = out[: world.population]
        clients["coin"], clients["weight"] = self.policy.coin, world.sites.share(world.weights)
        return out


def begun(world: World, position: int, devices: DeviceArrays | None) -> Array:
    """The state of a replica's clock at time 0, as far as all clocks have it in common."""
    state = np.zeros(1, STATE)
    s, seed = state[0], int(world.setting.seed)
    s["low"], s["high"], s["replica"] = seed & 0xFFFFFFFF, seed >> 32, world.replicas[position]
    s["population"], s["limit"] = world.population, world.limit_s
    if devices is not None and world.devices is not None:
        s["slowdown"], s["slow_a"], s["slow_b"] = devices.slowdown
        s["timed"], s["drops"], s["presence"] = 1, not world.devices.reliable, devices.presence.kind
    s["free"] = s["flow_free"] = s["node_free"] = -1
    s["flow_now"] = -np.inf
    return state


def device_columns(rows: int, clients: int, devices: DeviceArrays | None) -> Array:
    """So many rows of `clients`, whose ways are ideal; the first of them are these clients' devices."""
    out = np.zeros(rows, CLIENT)
    out["stretch_down"] = out["stretch_up"] = 1.0
    out["bandwidth_down"] = out["bandwidth_up"] = np.inf
    if devices is not None:
        own, on = out[:clients], devices.presence
        own["work_s"], own["wake_s"] = devices.work_s, devices.wake_s
        own["before"], own["compute"], own["upload"] = devices.dropout
        own["presence_a"], own["presence_b"], own["period"] = on.a, on.b, on.period_s
        own["begin"], own["end"] = on.begin, on.end
    return out


def interval_columns(devices: DeviceArrays | None) -> Array:
    """All clients' spells, where they are given as such."""
    out = np.zeros(1 if devices is None else len(devices.presence.starts), INTERVAL)
    if devices is not None:
        out["start"], out["end"] = devices.presence.starts, devices.presence.ends
    return out
