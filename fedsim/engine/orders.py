"""The jobs of continuously working clients: when they go to the runtime, and when their replies are waited for.

Where other processes compute, the job of a visit that will get through is sent as soon as the clock has let it set
out, together with those of its version, and its reply is awaited when the clock needs its size or the server its
value. Elsewhere nothing would be gained, and jobs are sent when they are needed. A job is a pure function of what the
visit started from, so neither changes a bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fedsim.engine.run import Run
from fedsim.engine.timeline import NOT, UPLOAD
from fedsim.engine.visits import Visit
from fedsim.engine.workshop import Workshop
from fedsim.errors import FedsimError, RuntimeFailed
from fedsim.runtime.jobs import Batch, Reply

Placed = list[tuple[Workshop, Visit]]


class Orders:
    """What was asked of the runtime and has not been fetched."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ahead = bool(getattr(run.session, "elsewhere", False)) and not run.skip
        self._under_way: set[asyncio.Task[Reply]] = set()

    async def place(self, shops: Iterable[Workshop]) -> None:
        """Send the jobs of the visits that have set out; nothing is waited for."""
        if not self._ahead:
            return
        started: Placed = []
        for shop in shops:
            started += [(shop, visit) for visit in shop.unsent if _promising(visit)]
            shop.unsent = []
        for batch, visits in _batches(self._run, started):
            task = asyncio.create_task(self._run.compute(batch))
            self._under_way.add(task)
            task.add_done_callback(self._done)
            for row, visit in enumerate(visits):
                visit.order = task, row
        if started:
            await asyncio.sleep(0)  # they are on their way before the clock goes on

    async def fetch(self, wanted: Placed) -> None:
        """See to it that these visits have their replies."""
        await self.place(dict.fromkeys(shop for shop, _ in wanted))
        for _, visit in wanted:
            if visit.reply is None and visit.order is not None:
                task, row = visit.order
                reply = await sent_early(task)
                visit.reply = None if reply is None else reply.part(np.array([row]))
        for batch, visits in _batches(self._run, [(s, v) for s, v in wanted if v.reply is None]):
            reply = await self._run.compute(batch)
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


def _batches(run: Run, visits: Placed) -> Iterator[tuple[Batch, list[Visit]]]:
    """One batch per version; of each replica's message one copy."""
    for version in sorted({v.version for _, v in visits}):
        own = [(s, v) for s, v in visits if v.version == version]
        messages: dict[int, dict[str, Any]] = {s.position: v.message for s, v in own}
        row = {position: i for i, position in enumerate(messages)}
        first = own[0][1]
        yield (
            Batch(
                version,
                run.replicas[[s.position for s, _ in own]],
                np.array([v.client for _, v in own], np.int64),
                np.array([v.number for _, v in own], np.int64),
                {n: np.stack([m[n] for m in messages.values()]) for n in first.message},
                np.array([row[s.position] for s, _ in own], np.int64),
                {n: np.concatenate([v.memory[n] for _, v in own]) for n in first.memory},
            ),
            [v for _, v in own],
        )
