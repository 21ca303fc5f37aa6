"""A client host, an asyncio actor of Ray, and what it is given when it starts."""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
from dataclasses import replace
from typing import Any

from fedsim import kernels
from fedsim.arrays import Array, Arrays
from fedsim.protocols import AlgorithmLike, HasShards, ProblemLike
from fedsim.runtime.client_memory import HeldMemory, SentBatch
from fedsim.runtime.jobs import Setting
from fedsim.runtime.ray_own import hear_sigterm
from fedsim.runtime.worker import Worker


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
