"""The jobs of continuously working clients: when they go to the runtime, and when their replies are waited for.

Where other processes compute, the job of a visit that will get through is sent as soon as the clock has let it set
out, together with those of its version, and its reply is awaited when the clock needs its size or the server its
value. Elsewhere nothing would be gained, and jobs are sent when they are needed. A job is a pure function of what the
visit started from, so neither changes a bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Arrays
from fedsim.errors import FedsimError, RuntimeFailed
from fedsim.old_engine.arrivals import NOT, UPLOAD
from fedsim.old_engine.learner import Learner
from fedsim.old_engine.visits import Visit
from fedsim.old_engine.world import World
from fedsim.runtime.jobs import Batch, Reply

if TYPE_CHECKING:
    from fedsim.old_engine.asynchronous_replica import AsynchronousReplica

Sent = list[tuple["AsynchronousReplica", Visit]]


class JobsAhead:
    """What was asked of the runtime and has not been fetched."""

    def __init__(self, world: World, learner: Learner) -> None:
        self._world, self._learner = world, learner
        self._ahead = learner.session.elsewhere and not world.skip
        self._under_way: set[asyncio.Task[Reply]] = set()

    async def send(self, replicas: Iterable[AsynchronousReplica]) -> None:
        """Send the jobs of the visits that have set out; nothing is waited for."""
        if not self._ahead:
            return
        started: Sent = []
        for replica in replicas:
            started += [(replica, visit) for visit in replica.unsent if _promising(visit)]
            replica.unsent = []
        for batch, visits in _batches(self._world, started):
            task = asyncio.create_task(self._learner.compute(batch))
            self._under_way.add(task)
            task.add_done_callback(self._done)
            for row, visit in enumerate(visits):
                visit.job = task, row
        if started:
            await asyncio.sleep(0)  # they are on their way before the clock goes on

    async def fetch(self, wanted: Sent) -> None:
        """See to it that these visits have their replies."""
        await self.send(dict.fromkeys(replica for replica, _ in wanted))
        for _, visit in wanted:
            if visit.reply is None and visit.job is not None:
                task, row = visit.job
                reply = await sent_early(task)
                visit.reply = None if reply is None else reply.part(np.array([row]))
        for batch, visits in _batches(self._world, [(s, v) for s, v in wanted if v.reply is None]):
            reply = await self._learner.compute(batch)
            for row, visit in enumerate(visits):
                visit.reply = reply.part(np.array([row])) if len(reply.bits) else reply

    async def close(self) -> None:
        """Give up what nobody will fetch."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _done(self, task: asyncio.Task[Reply]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: a failure counts only if somebody fetches it


def _promising(visit: Visit) -> bool:
    """Whether a reply will be needed, as far as can be known."""
    computes = visit.phase == NOT or (visit.phase == UPLOAD and visit.bits is None)
    return computes and (visit.arrived or not visit.over)


async def sent_early(task: asyncio.Task[Reply]) -> Reply | None:
    """A batch's replies; None if a job failed, maybe one that nobody needs: it is to run again without those."""
    try:
        return await task
    except RuntimeFailed:
        raise
    except FedsimError:
        return None


def _batches(world: World, visits: Sent) -> Iterator[tuple[Batch, list[Visit]]]:
    """One batch per version; of each replica's message one copy."""
    for version in sorted({v.version for _, v in visits}):
        own = [(s, v) for s, v in visits if v.version == version]
        messages: dict[int, Arrays] = {s.position: v.message for s, v in own}
        row = {position: i for i, position in enumerate(messages)}
        first = own[0][1]
        yield (
            Batch(
                version,
                world.replicas[[s.position for s, _ in own]],
                np.array([v.client for _, v in own], np.int64),
                np.array([v.number for _, v in own], np.int64),
                {n: np.stack([m[n] for m in messages.values()]) for n in first.message},
                np.array([row[s.position] for s, _ in own], np.int64),
                {n: np.concatenate([v.memory[n] for _, v in own]) for n in first.memory},
            ),
            [v for _, v in own],
        )
