"""Jobs on this process's own threads: the embedded default, no cluster and nothing to start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fedsim import kernels
from fedsim.arrays import Array, Arrays
from fedsim.errors import one_of, whole
from fedsim.protocols import AlgorithmLike, Answered
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.many_rounds import joined, split
from fedsim.runtime.worker import Worker

SMALL = 50_000  # numbers to update below which a hop to another thread costs more than it saves


@dataclass(frozen=True)
class Inline:
    """Run jobs here, on `threads` threads (default: all cores), `chunk` jobs at a time (default: by number).

    Neither changes a bit of any result. `backend`: "auto" or "cpu" (Numba), "cuda" (CuPy), "numpy" (the slow
    reference).
    """

    threads: int | None = None
    chunk: int | None = None
    backend: str = "auto"

    def __post_init__(self) -> None:
        for name in ("threads", "chunk"):
            if getattr(self, name) is not None:
                object.__setattr__(
                    self,
                    name,
                    whole(f"Inline({name}={{}})", getattr(self, name), most=2**20 if name == "threads" else 2**40),
                )
        one_of("Inline(backend={!r})", self.backend, ("auto", "cpu", "cuda", "numpy"))

    def kernels(self) -> Any:
        """The backend module; asking for CUDA without a device fails here, before anything starts."""
        return kernels.backend(self.backend)

    def open(self, algorithm: AlgorithmLike, setting: Setting) -> InlineSession:
        """Threads and compiled kernels for one run."""
        return InlineSession(self, Worker(algorithm, setting))

    def describe(self) -> str:
        threads = self.threads or os.cpu_count() or 1
        return f"inline {threads} thread{'s' * (threads > 1)}" + (f", {self.backend}" if self.backend != "auto" else "")


class InlineSession:
    """A run's threads. Chunks come back in whatever order; replies are put together in the batch's."""

    elsewhere = False

    def __init__(self, runtime: Inline, worker: Worker) -> None:
        self.worker, self.chunk = worker, runtime.chunk
        self.threads = runtime.threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.threads, "fedsim") if self.threads > 1 else None
        self.can_iterate = worker.rounds is not None

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """All replies of the batch; `work` is local steps per job, to judge whether a hop pays."""
        if self.chunk is None and self._small(batch, work):
            return self.worker.compute(batch)
        size = self.chunk or self._share(len(batch), work)
        parts = [batch.part(slice(at, at + size)) for at in range(0, len(batch), size)]
        if self._pool is None:
            return Reply.join([self.worker.compute(part) for part in parts])
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(self._pool, self.worker.compute, part) for part in parts]
        try:
            return Reply.join(list(await asyncio.gather(*running)))
        finally:
            for future in running:
                future.cancel()

    def each(self, function: Callable[[int], int], items: Sequence[int]) -> list[int]:
        """`function` of each, a task on the threads."""
        if self._pool is None or len(items) == 1:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    async def iterate(
        self, replicas: Array, first: int, count: int, state: Arrays, memory: Arrays, answered: Answered | None = None
    ) -> tuple[Arrays, Arrays]:
        """`count` rounds at a go: states (rounds or 1, replicas, ...), last one last, and memory."""
        parts = split(self.threads, replicas, first, count, state, memory, answered)
        if self._pool is None or len(parts) == 1:
            return self.worker.iterate(replicas, first, count, state, memory, answered)
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(self._pool, self.worker.iterate, *part) for part in parts]
        return joined(list(await asyncio.gather(*running)))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _share(self, jobs: int, work: float) -> int:
        """Jobs of a piece: one piece a thread, or more where that evens things out and costs next to nothing."""
        few = jobs < 64 * self.threads or self._numbers(jobs, work) < 20 * SMALL
        pieces = self.threads if few else 4 * self.threads
        return max(1, -(-jobs // pieces)) if self.threads > 1 else max(1, jobs)

    def _small(self, batch: Batch, work: float) -> bool:
        return self._pool is None or self._numbers(len(batch), work) < SMALL

    def _numbers(self, jobs: int, work: float) -> float:
        return jobs * work * float(self.worker.setting.problem.dim)
