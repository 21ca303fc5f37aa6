"""The reference clock: SimPy processes that read like the semantics. It supports every part, users' own included.

links    exact instants; private and shared links
visits   one visit as a process
rounds   the rounds of sites: a star, or edges under a cloud
gossip   the rounds of sites without a server
asynchronous   clients that work continuously, and a server that aggregates every K replies
on_demand      visits that a caller starts one by one, for Flower apps
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock import Learning
from fedsim.engine.clock.gossip_rows import backhaul_of, messages_of
from fedsim.engine.clock.simpy.asynchronous import AsynchronousReplica
from fedsim.engine.clock.simpy.gossip import GossipReplica, columns_of
from fedsim.engine.clock.simpy.rounds import Replica, Row
from fedsim.engine.clock.simpy.visits import Visit
from fedsim.engine.rounds import DTYPES, CloudTimes, RoundBlock, Starts, VisitOutcomes, offsets_of
from fedsim.engine.system import MessageSizes, System
from fedsim.rules.closing import RUNNING

COLUMNS = attrgetter(*VisitOutcomes._fields)


class SimpyClock:
    """Blocks of rounds from SimPy processes. Resume replays the timeline with the saved answers."""

    name, path = "simpy", "loop"

    def __init__(self, system: System, sizes: MessageSizes, learning: Learning, saves: bool = True) -> None:
        self.system, self.sizes, self.answers, self.rounds = system, sizes, Answers(learning, saves), 0
        positions = range(len(system.replicas))
        kind = AsynchronousReplica if system.policy.asynchronous else Replica
        kind = kind if system.gossip is None else GossipReplica
        self.replicas = [kind(system, sizes, self.answers, position) for position in positions]

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        first, self.rounds = self.rounds + 1, self.rounds + rounds
        shape = len(active), rounds
        rows: list[list[Row]] = [[] for _ in active]
        stopped_by = np.zeros(len(active), np.int64)
        for round in range(first, first + rounds):
            going = [self.replicas[p] for r, p in enumerate(active.tolist()) if stopped_by[r] == RUNNING]
            await self.run_to(going, round)
            for r, position in enumerate(active.tolist()):
                if stopped_by[r] == RUNNING:
                    row = self.replicas[position].rows.pop(round)
                    stopped_by[r] = row.closed.value
                    rows[r] += [row] if stopped_by[r] == RUNNING else []
        return self.block(first, active, shape, stopped_by, rows)

    async def run_to(self, replicas: list[Replica], round: int) -> None:
        """Run replicas until they have closed a round; their questions are answered in batches."""
        while waiting := [replica for replica in replicas if not replica.run_to(round)]:
            asked = [(replica, *question) for replica in waiting for question in replica.questions]
            position = np.array([replica.position for replica, _, visits in asked for _ in visits], np.int64)
            client, number = (
                np.array([getattr(visit, name) for _, _, visits in asked for visit in visits], np.int64)
                for name in ("client", "visit")
            )
            bits = iter((await self.answers.bits(position, client, number, round)).tolist())
            for replica, answer, visits in asked:
                answer.succeed([next(bits) for _ in visits])
                replica.questions.clear()

    def block(
        self, first: int, active: Array, shape: tuple[int, int], stopped_by: Array, rows: list[list[Row]]
    ) -> RoundBlock:  # fmt: skip
        """Return the rows as columns of a block."""

        def column(name: str, dtype: type, missing: float = 0) -> Array:
            out: Array = np.full(shape, missing, dtype)
            for r, of_replica in enumerate(rows):
                out[r, : len(of_replica)] = [getattr(row, name) for row in of_replica]
            return out

        lengths, counts, sites = np.array([len(part) for part in rows]), np.zeros(shape, np.int64), self.system.sites
        visits: list[Visit] = []
        starts: list[Visit] = []
        for r, of_replica in enumerate(rows):
            for i, row in enumerate(of_replica):
                counts[r, i] = sum(map(len, row.visits))
                visits += [visit for part in row.visits for visit in part]
                starts += row.starts
        columns = list(zip(*map(COLUMNS, visits), strict=True)) or [()] * len(DTYPES)
        cloud = None
        if sites.every:
            times = np.full((len(CloudTimes._fields), *shape, sites.count), np.nan)
            for r, of_replica in enumerate(rows):
                for i, row in enumerate(of_replica):
                    times[:, r, i] = row.times
            cloud = CloudTimes(*times)
        selected, begun, gossip = column("selected", int), None, None
        ended = VisitOutcomes(*(np.array(values, dtype) for values, dtype in zip(columns, DTYPES, strict=True)))
        if self.system.gossip is not None:
            noted = columns_of(self.system.gossip, shape, rows)
            gossip = messages_of(self.system, first, noted)
            counted = np.arange(shape[1]) < lengths[:, None]
            ended = ended._replace(backhaul_bits=backhaul_of(self.system.gossip, noted)[counted].ravel())
        if self.system.policy.asynchronous:
            client, number, started_s = (
                np.array([getattr(visit, name) for visit in starts], dtype)
                for name, dtype in (("client", "i4"), ("visit", "i4"), ("started_s", "f8"))
            )
            begun = Starts(client, number, started_s, offsets_of(selected))
        versions = np.tile(first + np.arange(shape[1]), (len(active), 1))
        for r, of_replica in enumerate(rows):
            versions[r, : len(of_replica)] = [row.oldest_version for row in of_replica]
        return RoundBlock(
            first, active, lengths, stopped_by, column("opened_s", float, np.inf), column("closed_s", float, -np.inf),
            selected, column("unselected_bits", int), np.zeros(shape, int) if cloud is None else cloud.bits(self.sizes),
            versions, offsets_of(counts), ended, cloud, gossip, begun,
        )  # fmt: skip

    def state(self) -> Arrays:
        return self.answers.state()

    async def resume(self, rounds: int, active: Array, saved: Arrays) -> None:
        """Simulate the rounds again, without learning, from the saved answers."""
        self.answers.replay(saved)
        if rounds:
            await self.next(active, rounds)
        self.answers.live()

    async def close(self) -> None:
        """Do nothing."""


class Answers:
    """Answers of the learner, in order. They are stored for checkpoints only, and replayed from one."""

    def __init__(self, learning: Learning, saves: bool) -> None:
        self.learning, self.saves = learning, saves
        self.answers: dict[str, list[tuple[int, float]]] = {"bits": [], "losses": []}  # (replica, value)
        self.saved: dict[str, dict[int, Iterator[float]]] | None = None

    async def bits(self, position: Array, client: Array, visit: Array, round: int) -> Array:
        if self.saved is not None:
            return np.array([next(self.saved["bits"][p]) for p in position.tolist()], np.int64)
        answer = await self.learning.bits(position, client, visit, round)
        if self.saves:
            self.answers["bits"] += zip(position.tolist(), answer.tolist(), strict=True)
        return answer

    def observed(self, position: int, clients: Array) -> Array:
        if self.saved is not None:
            return np.array([next(self.saved["losses"][position]) for _ in clients])
        answer = self.learning.observed(position, clients)
        if self.saves:
            self.answers["losses"] += [(position, value) for value in answer.tolist()]
        return answer

    def state(self) -> Arrays:
        out: Arrays = {}
        for name, pairs in self.answers.items():
            if pairs:
                out[f"{name}.position"] = np.array([position for position, _ in pairs], np.int32)
                out[f"{name}.value"] = np.array([value for _, value in pairs])
        return out

    def replay(self, saved: Arrays) -> None:
        """Answer from what was saved, until `live`."""
        self.saved = {}
        for name, answers in self.answers.items():
            if f"{name}.value" in saved:
                answers += zip(saved[f"{name}.position"].tolist(), saved[f"{name}.value"].tolist(), strict=True)
            streams: dict[int, list[float]] = {}
            for position, value in answers:
                streams.setdefault(position, []).append(value)
            self.saved[name] = {position: iter(values) for position, values in streams.items()}

    def live(self) -> None:
        self.saved = None
