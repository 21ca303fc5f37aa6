"""Jobs on Ray: client hosts, asyncio actors that each own a shard of the clients and model every one of them.

A host is given its data once, through the object store, and computes with the very code that `inline` uses. What a
client remembers lies with the driver, which commits it when a reply is folded and sends it along with the job: a host
that dies takes nothing with it, its successor repeats the lost jobs, and the bits are the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import sysconfig
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import kernels
from fedsim.errors import FedsimError, InvalidInput, RuntimeFailed
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.worker import Worker

Array = npt.NDArray[Any]
TRIES = 5  # hosts in a row that may die over one batch
INLINE_BYTES = 100_000  # a broadcast up to this size travels inside the call, a larger one once as an object
OWN = {  # a Ray that we start ourselves: quiet, on this machine only, replies of a few MB without the object store
    "address": "local",  # never one that happens to run on this machine
    "include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False,
    "_node_ip_address": "127.0.0.1",
    "_system_config": {"max_direct_call_object_size": 4_000_000, "task_rpc_inlined_bytes_limit": 40_000_000},
}  # fmt: skip


@dataclass(frozen=True)
class Ray:
    """Run jobs on `hosts` client hosts, or on as many as `clients_per_host` asks for (1: an actor per client).

    `address=None` starts a Ray of its own, bound to this machine, and shuts it down again; an address joins that
    cluster and leaves it as it was. With `num_gpus_per_host` the hosts compute with CUDA.
    """

    hosts: int | None = None
    address: str | None = None
    clients_per_host: int | None = None
    num_gpus_per_host: float = 0
    num_cpus_per_host: float = 1

    def __post_init__(self) -> None:
        if self.hosts is not None and self.clients_per_host is not None:
            raise InvalidInput("Ray(hosts=..., clients_per_host=...): give one of the two; the other follows")
        for name in ("hosts", "clients_per_host"):
            value = getattr(self, name)
            if value is not None and (int(value) != value or value < 1):
                raise InvalidInput(f"Ray({name}={value}): ask for a whole number of at least 1")
        for name in ("num_gpus_per_host", "num_cpus_per_host"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"Ray({name}={getattr(self, name)}): must not be negative")

    def kernels(self) -> Any:
        """The driver's own backend: draws, folds. Hosts with GPUs choose CUDA for themselves."""
        return kernels.backend("cpu")

    def open(self, algorithm: Any, setting: Setting) -> RaySession:
        return RaySession(self, algorithm, setting)

    def describe(self) -> str:
        hosts = (
            f"{self.clients_per_host} clients a host" if self.clients_per_host else f"{self.hosts or _cores()} hosts"
        )
        return f"ray, {hosts}" + (f", {self.address}" if self.address else "")

    def shards(self, clients: int) -> list[Array]:
        """Which clients each host owns: consecutive, as even as can be."""
        count = -(-clients // self.clients_per_host) if self.clients_per_host else min(self.hosts or _cores(), clients)
        return [np.asarray(part) for part in np.array_split(np.arange(clients), count)]


class Host:
    """A client host: its shard's data, its clients' rows, its kernels. One call per batch."""

    def __init__(
        self, algorithm: Any, setting: tuple[Any, ...], clients: Array, rows: dict[str, Array], backend: str
    ) -> None:
        from threadpoolctl import threadpool_limits

        self.clients, self.rows = clients, rows
        problem, weights, seed, dtype = setting
        self.worker = Worker(algorithm, Setting(problem, weights, seed, dtype, kernels.backend(backend)))
        self._limits = threadpool_limits(1)  # after the kernels have loaded every BLAS there is

    async def compute(self, packed: bytes, message: dict[str, Array] | None = None) -> bytes:
        """The jobs of this host's clients: a Batch and its Reply, packed."""
        batch: Batch = pickle.loads(packed)
        if message is not None:
            batch = replace(batch, message=message)
        return _pack(self.worker.compute(batch))

    async def about(self) -> dict[str, Any]:
        """Whom it models, and what their links and devices are like."""
        return {"pid": os.getpid(), "clients": self.clients, **self.rows}


class RaySession:
    """A run's hosts. A client's shard says which host computes it; replies come together in the batch's order."""

    elsewhere = True  # jobs sent early run while the driver keeps time

    def __init__(self, runtime: Ray, algorithm: Any, setting: Setting) -> None:
        import ray

        self._ray, self._runtime = ray, runtime
        self._shards = runtime.shards(setting.problem.clients)
        self._owned = self._start(len(self._shards))
        try:
            self._host_of = np.repeat(np.arange(len(self._shards)), [len(s) for s in self._shards])
            self._backend = "cuda" if runtime.num_gpus_per_host else "cpu"
            for part in (algorithm, setting.problem):
                _carry_source(part)
            self._algorithm = ray.put(algorithm)
            self._setting = ray.put((setting.problem, setting.weights, setting.seed, setting.dtype))
            self._rows = client_rows(setting)
            self._actor = ray.remote(Host)
            self.hosts = [self._host(i) for i in range(len(self._shards))]
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: int) -> bool:
        """Join a Ray that is there, or start one; True if it is ours to shut down."""
        ray, runtime = self._ray, self._runtime
        needed = {"CPU": hosts * runtime.num_cpus_per_host, "GPU": hosts * runtime.num_gpus_per_host}
        if runtime.address is None and not ray.is_initialized():
            ray.init(num_cpus=max(1, int(np.ceil(needed["CPU"]))), **OWN)
            return True
        joined = not ray.is_initialized()
        if joined:
            try:
                ray.init(address=runtime.address, log_to_driver=False, logging_level=logging.ERROR)
            except ConnectionError as error:
                raise RuntimeFailed(f"Ray(address={runtime.address!r}): no cluster answers there ({error})") from None
        have = ray.cluster_resources()
        for kind, amount in needed.items():
            if amount > have.get(kind, 0):
                raise InvalidInput(
                    f"{hosts} hosts need {amount:g} {kind}s, the cluster has {have.get(kind, 0):g}; ask for fewer "
                    f"hosts or a smaller num_{kind.lower()}s_per_host"
                )
        return joined

    def _host(self, index: int) -> Any:
        runtime, clients = self._runtime, self._shards[index]
        rows = {name: column[clients] for name, column in self._rows.items()}
        options = {"num_cpus": runtime.num_cpus_per_host, "num_gpus": runtime.num_gpus_per_host, "max_restarts": 0}
        return self._actor.options(**options).remote(self._algorithm, self._setting, clients, rows, self._backend)

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """All replies of the batch, one call per host that owns some of its clients."""
        owner = self._host_of[batch.client]
        size = sum(m.nbytes for m in batch.message.values())
        message = self._ray.put(batch.message) if size > INLINE_BYTES else None
        order = np.argsort(owner, kind="stable")
        present, begin = np.unique(owner[order], return_index=True)
        picks = np.split(order, begin[1:])
        shares = [(int(h), batch.part(p)) for h, p in zip(present, picks, strict=True)]
        calls = [self.hosts[h].compute.remote(_light(part, message), message) for h, part in shares]
        try:  # waiting for all of them in a thread is cheaper than awaiting each
            parts = [pickle.loads(p) for p in await asyncio.to_thread(self._ray.get, calls)]
        except self._ray.exceptions.RayError:  # somebody died or raised: one by one
            parts = await asyncio.gather(*(self._part(h, part, message) for h, part in shares))
        joined = Reply.join(list(parts))
        back = np.empty(len(order), np.int64)
        back[np.concatenate(picks)] = np.arange(len(order))
        return joined.part(back)

    async def _part(self, index: int, part: Batch, message: Any) -> Reply:
        packed = _light(part, message)
        for _ in range(TRIES):
            host = self.hosts[index]
            try:
                reply: Reply = pickle.loads(await host.compute.remote(packed, message))
                return reply
            except self._ray.exceptions.RayTaskError as error:  # the client's own code raised: no repetition helps
                cause = error.cause
                raise cause if isinstance(cause, FedsimError) else RuntimeFailed(str(error)) from error
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
                if self.hosts[index] is host:
                    self.hosts[index] = self._host(index)
        raise RuntimeFailed(
            f"the host of clients {self._shards[index][0]} to {self._shards[index][-1]} died {TRIES} times over round "
            f"{part.round + 1}; look at its memory, then resume from the last checkpoint"
        )

    async def about(self) -> list[dict[str, Any]]:
        """What every host says of itself."""
        return list(await asyncio.gather(*(h.about.remote() for h in self.hosts)))

    def close(self) -> None:
        """Stop the hosts; shut Ray down if this run started or joined it."""
        for host in getattr(self, "hosts", ()):
            self._ray.kill(host)
        if self._owned:
            self._ray.shutdown()


def _light(part: Batch, message: Any) -> bytes:
    """The batch as it travels, without its message where that is an object of its own."""
    return _pack(part if message is None else replace(part, message={}))


def _pack(part: Batch | Reply) -> bytes:
    """One string of bytes: Ray takes half as long over it as over a handful of small arrays."""
    return pickle.dumps(part, protocol=5)


def _carry_source(part: Any) -> None:
    """A class from a scenario file or a script exists on no other machine: send its code along with it."""
    from ray import cloudpickle

    module = sys.modules.get(type(part).__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "fedsim":
        return
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    if not any(str(file).startswith(str(folder)) for folder in installed):
        cloudpickle.register_pickle_by_value(module)


def client_rows(setting: Setting) -> dict[str, Array]:
    """What a host knows of each of its clients."""
    return {"weight": setting.weights, **setting.rows}


def _cores() -> int:
    return os.cpu_count() or 1
