"""A client host, an asyncio actor of Ray, and what it is given when it starts.

What clients remember, kept where they are computed, so that a row of memory travels only to a host without it.

The driver commits a reply's memory when it folds the reply, and only the driver knows whether it did. So it notes what
every call left at the host, under the call's own number, and sends a row unless it is that very one. A job names the
call whose row it takes up, and a host that holds another one, or none, says so and is sent it: no order of calls, no
late reply and no host that died can put a wrong row in its place.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import sysconfig
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsim import kernels
from fedsim.arrays import Array, Arrays
from fedsim.protocols import AlgorithmLike, HasShards, ProblemLike
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.ray.cluster import hear_sigterm


class Host:
    """A client host: its shard's data, its clients' rows and their memory, its kernels. One call per batch."""

    def __init__(
        self, algorithm: AlgorithmLike, setting: tuple[Any, ...], clients: Array, rows: Arrays, backend: str
    ) -> None:
        from threadpoolctl import threadpool_limits

        hear_sigterm()
        self.clients, self.rows, self.held = clients, rows, HeldMemory()
        self._whole: Worker | None = None  # with the data of all clients, for blocks of rounds
        problem, weights, seed, dtype = setting
        self.worker = Worker(algorithm, Setting(problem, weights, seed, dtype, kernels.backend(backend)))
        self._limits = threadpool_limits(1)  # after the kernels have loaded every BLAS there is

    async def compute(self, packed: bytes, message: Arrays | None = None) -> bytes:
        """From a packed SentBatch to a packed Reply; empty if somebody's memory is missing."""
        light: SentBatch = pickle.loads(packed)
        batch = self.held.complete(light)
        if batch is None:
            return b""
        reply = self.worker.compute(batch if message is None else replace(batch, message=message))
        self.held.keep(batch, light.call, reply)
        return pack(reply)

    async def learn(self, problem: ProblemLike, packed: bytes) -> bytes:
        """Take a block of rounds of some replicas; the data of all clients come once, as an object of their own."""
        if self._whole is None:
            own = self.worker.setting
            self._whole = Worker(self.worker.algorithm, replace(own, problem=problem))
        return pack(self._whole.learn(pickle.loads(packed)))

    async def about(self) -> dict[str, Any]:
        """Whom it models, and what their links and devices are like."""
        held = len(getattr(self.worker.setting.problem, "x", ()))
        return {"pid": os.getpid(), "clients": self.clients, "rows_held": held, **self.rows}


def pack(parts: object) -> bytes:
    """One string of bytes: Ray takes half as long over it as over a handful of small arrays."""
    return pickle.dumps(parts, protocol=5)


def dealt(setting: Setting, shards: list[Array]) -> list[tuple[Any, ...]]:
    """What hosts are given: each the rows of its own clients, if the problem can be dealt, else all the whole of it."""
    common = (setting.weights, setting.seed, setting.dtype)
    if not isinstance(setting.problem, HasShards):
        return [(setting.problem, *common)]
    return [(setting.problem.shard(clients), *common) for clients in shards]


def carry_source(part: object) -> None:
    """A class from a scenario file or a script exists on no other machine: send its code along with it."""
    from ray import cloudpickle

    module = sys.modules.get(part.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "fedsim":
        return
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    if not any(str(file).startswith(str(folder)) for folder in installed):
        cloudpickle.register_pickle_by_value(module)


NOBODY = 0  # no call has this number
_CALLS = itertools.count(1)  # all calls of this process: a number is never given twice, whoever dies


@dataclass(frozen=True)
class SentBatch:
    """A batch on its way to a host: with the rows of memory that travel alone, and the calls that left the others."""

    batch: Batch
    travels: Array  # bool (jobs,)
    left_by: Array  # the calls whose rows the host is to take from its own
    call: int = field(default_factory=lambda: next(_CALLS))

    @staticmethod
    def full(batch: Batch) -> SentBatch:
        """With all its rows, for a host that nothing is known of."""
        return SentBatch(batch, np.ones(len(batch) if batch.memory else 0, bool), np.empty(0, np.int64))


class HeldMemory:
    """A host's part: the rows that its clients' latest jobs left behind."""

    def __init__(self) -> None:
        self._table = _MemoryTable()

    def complete(self, light: SentBatch) -> Batch | None:
        """The batch with everybody's memory, or None where a row is not here."""
        batch, travels = light.batch, light.travels
        if travels.all():
            return batch
        place = self._table.places(batch)[~travels]
        if (self._table.call[place] != light.left_by).any():
            return None
        memory = {}
        for n, m in batch.memory.items():
            memory[n] = np.empty((len(batch), *m.shape[1:]), m.dtype)
            memory[n][travels], memory[n][~travels] = m, self._table.columns[n][place]
        return replace(batch, memory=memory)

    def keep(self, batch: Batch, call: int, reply: Reply) -> None:
        """Hold what the jobs left behind."""
        if batch.memory:
            self._table.put(self._table.places(batch), call, _left(batch, reply))


class MemoryAtHost:
    """The driver's part: which rows a host holds."""

    def __init__(self) -> None:
        self._table = _MemoryTable()

    def to_send(self, batch: Batch) -> SentBatch:
        """The batch without the rows that the host holds."""
        if not batch.memory:
            return SentBatch.full(batch)
        place = self._table.places(batch)
        left_by = self._table.call[place]
        travels = (left_by == NOBODY) | ~self._table.holds(place, batch.memory)
        self._table.call[place] = NOBODY  # until these jobs are heard of, what they leave behind is not known
        rows = {n: m[travels] for n, m in batch.memory.items()}
        return SentBatch(replace(batch, memory=rows), travels, left_by[~travels])

    def note(self, batch: Batch, call: int, reply: Reply) -> None:
        """The host holds what this call left behind."""
        if batch.memory:
            self._table.put(self._table.places(batch), call, _left(batch, reply))


class _MemoryTable:
    """A place for each replica's client: the call that left the row there, and the row itself in columns."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._latest = (np.zeros(0, np.int64), np.zeros(0, np.int64))  # who was asked for, and their places
        self.call = np.full(0, NOBODY)
        self.columns: Arrays = {}

    def places(self, batch: Batch) -> Array:
        """Where the jobs' clients have their places, new ones at the end."""
        known, who = self._place, batch.replica << 32 | batch.client
        if np.array_equal(who, self._latest[0]):  # the same as last time, as it mostly is
            return self._latest[1]
        place = np.array([known.setdefault(w, len(known)) for w in who.tolist()], np.int64)
        if len(known) > len(self.call):
            more = max(len(known), 2 * len(self.call)) - len(self.call)
            self.call = _longer(self.call, more)
            self.columns = {n: _longer(c, more) for n, c in self.columns.items()}
        self._latest = who, place
        return place

    def holds(self, place: Array, rows: Arrays) -> Array:
        """Whether these very rows lie there, bit for bit."""
        same = np.ones(len(place), bool)
        for n, row in rows.items():
            if n not in self.columns:
                return np.zeros(len(place), bool)
            same &= (_bytes(self.columns[n][place]) == _bytes(row)).all(axis=1)
        return same

    def put(self, place: Array, call: int, rows: Arrays) -> None:
        for n, row in rows.items():
            if n not in self.columns:
                self.columns[n] = np.zeros((len(self.call), *row.shape[1:]), row.dtype)
            self.columns[n][place] = row
        self.call[place] = call


def _left(batch: Batch, reply: Reply) -> Arrays:
    """What jobs leave behind, as it would be committed."""
    return {n: np.asarray(reply.memory.get(n, m), m.dtype) for n, m in batch.memory.items()}


def _bytes(rows: Array) -> Array:
    """Rows as whole numbers, which are equal where the bits are."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return flat.view(np.uint64 if flat.shape[1] * flat.itemsize % 8 == 0 else np.uint8)


def _longer(column: Array, more: int) -> Array:
    out = np.zeros((len(column) + more, *column.shape[1:]), column.dtype)  # pages come on use
    out[: len(column)] = column
    return out
