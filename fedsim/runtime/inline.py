"""The default runtime: jobs on the threads of this process.

A `Worker` computes batches of jobs, here and on every client host; an `InlineSession` runs it on threads.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim import kernels
from fedsim.arrays import Array, Arrays
from fedsim.checks import call_users_code, check_choice, check_int
from fedsim.errors import ClientFailed, InvalidInput, NonFinite
from fedsim.protocols import AlgorithmLike, Quadratic, as_algorithm, call
from fedsim.runtime.blocks import BlockCohort, KeysOfRounds, LearningBlock, Learnt, learn
from fedsim.runtime.jobs import Batch, Encoded, JobsAtHand, Reply, Setting
from fedsim.runtime.process import keep_freed_memory
from fedsim.runtime.validation import all_locked, client_answer, memory_answer, real

QUICK_S = 1e-3  # a shorter round is mostly Python, which threads cannot share
SMALL = 50_000  # numbers to update; below it, another thread costs more time than it saves
CACHED = 2**19  # numbers in a stack of parameters that stays in the cache


class Worker:
    """The computation of jobs for one algorithm and one setting; `compute` is a pure function of the batch."""

    def __init__(self, algorithm: AlgorithmLike, setting: Setting) -> None:
        keep_freed_memory()
        self.algorithm, self.role, self.setting = algorithm, as_algorithm(algorithm), setting
        self.kernel = self.role.fused(setting.problem, setting.backend)
        self.block_kernel = self.role.fused_rounds(setting.problem, setting.backend)
        self.stacked = self.kernel is not None or self.role.batched
        self.learns_blocks = self.kernel is not None and self.role.batched and setting.backend.name == "cpu"

    def compute(self, batch: Batch) -> Reply:
        """Return every job's reply, in the batch's order."""
        stack = self.setting.role.stack
        jobs = len(batch) if self.kernel else stack * max(1, CACHED // self.setting.problem.dim // stack)
        if self.stacked and len(batch) > jobs:
            reply = Reply.join([self._stacked(batch.part(slice(i, i + jobs))) for i in range(0, len(batch), jobs)])
        elif self.stacked:
            reply = self._stacked(batch)
        else:
            reply = Reply.join([self._single(batch.part(slice(i, i + 1))) for i in range(len(batch))])
        self._check_finite(batch, reply)
        return reply

    def learn(self, block: LearningBlock) -> Learnt:
        """Learn the rounds of a block."""
        with np.errstate(over="ignore", invalid="ignore"):  # rounds that diverge are repeated one by one
            if self.block_kernel is None:
                return learn(block, self.role, self.setting, self._of_cohort)
            theta = self.block_kernel(block, KeysOfRounds(self.setting))
            return Learnt(theta, block.state | {"theta": theta[-1]}, block.memory)

    def _of_cohort(self, cohort: BlockCohort, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        assert self.kernel is not None
        values, memory = self._guarded(self.kernel, cohort, message, memory)
        return {name: self._value(name, v) for name, v in values.items()}, memory

    def _stacked(self, batch: Batch) -> Reply:
        job = JobsAtHand(self.setting, batch, single=False)
        message, memory = {name: m.take(batch.version, axis=0) for name, m in batch.message.items()}, batch.memory
        if self.kernel is not None:  # fedsim's own code is not checked
            values, memory = self._call(self.kernel, job, message, memory)
            return self._reply(values, memory, len(batch))
        answer = self._call(self.algorithm.client, job.locked(), all_locked(message), all_locked(memory))
        values, memory = client_answer(self.who, answer)
        return self._reply(values, memory_answer(self.who, memory, batch.memory), len(batch))

    def _single(self, batch: Batch) -> Reply:
        job = JobsAtHand(self.setting, batch, single=True)
        message = {name: m[batch.version[0]].copy() for name, m in batch.message.items()}
        before = {name: m[0].copy() for name, m in batch.memory.items()}
        answer = self._call(self.algorithm.client, job, all_locked(message), all_locked(before))
        values, memory = client_answer(self.who, answer)
        lifted = {
            name: Encoded(v.value[None], np.array([v.bits]))
            if isinstance(v, Encoded)
            else real(self.who, name, v, self.setting.dtype)[None]
            for name, v in values.items()
        }
        memory = memory_answer(self.who, memory, before)
        return self._reply(lifted, {name: m[None] for name, m in memory.items()}, 1)

    @property
    def who(self) -> str:
        return f"{type(self.algorithm).__name__}.client"

    def _call(self, body: Callable[..., Any], job: JobsAtHand, message: Arrays, memory: Arrays) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported once, as NonFinite
            return self._guarded(body, job, message, memory)

    def _guarded(self, body: Callable[..., Any], job: JobsAtHand, message: Arrays, memory: Arrays) -> Any:
        def failed(what: str) -> ClientFailed:
            batch = job.batch
            who = (
                f"client {batch.client[0]}" if len(batch) == 1 else f"clients {sorted(set(batch.client.tolist()))[:5]}"
            )
            at = f"round {batch.round + 1}, replica {batch.replica[0]}, seed {self.setting.seed}"
            return ClientFailed(f"{self.who} {what} ({who}, {at})")

        return call_users_code(failed, body, job, message, memory)

    def _reply(self, values: dict[str, Any], memory: Arrays, jobs: int) -> Reply:
        bits = np.zeros(jobs, np.int64)
        plain: Arrays = {}
        for name, v in values.items():
            plain[name] = self._value(name, v)
            if isinstance(v, Encoded):
                bits += v.bits
            elif name in self.role.local_only:  # it stays on the device
                continue
            else:
                bits += 8 * plain[name].itemsize * math.prod(plain[name].shape[1:])
            if plain[name].shape[:1] != (jobs,):
                rows = f"{name} of shape {plain[name].shape} for {jobs} jobs"
                raise InvalidInput(f"{self.who} returned {rows}; a batched client returns one row for each job")
        return Reply(plain, bits, memory)

    def _value(self, name: str, value: Any) -> Array:
        """Return one named array of a reply, in the scenario's dtype."""
        if isinstance(value, Encoded):
            return value.value
        if type(value) is np.ndarray and value.dtype == self.setting.dtype:
            return value
        return real(self.who, name, value, self.setting.dtype)

    def _check_finite(self, batch: Batch, reply: Reply) -> None:
        for name, v in reply.values.items():
            if np.isfinite(v).all():
                continue
            row = int(np.argmin(np.isfinite(v).reshape(len(v), -1).all(axis=1)))
            raise NonFinite(
                f"{name} of client {batch.client[row]} is not finite in round {batch.round + 1} (replica "
                f"{batch.replica[row]}, seed {self.setting.seed}); {step_size_hint(self.algorithm, self.setting)}"
            )


class InlineSession:
    """The threads of a run. Chunks end in any order; replies are joined in the batch's order."""

    def __init__(self, worker: Worker, threads: int | None, chunk: int | None) -> None:
        self.worker, self.chunk, self.threads = worker, chunk, threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.threads, "fedsim") if self.threads > 1 else None
        self.learns_blocks = worker.learns_blocks
        self._round_s = math.inf  # on one thread, of the rounds of the last block

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """Return all replies of the batch; `work`, local steps per job, determines the number of threads."""
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
        """Apply a function to each item on the threads."""
        if self._pool is None or len(items) == 1:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    async def learn(self, block: LearningBlock) -> Learnt:
        """Learn a block, some replicas on each thread; on one thread if the rounds of the last block were short."""
        parts = block.parts(1 if self._round_s < QUICK_S else self.threads)
        began = time.perf_counter()
        if self._pool is None or len(parts) == 1:
            done = [self.worker.learn(block)]
        else:
            loop = asyncio.get_running_loop()
            running = [loop.run_in_executor(self._pool, self.worker.learn, part) for part in parts]
            done = list(await asyncio.gather(*running))
        self._round_s = (time.perf_counter() - began) * len(parts) / block.rounds
        return Learnt.join(done)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _share(self, jobs: int, work: float) -> int:
        """Return the jobs per piece: one piece per thread, or four, which balance better, where each is large."""
        few = jobs < 64 * self.threads or self._numbers(jobs, work) < 20 * SMALL
        pieces = self.threads if few else 4 * self.threads
        return max(1, -(-jobs // pieces)) if self.threads > 1 else max(1, jobs)

    def _small(self, batch: Batch, work: float) -> bool:
        return self._pool is None or self._numbers(len(batch), work) < SMALL

    def _numbers(self, jobs: int, work: float) -> float:
        return jobs * work * float(self.worker.setting.problem.dim)


def step_size_hint(algorithm: AlgorithmLike, setting: Setting) -> str:
    """Return a step size to try: within the stability limit of a quadratic problem, else a tenth."""
    eta = as_algorithm(algorithm).step_size
    problem: Any = setting.problem
    if isinstance(problem, Quadratic) and setting.problem.clients * setting.problem.dim**3 < 10**8:
        hessian = call(problem, "quadratic")[0] / setting.weights[:, None, None]
        return f"try step_size <= {1 / (2 * np.linalg.eigvalsh(hessian).max()):.1g}"
    return f"try step_size <= {eta / 10:.1g}" if isinstance(eta, float) else "try smaller step sizes"


def check_state(
    algorithm: AlgorithmLike, setting: Setting, name: str, value: Array, replica: Array, round: int
) -> None:
    """Refuse a server's new state, a row a replica, that is not finite after a round, counted from 1."""
    if not np.isfinite(value).all():
        row = int(np.argmin(np.isfinite(value).reshape(len(value), -1).all(axis=1)))
        raise NonFinite(
            f"the server's {name} is not finite in round {round} (replica {replica[row]}, seed {setting.seed}); "
            f"{step_size_hint(algorithm, setting)}"
        )


@dataclass(frozen=True)
class Inline:
    """Jobs on `threads` threads of this process (default: all cores), in chunks of `chunk` jobs (default: automatic).

    Neither changes any bit of a result. `backend`: "auto" or "cpu" (Numba), "cuda" (CuPy), "numpy" (the slow
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
                    check_int(f"Inline({name}={{}})", getattr(self, name), most=2**20 if name == "threads" else 2**40),
                )
        check_choice("Inline(backend={!r})", self.backend, ("auto", "cpu", "cuda", "numpy"))

    def kernels(self) -> Any:
        """Return the backend module; refuse CUDA without a device."""
        return kernels.backend(self.backend)

    def open(self, algorithm: AlgorithmLike, setting: Setting) -> InlineSession:
        """Return a session with threads and compiled kernels for one run."""
        return InlineSession(Worker(algorithm, setting), self.threads, self.chunk)

    def describe(self) -> str:
        threads = self.threads or os.cpu_count() or 1
        return f"inline {threads} thread{'s' * (threads > 1)}" + (f", {self.backend}" if self.backend != "auto" else "")
