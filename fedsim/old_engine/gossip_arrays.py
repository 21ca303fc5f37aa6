"""Sites that gossip in the columns of the compiled clock (`fedsim.kernels.old_clock.gossip_state`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.exchanges import Gossip
from fedsim.kernels.found import Found
from fedsim.kernels.old_clock.gossip_state import HEADER, MESSAGE, MESSAGE_ROW, MIXED, SITE, SITE_ROW
from fedsim.kernels.old_clock.parts import DeviceArrays, RouteArrays
from fedsim.kernels.old_clock.state import EVENT, NOTE, ROOM, STATE, VISIT
from fedsim.old_engine.clock_arrays import begun, device_columns, interval_columns
from fedsim.old_engine.flow_columns import FlowColumns
from fedsim.old_engine.replica_clock import FIXED, ClockColumns, doubled
from fedsim.old_engine.world import World

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

GROWING = {
    "events": "events", "notes": "notes", "visits": "under_way", "flows": "flows", "nodes": "nodes",
    "starting": "flows", "done": "flows",
}  # fmt: skip
Parts = tuple[DeviceArrays | None, RouteArrays | None]


def gossip_parts(run: Run) -> Parts | None:
    """The scenario's parts in arrays; None if one of them is somebody's own. Of a policy only its patience is asked."""
    world, network = run.world, run.world.network
    if world.setting.backend.name != "cpu" or (network is not None and network.varying):
        return None
    devices = None
    if world.devices is not None:
        devices = world.devices.as_arrays(world.population, world.work_of(np.arange(world.population)))
        if devices is None or not world.devices.timeless:
            return None
    return devices, _routes(world)


def where_gossip_is_compiled() -> Found:
    """Where the compiled loop is found."""
    from fedsim.kernels.cache import find
    from fedsim.kernels.old_clock.gossip_loop import run

    return find(run, np.zeros(1, STATE))


def _routes(world: World) -> RouteArrays | None:
    """The links of every message; its own where no two meet, but for those of one sender: see `clock.OwnLinks`."""
    if world.network is None or world.paths is None:
        return None
    if world.network.contended:
        routes: RouteArrays = world.network.as_arrays()
        return routes
    capacities = world.paths[1].bandwidth_bps
    links, starts = np.arange(len(capacities)), np.arange(len(capacities) + 1)
    return RouteArrays(capacities, links, starts, links, starts)


class GossipArrays:
    """What all replicas' clocks have in common, and how one of them begins."""

    def __init__(self, run: Run, exchange: Gossip, parts: Parts) -> None:
        self._world, self._exchange, (self._devices, routes) = run.world, exchange, parts
        self.sites, self.messages = exchange.sites, len(exchange.receiver)
        self.bits = [run.learner.reply_shape(round).bits for round in (0, 1)]
        self._traced, self._flows = run.trace.kept, FlowColumns(routes)
        self._shared = routes is not None
        patience = run.world.policy.patience()
        assert patience is not None
        self._enough, self._patience = patience
        self._degree = int(exchange.degrees.max(initial=0))
        self._clients = self._client_columns()
        self._intervals = interval_columns(self._devices)
        self._outgoing = np.argsort(exchange.sender, kind="stable")
        self._mixed = self._mixed_columns()

    @property
    def bytes_each(self) -> float:
        """About how much one replica's clock needs."""
        sites = SITE.itemsize + 8 * EVENT.itemsize + 4 * SITE_ROW.itemsize
        messages = MESSAGE.itemsize + VISIT.itemsize + 4 * EVENT.itemsize + 4 * MESSAGE_ROW.itemsize
        return float(self._flows.bytes_each + self.sites * sites + self.messages * messages)

    def begin(self, position: int) -> GossipClock:
        """A replica's clock at time 0."""
        state = begun(self._world, position, self._devices)
        s = state[0]
        s["first_bits"], s["later_bits"] = self.bits
        s["shared"], s["traced"], s["tables"] = self._shared, self._traced, len(self._mixed) // max(1, self.messages)
        s["enough"], s["seconds"], s["degree"] = self._enough, self._patience, self._degree
        s["newest"], s["hopeless"] = -1, np.iinfo(np.int64).max
        room = 8 * self.sites + 4 * self.messages + 8 * self._degree + 128
        sites, messages = np.zeros(self.sites, SITE), np.zeros(self.messages, MESSAGE)
        ends = np.searchsorted(self._exchange.sender[self._outgoing], np.arange(self.sites + 1))
        sites["begin"], sites["end"], sites["latest"] = ends[:-1], ends[1:], -1
        messages["receiver"], messages["sender"] = self._exchange.receiver, self._exchange.sender
        columns = {
            "events": np.zeros(room, EVENT), "visits": np.zeros(self.messages + self._degree + 8, VISIT),
            "notes": np.zeros(room if self._traced else 1, NOTE), "clients": self._clients,
            "intervals": self._intervals, "sites": sites, "messages": messages, "outgoing": self._outgoing,
            "mixed": self._mixed, "headers": np.zeros(4, HEADER), "site_rows": np.zeros(4 * self.sites, SITE_ROW),
            "message_rows": np.zeros(4 * self.messages, MESSAGE_ROW),
        }  # fmt: skip
        return GossipClock(state, columns | self._flows.columns(room))

    def _client_columns(self) -> Array:
        out = device_columns(max(self.sites, self.messages), self.sites, self._devices)
        if self._world.paths is not None:
            ways = out[: self.messages]
            ways["latency_up"], ways["stretch_up"], ways["bandwidth_up"] = self._world.paths[1]
            if self._shared:
                ways["route_up"] = self._flows.up
        return out

    def _mixed_columns(self) -> Array:
        """Which messages each of the mixings uses that are taken in turn; nothing where they are drawn."""
        if self._exchange.drawn:
            return np.zeros(0, MIXED)
        count = 1 if isinstance(self._exchange.mixing, str) else len(self._exchange.mixing)
        out = np.zeros((count, self.messages), MIXED)
        for k in range(count):
            out["it"][k, self._exchange.at(0, 0, k).message] = 1
        return out.ravel()


class GossipClock(ClockColumns):
    """The clock of one replica's sites, and the rounds that are not yet told, from the first one on."""

    def __init__(self, state: Array, columns: Arrays) -> None:
        super().__init__(state, columns, (*FIXED, "notes", "outgoing", "mixed"))

    def run(self, until: int) -> int:
        """Rounds up to number `until`; those closed before are forgotten. Why it stopped there."""
        from fedsim.kernels.old_clock.gossip_loop import run

        self._forget()
        while len(self.columns["headers"]) < until - self.first + 4:
            self._lengthen()
        self.point()
        self.state["until"] = until
        while (status := run(self.state)) == ROOM:
            if self.said("newest") + 2 - self.first > len(self.columns["headers"]):
                self._lengthen()
            self.grow(GROWING, 4 * (self.said("under_way") + 2 * self.said("degree")) + 64)
        return int(status)

    @property
    def first(self) -> int:
        """The first round that is here."""
        return int(self.state["base"][0])

    def made(self) -> tuple[Array, Array, Array]:
        """Of the rounds that are closed: headers, (rounds, sites) and (rounds, messages)."""
        count = int(self.state["round"][0]) - self.first
        sites, messages = (self._by_round(name)[:count] for name in ("site_rows", "message_rows"))
        return self.columns["headers"][:count], sites, messages

    def saved(self) -> Arrays:
        self._forget()
        live = max(1, int(self.state["newest"][0]) + 1 - self.first)
        rows = {"headers": self.columns["headers"][:live].copy()}
        rows |= {name: self._by_round(name)[:live].flatten() for name in ("site_rows", "message_rows")}
        return super().saved() | rows

    def _forget(self) -> None:
        """What is left are the rounds that some site has not closed."""
        round, s = int(self.state["round"][0]), self.state
        done, live = round - self.first, max(0, int(s["newest"][0]) + 1 - round)
        for rows in (self.columns["headers"][:, None], self._by_round("site_rows"), self._by_round("message_rows")):
            rows[:live] = rows[done : done + live].copy()
        s["base"], s["notes"] = round, 0

    def _by_round(self, name: str) -> Array:
        return self.columns[name].reshape(len(self.columns["headers"]), -1)

    def _lengthen(self) -> None:
        for name in ("headers", "site_rows", "message_rows"):
            self.columns[name] = doubled(self.columns[name])
