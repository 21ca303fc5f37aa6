"""A scenario in the columns of the compiled clock (`fedsim.kernels.clock`): some for all replicas, some for each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.world import World
from fedsim.kernels.clock.parts import ALWAYS, FOLDS, DeviceArrays, PolicyArrays, RouteArrays
from fedsim.kernels.clock.state import (
    CLIENT,
    COLUMNS,
    ENDED,
    EVENT,
    FINISH,
    FLOW,
    INTERVAL,
    MORE,
    NODE,
    NOTE,
    PLACE,
    ROOM,
    ROUND,
    ROUTE,
    STATE,
    USER,
    VISIT,
)  # fmt: skip
from fedsim.kernels.found import Found
from fedsim.kernels.sharing_columns import BUNDLE, LINK
from fedsim.network.route_bundles import scale_of

if TYPE_CHECKING:
    from fedsim.engine.run import Run

GROWING = {  # columns that a round may fill, and what says how far they are filled
    "events": "events", "ended": "rows", "rounds": "rounds", "notes": "notes",
    "flows": "flows", "nodes": "nodes", "starting": "flows", "done": "flows",
}  # fmt: skip
WRITTEN = ("ended", "rounds", "notes")  # what is read off a clock; it does not look at them again
FIXED = ("clients", "intervals", "route_links")  # the scenario's
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
    from fedsim.kernels.clock.loop import run

    return find(run, np.zeros(1, STATE))


def _own_links(world: World) -> RouteArrays:
    """Everybody's own links as a network whose flows can meet: see `clock.OwnLinks`."""
    assert world.paths is not None
    n = world.population
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
        self.clients = self._client_columns()
        presence = self.devices.presence if self.devices is not None else None
        self.intervals = np.zeros(1 if presence is None else len(presence.starts), INTERVAL)
        if presence is not None:
            self.intervals["start"], self.intervals["end"] = presence.starts, presence.ends
        self._followed = self.asynchronous or (presence is not None and presence.kind != ALWAYS)
        self._route_columns()

    @property
    def bytes_each(self) -> float:
        """About how much one replica's clock needs."""
        links = 0 if self.routes is None else 400 * len(self.route_links) + 300 * len(self.routes_of)
        places = PLACE.itemsize * self.world.population if self._followed else 0
        return float(links + places + self.slots * (VISIT.itemsize + 8 * EVENT.itemsize))

    def begin(self, position: int) -> ReplicaClock:
        """A replica's clock at time 0."""
        world, policy, devices = self.world, self.policy, self.devices
        state = np.zeros(1, STATE)
        s = state[0]
        seed = int(world.setting.seed)
        s["low"], s["high"], s["replica"] = seed & 0xFFFFFFFF, seed >> 32, world.replicas[position]
        s["population"], s["limit"] = world.population, world.limit_s
        s["selects"], s["draws"], s["closes"] = policy.selects, policy.draws, policy.closes
        s["replies"], s["seconds"], s["at_least"] = policy.replies, policy.seconds, world.policy.at_least or 0
        s["down_bits"], (s["first_bits"], s["later_bits"]) = self.down_bits, self.bits
        if devices is not None and world.devices is not None:
            s["slowdown"], s["slow_a"], s["slow_b"] = devices.slowdown
            s["timed"], s["drops"], s["presence"] = 1, not world.devices.reliable, devices.presence.kind
        s["shared"], s["copies"], s["reaches"] = self.routes is not None, world.copies, world.reaches_all
        s["remembers"], s["asynchronous"], s["traced"] = self.remembers, self.asynchronous, self.traced
        s["places"] = self.slots if policy.draws else world.population
        s["free"] = s["flow_free"] = s["node_free"] = -1
        s["flow_now"] = -np.inf
        columns = self._own_columns() | self._net_columns()
        return ReplicaClock(state, columns)

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
        world, devices = self.world, self.devices
        out = np.zeros(world.population, CLIENT)
        out["stretch_down"] = out["stretch_up"] = 1.0
        out["bandwidth_down"] = out["bandwidth_up"] = np.inf
        if world.paths is not None:
            for way, name in zip(world.paths, ("down", "up"), strict=True):
                out[f"latency_{name}"], out[f"stretch_{name}"], out[f"bandwidth_{name}"] = way
        out["coin"], out["weight"] = self.policy.coin, world.weights
        if devices is not None:
            out["work_s"], out["wake_s"] = devices.work_s, devices.wake_s
            out["before"], out["compute"], out["upload"] = devices.dropout
            on = devices.presence
            out["presence_a"], out["presence_b"], out["period"] = on.a, on.b, on.period_s
            out["begin"], out["end"] = on.begin, on.end
        return out

    def _route_columns(self) -> None:
        """Different routes by number; a route is known by its links, in order."""
        known: dict[tuple[int, ...], int] = {}
        if self.routes is not None:
            r = self.routes
            for name, links, starts in (("down", r.down, r.down_starts), ("up", r.up, r.up_starts)):
                rows: list[tuple[int, ...]] = [tuple(sorted(links[a:b].tolist())) for a, b in pairwise(starts)]
                self.clients[f"route_{name}"] = [known.setdefault(row, len(known)) for row in rows]
        self.routes_of = list(known)
        self.route_links = np.array([link for route in known for link in route], np.int64)
        count = 0 if self.routes is None else len(self.routes.capacities_bps)
        self.uses = np.bincount(self.route_links, minlength=count)

    def _net_columns(self) -> Arrays:
        slots, routes = self.slots, np.zeros(len(self.routes_of), ROUTE)
        sizes = np.array([len(route) for route in self.routes_of], np.int64)
        routes["end"] = np.cumsum(sizes)
        routes["begin"], routes["bundle"] = routes["end"] - sizes, -1
        count = 0 if self.routes is None else len(self.routes.capacities_bps)
        links, users = np.zeros(count, LINK), np.zeros(count, USER)
        if self.routes is not None:
            links["capacity"], links["scale"] = self.routes.capacities_bps, scale_of(self.routes.capacities_bps)
            links["begin"] = np.concatenate([[0], np.cumsum(2 * self.uses + 2)[:-1]])
        most = int((sizes + 1).sum())  # a route changes its bundle when one of its links becomes a trunk
        hops = int(((sizes + 1) * sizes).sum())
        flows = 8 * slots + 128 if self.routes is not None else 0
        numbers = {"privates": hops, "starting": flows, "dirty": most, "group": count, "due": most, "done": flows}
        return {
            "links": links, "users": users, "routes": routes, "route_links": self.route_links,
            "bundles": np.zeros(most, BUNDLE), "more": np.zeros(most, MORE),
            "finishes": np.zeros(4 * most + 64, FINISH),
            "flows": np.zeros(flows, FLOW), "nodes": np.zeros(flows, NODE),
            "table": np.full(1 << (4 * most + 1).bit_length(), -1, np.int64),
            "hops": np.zeros(hops, np.uint32), "lists": np.zeros(int((2 * self.uses + 2).sum()), np.uint32),
            **{name: np.zeros(size, np.int64) for name, size in numbers.items()},
        }  # fmt: skip


class ReplicaClock:
    """One replica's columns, and the state that says where they are."""

    def __init__(self, state: Array, columns: Arrays) -> None:
        self.state, self.columns = state, columns
        self._point()

    def run(self, until: int) -> int:
        """Rounds up to number `until`; what was written before is forgotten. Why it stopped there."""
        from fedsim.kernels.clock.loop import run

        ahead = until - int(self.said("round"))
        for name, size in (("rounds", ahead + 1), ("ended", (ahead + 1) * len(self.columns["visits"]) + 2)):
            if len(self.columns[name]) < size:
                self.columns[name] = np.zeros(size, self.columns[name].dtype)
        self._point()
        self.state["until"] = until
        for name in ("rows", "rounds", "notes"):
            self.state[name] = 0
        while (status := run(self.state)) == ROOM:
            self._grow()
        return int(status)

    def saved(self) -> Arrays:
        """All that a clock goes on from."""
        own = {name: a for name, a in self.columns.items() if name not in WRITTEN + FIXED}
        return {name: a.copy() for name, a in (own | {"state": self.state}).items()}

    def restore(self, saved: Arrays) -> bool:
        """Go on from there; False where clocks were laid out in another way."""
        mine = self.columns | {"state": self.state}
        if any(name not in mine or mine[name].dtype != a.dtype for name, a in saved.items()):
            return False
        self.columns |= {name: a.copy() for name, a in saved.items() if name != "state"}
        self.state = saved["state"].copy()
        self._point()
        return True

    def written(self, column: str, count: str) -> Array:
        """What was written of a column."""
        return self.columns[column][: int(self.state[count][0])]

    def said(self, name: str) -> float:
        """A number of its state."""
        return float(self.state[name][0])

    def _grow(self) -> None:
        """Twice the room wherever what may happen next might not fit."""
        need = (
            4 * len(self.columns["visits"]) + 64 + self.said("coming") + self.said("copies") * self.said("population")
        )
        for name, used in GROWING.items():
            if len(self.columns[name]) < 2 * (self.said(used) + need):
                self.columns[name] = _doubled(self.columns[name])
        self._point()

    def _point(self) -> None:
        for name in COLUMNS:
            column = self.columns[name]
            self.state[f"at_{name}"], self.state[f"room_{name}"] = column.ctypes.data, len(column)


def _doubled(a: Array) -> Array:
    return np.concatenate([a, np.zeros_like(a)])
