"""Edges under a cloud in the columns of the compiled clock (`fedsim.kernels.old_clock.tiers_state`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.kernels.found import Found
from fedsim.kernels.old_clock.state import ENDED, EVENT, NOTE, ROOM, ROUND, STATE, VISIT
from fedsim.kernels.old_clock.tiers_state import EDGE, HEADER
from fedsim.old_engine.clock_arrays import ClockArrays, Parts
from fedsim.old_engine.replica_clock import FIXED, GROWING, ClockColumns, doubled

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run

HERE = {name: used for name, used in GROWING.items() if name != "rounds"}


def where_tiers_are_compiled() -> Found:
    """Where the compiled loop is found."""
    from fedsim.kernels.cache import find
    from fedsim.kernels.old_clock.tiers_loop import run

    return find(run, np.zeros(1, STATE))


class TiersArrays:
    """What all replicas' clocks have in common, and how one of them begins."""

    def __init__(self, run: Run, parts: Parts) -> None:
        self._star, sites = ClockArrays(run, parts), run.world.sites
        self.edges, self.every, self.between_bits = sites.count, sites.every, run.learner.backhaul_bits()
        self.bits, self.down_bits, self.traced = self._star.bits, self._star.down_bits, self._star.traced
        self._clients, self._copied = run.world.population, run.world.reaches_all
        asked = self._star.policy.draws * self.edges
        self.slots = min(asked, self._clients) if asked else self._clients  # visits of a round, at the most
        self._site_of, self._members = sites.site_of.astype(np.int64), np.concatenate(sites.members)
        self._ends = np.cumsum([len(members) for members in sites.members])

    @property
    def bytes_each(self) -> float:
        """About how much one replica's clock needs."""
        return self._star.bytes_each + (self._clients + self.edges) * (VISIT.itemsize + 8 * EVENT.itemsize)

    def begin(self, position: int) -> TiersClock:
        """A replica's clock at time 0."""
        star, slots = self._star, self._clients + self.edges
        state, columns = star.begun(position)
        s, edges, room = state[0], np.zeros(self.edges, EDGE), 10 * slots + 128
        s["every"], (s["to_cloud"], s["from_cloud"]) = self.every, self.between_bits
        s["newest"], s["hopeless"] = -1, np.iinfo(np.int64).max
        edges["end"] = self._ends
        edges["begin"][1:] = self._ends[:-1]
        visits = np.zeros(slots, VISIT)
        visits["serial"] = -1
        columns |= star.flows.columns(room) | {
            "events": np.zeros(room, EVENT), "visits": visits, "ended": np.zeros(2 * slots, ENDED),
            "notes": np.zeros(room if self.traced else 1, NOTE), "edges": edges, "members": self._members,
            "asked": np.zeros(self._clients, np.int64), "sites_of": self._site_of, "headers": np.zeros(4, HEADER),
        }  # fmt: skip
        return TiersClock(state, columns, self._clients if self._copied else 0)


class TiersClock(ClockColumns):
    """The clock of one replica's edges; visits of rounds that are not closed everywhere wait in `ended`."""

    def __init__(self, state: Array, columns: Arrays, copied: int) -> None:
        super().__init__(state, columns, (*FIXED, "notes", "rounds", "members", "sites_of"))
        self._copied = copied  # clients that get a copy of the broadcast, asked or not

    def run(self, until: int) -> int:
        """Rounds up to number `until`; those closed before are forgotten. Why it stopped there."""
        from fedsim.kernels.old_clock.tiers_loop import run

        self._forget()
        self.state["until"] = until
        slots, population = len(self.columns["visits"]), self.said("population")
        while (status := run(self.state)) == ROOM:
            if self.said("newest") + 2 - self.said("base") > len(self.columns["headers"]):
                self.columns["headers"] = doubled(self.columns["headers"])
            self.grow(HERE, 4 * slots + 64 + self.said("coming") + self.said("copies") * population)
        return int(status)

    def headers(self) -> Array:
        """Of the rounds that are closed."""
        return self.columns["headers"][: int(self.state["first"][0] - self.state["base"][0])]

    def made(self) -> tuple[Array, Array]:
        """The rounds that are closed, and their visits by round and client."""
        headers, visits = self.headers(), self.written("ended", "rows")
        rounds = np.zeros(len(headers), ROUND)
        for name in ("opened", "closed", "selected"):
            rounds[name] = headers[name]
        rounds["end"] = np.cumsum(headers["selected"])
        rounds["copied"] = self._copied - headers["selected"] if self._copied else 0
        visits = visits[visits["version"] < self.state["first"][0]]
        return rounds, visits[np.lexsort((visits["client"], visits["version"]))]

    def saved(self) -> Arrays:
        self._forget()
        return super().saved()

    def _forget(self) -> None:
        """What is left are the rounds that some edge has not closed."""
        s, (headers, visits) = self.state, (self.columns["headers"], self.written("ended", "rows"))
        done, live = int(s["first"][0] - s["base"][0]), max(0, int(s["newest"][0] + 1 - s["first"][0]))
        headers[:live] = headers[done : done + live].copy()
        waiting = visits[visits["version"] >= s["first"][0]]
        visits[: len(waiting)] = waiting
        s["base"], s["rows"], s["notes"] = s["first"], len(waiting), 0
        self.point()
