"""The compiled clock as a driver: where every part of a scenario is plain numbers, time runs ahead of the learning.

Which replies arrive, and when, is then a function of the seed alone. Many rounds are made at a go, a replica a task on
the runtime's threads, and handed out one by one, or as a stretch, where nothing is computed or the algorithm takes many
rounds at a go. What the compiled loop cannot finish (a round that never closes) is left to the SimPy drivers, which say
why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock.choose import FORCED
from fedsim.old_engine import stretches
from fedsim.old_engine.asynchronous import Asynchronous, rebased
from fedsim.old_engine.clock_arrays import LARGEST, ClockArrays, parts_of, where_compiled
from fedsim.old_engine.clock_choice import expected_visits, is_worth_it, saved_by_compiled
from fedsim.old_engine.clocks_ahead import ClocksAhead
from fedsim.old_engine.compiled_rounds import CompiledRounds
from fedsim.old_engine.events import Events
from fedsim.old_engine.replica_clock import ReplicaClock
from fedsim.old_engine.round import Round, Stretch, nobody
from fedsim.runtime.jobs import Batch, Reply

if TYPE_CHECKING:
    from fedsim.old_engine.run import Run


def compiled(run: Run) -> Compiled | None:
    """The driver, where it serves and is worth it (`clock_choice`)."""
    wanted = FORCED.get()
    if wanted is None and run.checkpoints.saved is not None:
        wanted = saved_by_compiled(run.checkpoints.saved.state)
    parts = None if wanted is False else parts_of(run)
    if parts is None or (run.world.policy.asynchronous and run.learner.session.elsewhere and not run.world.skip):
        return None  # where others compute, jobs are sent while the clock runs
    arrays = ClockArrays(run, parts)
    if arrays.bytes_each * len(run.world.replicas) > LARGEST:
        return None
    return Compiled(run, arrays) if wanted or _worth_it(run, arrays) else None


def _worth_it(run: Run, arrays: ClockArrays) -> bool:
    each = arrays.policy.replies if arrays.asynchronous else arrays.slots
    visits = expected_visits(
        run.world.budget, each, len(run.world.replicas), int(arrays.bits[1] or 0), arrays.down_bits
    )
    kind = "shared" if arrays.routes is not None else "asynchronous" if arrays.asynchronous else "alone"
    return is_worth_it(visits, kind, where_compiled)


class Compiled:
    """A `Driver`."""

    def __init__(self, run: Run, arrays: ClockArrays) -> None:
        self._run, self._world, self._learner, self._arrays = run, run.world, run.learner, arrays
        self.path = "compiled, asynchronous" if arrays.asynchronous else "compiled"
        self._clocks: ClocksAhead[ReplicaClock] = ClocksAhead(run, arrays.begin, arrays.bytes_each)
        self._ahead: CompiledRounds | None = None
        self._reference: Events | Asynchronous | None = None
        self._message: Arrays = {}
        self._singly_until = 0
        self._many = (
            stretches.learns_many(run)
            and stretches.all_answer(run.world)
            and not (arrays.asynchronous or run.world.reports_loss)
        )
        self._started: dict[int, tuple[Array, Arrays]] = {}  # by version: its replicas, and what was sent to them
        self._under_way: dict[int, int] = {}  # by version: visits that have not ended
        self._visit = np.zeros(0, np.int64)  # numbers of the visits of the last round

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        if number:
            self._clocks.resume(number, active, saved)
            self._started = started_from(saved)
            self._under_way = dict.fromkeys(self._started, 2**62)  # nobody has counted them: kept to the end

    def state(self, active: Array) -> Arrays:
        """The clocks, and what the visits in flight started from."""
        if self._reference is not None:
            return self._reference.state(active)
        out = dict(self._clocks.before)
        for version, (replicas, message) in self._started.items():
            own = message | {"replicas": replicas}
            out |= {f"message.{version}.{name}": a for name, a in own.items()}
        return out

    async def next(self, number: int, active: Array) -> Round | Stretch:
        if self._reference is not None:
            return await self._reference.next(number, active)
        if self._ahead is None or not self._ahead.has(number, active):
            status, clocks = self._clocks.more(number, active, self._arrays.slots)
            self._ahead = CompiledRounds(number, active, clocks, status, self._arrays.down_bits)
        ahead = self._ahead
        gone, referred = ahead.over(number, active)
        if len(referred):
            return await self._refer(number, active)
        if not len(gone) and number >= self._singly_until:
            count = self._alike(number, active, ahead.common - (number - ahead.first))
            if count > 1:
                return ahead.stretch(number, active, count, learnt=self._many)
        late = np.array([self._clocks.of(i).said("now") > self._world.limit_s for i in gone], bool)
        stopped = (("seconds", gone[late]), ("no clients", gone[~late]))
        going = active[~np.isin(active, gone)]
        self._message = self._learner.broadcast(active)
        if not len(going):
            return nobody(number, stopped)
        self._trace(number, 1, going)
        round, self._visit = ahead.round(number, going, stopped)
        if self._arrays.asynchronous and not self._world.skip:
            self._keep(number, active, round)
        else:
            self._message = {name: m[np.isin(active, going)] for name, m in self._message.items()}
        return round

    async def replies(self, round: Round) -> Reply:
        if self._reference is not None:
            return await self._reference.replies(round)
        who = round.arrived
        if not self._arrays.asynchronous:
            return await self._learner.replies(round.active, round.number, who, self._message, round.rows[who.row])
        if self._world.skip:
            return Reply({}, np.empty(0, np.int64), {})
        return await self._folded(round)

    def report_losses(self, round: Round, losses: Array) -> None:
        if self._reference is not None:
            self._reference.report_losses(round, losses)

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        if count:
            self._trace(stretch.number, count, stretch.active)
        else:
            self._singly_until = stretch.number + stretch.count

    async def close(self) -> None:
        if self._reference is not None:
            await self._reference.close()

    # --- The clock ----------------------------------------------------------------------------------------

    def _trace(self, number: int, count: int, active: Array) -> None:
        if self._run.trace.kept:
            assert self._ahead is not None
            self._run.trace.extend(self._ahead.trace(number, count, active, self._world.replicas))

    async def _refer(self, number: int, active: Array) -> Round:
        """From here on by SimPy, which knows how to say what is wrong."""
        kind = Asynchronous if self._arrays.asynchronous else Events
        self._reference = kind(self._run)
        self._reference.resume(number, active, {})
        self.path = f"compiled, then {kind.path}"
        return await self._reference.next(number, active)

    def _alike(self, number: int, active: Array, most: int) -> int:
        """How many of so many rounds may be taken at a go."""
        if self._many:
            return min(most, stretches.alike(self._run, number, active))
        return self._clocks.until(number, most) if self._world.skip else 1

    # --- Folds ------------------------------------------------------------------------------------------------

    def _keep(self, number: int, active: Array, round: Round) -> None:
        """Remember what this version's visits start from, and forget what nobody is under way with."""
        self._started[number] = active, self._message
        self._under_way[number] = int(round.columns["selected"].sum())
        ended, count = np.unique(round.started, return_counts=True)
        for version, n in zip(ended.tolist(), count.tolist(), strict=True):
            self._under_way[version] -= n

    async def _folded(self, round: Round) -> Reply:
        """The replies that arrived, as if their clients had started from the current version."""
        who, version = round.arrived, np.asarray(round.started)[round.visits.arrived]
        position = round.active[who.row]
        visit = self._visit[np.arange(len(self._visit))[round.visit]][round.visits.arrived]
        memory = self._learner.recall(position, who.client)
        order, parts = [np.zeros(0, np.int64)], []
        started: dict[str, list[Array]] = {}
        for v in np.unique(version).tolist():
            own = np.flatnonzero(version == v)
            replicas, message = self._started[v]
            rows = np.searchsorted(replicas, position[own])
            batch = Batch(
                v, self._world.replicas[position[own]], who.client[own], visit[own], message, rows,
                {n: m[own] for n, m in memory.items()},
            )  # fmt: skip
            parts.append(await self._learner.compute(batch))
            order.append(own)
            for name, m in message.items():
                started.setdefault(name, []).append(m[rows])
        back = np.argsort(np.concatenate(order))
        reply = Reply.join(parts).part(back)
        now = {n: m[np.searchsorted(self._started[round.number][0], position)] for n, m in self._message.items()}
        then = {n: np.concatenate(m)[back] for n, m in started.items()}
        self._started = {v: s for v, s in self._started.items() if self._under_way[v] > 0}
        return rebased(self._world, reply, then, now, round.staleness)


def started_from(saved: Arrays) -> dict[int, tuple[Array, Arrays]]:
    """What `state` gave, by version."""
    out: dict[int, tuple[Array, Arrays]] = {}
    for version in sorted({int(name.split(".")[1]) for name in saved if name.startswith("message.")}):
        own = f"message.{version}."
        message = {n.removeprefix(own): a for n, a in saved.items() if n.startswith(own)}
        out[version] = message.pop("replicas"), message
    return out
