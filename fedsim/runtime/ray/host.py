"""A client host, an asyncio actor of Ray, and its cache of the clients' memory.

A row of memory is sent only to a host that lacks it. The driver commits a reply's memory when it aggregates the reply.
It records, under the number of each call, the row that the call left at the host, and does not send that row again. A
job names the call whose row it continues from. A host without that row returns nothing, and the driver sends it. So the
order of calls, late replies and dead hosts cannot lead to a wrong row.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import sysconfig
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import kernels
from fedsim.arrays import Array, Arrays
from fedsim.protocols import HasShards, ProblemLike, call
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.ray.private import unblock_sigterm


class Host:
    """A client host: the data, columns and memory of its clients. One call per batch.

    `parts` refers to the algorithm and the host's setting in the object store.
    """

    def __init__(self, parts: tuple[Any, Any], clients: Array, rows: Arrays, backend: str) -> None:
        unblock_sigterm()
        self.clients, self.rows, self.held = clients, rows, HeldMemory()
        self._all: Worker | None = None  # with the data of all clients, for blocks of rounds
        self._parts, self._backend = parts, backend

    @cached_property
    def worker(self) -> Worker:
        """The computation for its clients; made at the first call."""
        import ray
        from threadpoolctl import threadpool_limits

        algorithm, (problem, weights, seed, dtype) = ray.get(list(self._parts))
        worker = Worker(algorithm, Setting(problem, weights, seed, dtype, kernels.backend(self._backend)))
        self._limits = threadpool_limits(1)  # after the kernels have loaded every BLAS there is
        return worker

    async def node(self) -> str:
        """Return the id of the node that it runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    async def compute(self, packed: bytes, message: Arrays | None = None) -> bytes:
        """Compute a packed SentBatch; return a packed Reply, empty if a client's memory is missing."""
        light: SentBatch = pickle.loads(packed)
        batch = self.held.complete(light)
        if batch is None:
            return b""
        reply = self.worker.compute(batch if message is None else replace(batch, message=message))
        self.held.keep(batch, light.call, reply)
        return pack(reply)

    async def learn(self, problem: ProblemLike, packed: bytes) -> bytes:
        """Learn a block of rounds of some replicas; the data of all clients are sent once, as a separate object."""
        if self._all is None:
            own = self.worker.setting
            self._all = Worker(self.worker.algorithm, replace(own, problem=problem))
        return pack(self._all.learn(pickle.loads(packed)))

    async def about(self) -> dict[str, Any]:
        """Return its clients, the columns of their links and devices, and the size of its data and memory."""
        problem = self.worker.setting.problem
        everything = self._all.setting.problem if self._all is not None else None
        held = bytes_of([problem, everything, self.held, self.rows])
        rows = len(getattr(problem, "x", ()))
        about = {"pid": os.getpid(), "node": await self.node(), "rows_held": rows, "bytes_held": held}
        return about | {"clients": self.clients, **self.rows}


def bytes_of(part: object) -> int:
    """Return the bytes of the arrays in an object of ours, each buffer once."""
    found, seen, left = 0, set(), [part]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            found += one.nbytes if one.base is None or not isinstance(one.base, np.ndarray) else 0
            left += [one.base] if isinstance(one.base, np.ndarray) else []
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif hasattr(one, "__dict__") and type(one).__module__.partition(".")[0] == "fedsim":
            left += vars(one).values()
    return found


def pack(parts: object) -> bytes:
    """Pickle to one string of bytes, which Ray sends twice as fast as several small arrays."""
    return pickle.dumps(parts, protocol=5)


def split_setting(setting: Setting, shards: list[Array]) -> list[tuple[Any, ...]]:
    """Return the setting of each host, with its clients' rows alone if the problem has shards, else of all hosts."""
    common = (setting.weights, setting.seed, setting.dtype)
    if not isinstance(setting.problem, HasShards):
        return [(setting.problem, *common)]
    return [(call(setting.problem, "shard", clients), *common) for clients in shards]


def carry_source(part: object) -> None:
    """Pickle a class of a scenario file or script with its code, which other machines do not have."""
    from ray import cloudpickle

    module = sys.modules.get(part.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "fedsim":
        return
    installed = PACKAGES.intersection(Path(file).parts) or str(file).startswith(sysconfig.get_path("stdlib"))
    if not installed:
        cloudpickle.register_pickle_by_value(module)


PACKAGES = {"site-packages", "dist-packages"}  # of this environment, of the user, or of one that this one extends
NO_CALL = 0  # no call has this number
_CALLS = itertools.count(1)  # unique in this process


@dataclass(frozen=True)
class SentBatch:
    """A batch as sent to a host: some rows of memory, and the calls that left the others at the host."""

    batch: Batch
    sent: Array  # bool (jobs,): the rows of memory that are in the batch
    left_by: Array  # the calls that left the other rows at the host
    call: int = field(default_factory=lambda: next(_CALLS))

    @staticmethod
    def full(batch: Batch) -> SentBatch:
        """Return the batch with all rows, for a host whose rows are unknown."""
        return SentBatch(batch, np.ones(len(batch) if batch.memory else 0, bool), np.empty(0, np.int64))


class HeldMemory:
    """The rows at a host: its clients' memory after their latest jobs."""

    def __init__(self) -> None:
        self._table = _MemoryTable()

    def complete(self, light: SentBatch) -> Batch | None:
        """Return the batch with all memory; None where a row is missing."""
        batch, sent = light.batch, light.sent
        if sent.all():
            return batch
        place = self._table.places(batch)[~sent]
        if (self._table.call[place] != light.left_by).any():
            return None
        memory = {}
        for n, m in batch.memory.items():
            memory[n] = np.empty((len(batch), *m.shape[1:]), m.dtype)
            memory[n][sent], memory[n][~sent] = m, self._table.columns[n][place]
        return replace(batch, memory=memory)

    def keep(self, batch: Batch, call: int, reply: Reply) -> None:
        """Store the memory after the jobs."""
        if batch.memory:
            self._table.put(self._table.places(batch), call, _memory_after(batch, reply))


class MemoryAtHost:
    """The driver's record of the rows at a host."""

    def __init__(self) -> None:
        self._table = _MemoryTable()

    def to_send(self, batch: Batch) -> SentBatch:
        """Return the batch without the rows that the host has."""
        if not batch.memory:
            return SentBatch.full(batch)
        place = self._table.places(batch)
        left_by = self._table.call[place]
        sent = (left_by == NO_CALL) | ~self._table.holds(place, batch.memory)
        self._table.call[place] = NO_CALL  # unknown until the reply of these jobs
        rows = {n: m[sent] for n, m in batch.memory.items()}
        return SentBatch(replace(batch, memory=rows), sent, left_by[~sent])

    def note(self, batch: Batch, call: int, reply: Reply) -> None:
        """Record the memory after a call."""
        if batch.memory:
            self._table.put(self._table.places(batch), call, _memory_after(batch, reply))


class _MemoryTable:
    """A place for each replica's client: the call that left the row there, and the row itself in columns."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._latest = (np.zeros(0, np.int64), np.zeros(0, np.int64))  # clients of the latest batch, and their places
        self.call = np.full(0, NO_CALL)
        self.columns: Arrays = {}

    def places(self, batch: Batch) -> Array:
        """Return the places of the jobs' clients; new clients are appended."""
        known, key = self._place, batch.replica << 32 | batch.client
        if np.array_equal(key, self._latest[0]):  # the usual case
            return self._latest[1]
        place = np.array([known.setdefault(w, len(known)) for w in key.tolist()], np.int64)
        if len(known) > len(self.call):
            more = max(len(known), 2 * len(self.call)) - len(self.call)
            self.call = _longer(self.call, more)
            self.columns = {n: _longer(c, more) for n, c in self.columns.items()}
        self._latest = key, place
        return place

    def holds(self, place: Array, rows: Arrays) -> Array:
        """Return True where these rows are stored, bit for bit."""
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


def _memory_after(batch: Batch, reply: Reply) -> Arrays:
    """Return the memory after jobs, as it is committed."""
    return {n: np.asarray(reply.memory.get(n, m), m.dtype) for n, m in batch.memory.items()}


def _bytes(rows: Array) -> Array:
    """Return rows as integers, which are equal where the bits are."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return flat.view(np.uint64 if flat.shape[1] * flat.itemsize % 8 == 0 else np.uint8)


def _longer(column: Array, more: int) -> Array:
    out = np.zeros((len(column) + more, *column.shape[1:]), column.dtype)  # pages come on use
    out[: len(column)] = column
    return out
