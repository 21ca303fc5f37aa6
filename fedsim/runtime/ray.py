"""Jobs on Ray: client hosts, asyncio actors that each own a shard of the clients and model every one of them.

A host is given its clients' data once, through the object store, and computes with the code that `inline` uses. It
keeps what its clients' latest jobs left them to remember. The driver has the snapshot of what was folded, and sends a
row of it only to a host that does not hold that very row: on a first visit, after a reply that was not folded, or after
a death. So a host that dies takes nothing with it, its successor repeats the lost jobs, and the bits are the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import re
import socket
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim import kernels
from fedsim.arrays import Array, Arrays
from fedsim.errors import FedsimError, InvalidInput, RuntimeFailed, positive, quoted, shown, whole
from fedsim.protocols import AlgorithmLike, HasShards
from fedsim.runtime.client_memory import HeldMemory, MemoryAtHost, SentBatch
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.ray_own import OwnRay, hear_sigterm
from fedsim.runtime.worker import Worker

TRIES = 5  # hosts in a row that may die over one batch
INLINE_BYTES = 100_000  # a broadcast up to this size travels inside the call, a larger one once as an object
LOOK_S = 1.0  # how often those who wait for hosts make sure that Ray itself is alive
REMEDY = "look at the machine's memory, then resume from the last checkpoint"


@dataclass(frozen=True)
class Ray:
    """Run jobs on `hosts` client hosts, or on as many as `clients_per_host` asks for (1: an actor per client).

    `address=None` starts a Ray of its own, which nobody else can reach, and shuts it down again; an address joins that
    cluster and leaves it as it was. With `num_gpus_per_host` the hosts compute with CUDA.
    """

    hosts: int | None = None
    address: str | None = None
    clients_per_host: int | None = None
    num_gpus_per_host: float = 0
    num_cpus_per_host: float = 1

    def __post_init__(self) -> None:
        if self.address is not None:
            _check_address(self.address)
        if self.hosts is not None and self.clients_per_host is not None:
            raise InvalidInput("Ray(hosts=..., clients_per_host=...): give one of the two; the other follows")
        for name in ("hosts", "clients_per_host"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(f"Ray({name}={{}})", getattr(self, name)))
        for name in ("num_gpus_per_host", "num_cpus_per_host"):
            positive(f"Ray({name}={{}})", getattr(self, name), zero=True)

    def kernels(self) -> Any:
        """The driver's own backend: draws, folds. Hosts with GPUs choose CUDA for themselves."""
        return kernels.backend("cpu")

    def open(self, algorithm: AlgorithmLike, setting: Setting) -> RaySession:
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
    """A client host: its shard's data, its clients' rows and their memory, its kernels. One call per batch."""

    def __init__(
        self, algorithm: AlgorithmLike, setting: tuple[Any, ...], clients: Array, rows: Arrays, backend: str
    ) -> None:
        from threadpoolctl import threadpool_limits

        hear_sigterm()
        self.clients, self.rows, self.held = clients, rows, HeldMemory()
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
        return _pack(reply)

    async def about(self) -> dict[str, Any]:
        """Whom it models, and what their links and devices are like."""
        held = len(getattr(self.worker.setting.problem, "x", ()))
        return {"pid": os.getpid(), "clients": self.clients, "rows_held": held, **self.rows}


@dataclass(frozen=True)
class Call:
    """Jobs that were handed to a host, and where its answer will be."""

    index: int
    host: Any
    number: int
    part: Batch
    message: Any  # the broadcast, where it is an object of its own
    answer: Any


class RaySession:
    """A run's hosts. A client's shard says which host computes it; replies come together in the batch's order."""

    elsewhere = True  # jobs sent early run while the driver keeps time
    can_iterate = False

    def __init__(self, runtime: Ray, algorithm: AlgorithmLike, setting: Setting) -> None:
        import ray

        self._ray, self._runtime = ray, runtime
        self._shards = runtime.shards(setting.problem.clients)
        self._own: OwnRay | None = None
        self._joined = self._start(len(self._shards))
        self._waiting = ThreadPoolExecutor(64, "fedsim-ray")
        try:
            self._host_of = np.repeat(np.arange(len(self._shards)), [len(s) for s in self._shards])
            self._backend = "cuda" if runtime.num_gpus_per_host else "cpu"
            for part in (algorithm, setting.problem, *setting.role.brought):
                _carry_source(part)
            self._algorithm = ray.put(algorithm)
            self._settings = [ray.put(held) for held in _dealt(setting, self._shards)]
            self._rows = {"weight": setting.weights, **setting.rows}  # what a host knows of its clients
            self._actor = ray.remote(Host)
            self.hosts = [self._host(i) for i in range(len(self._shards))]
            self._at_hosts = [MemoryAtHost() for _ in self.hosts]
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: int) -> bool:
        """Join a Ray that is there, or start one; True if a cluster was joined that is ours to leave."""
        ray, runtime = self._ray, self._runtime
        needed = {"CPU": hosts * runtime.num_cpus_per_host, "GPU": hosts * runtime.num_gpus_per_host}
        if runtime.address is None and not ray.is_initialized():
            self._own = OwnRay(max(1, int(np.ceil(needed["CPU"]))))
            return False
        joined = not ray.is_initialized()
        if joined:
            join(ray, runtime.address)
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
        return self._actor.options(**options).remote(
            self._algorithm, self._setting_of(index), clients, rows, self._backend
        )

    def _setting_of(self, index: int) -> Any:
        """A host's own object, or the one that all have."""
        return self._settings[index if len(self._settings) > 1 else 0]

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """All replies of the batch, one call per host that owns some of its clients."""
        self._look()  # before Ray is asked for anything: it ends a process that uses an object store which is gone
        owner = self._host_of[batch.client]
        size = sum(m.nbytes for m in batch.message.values())
        message = self._ray.put(batch.message) if size > INLINE_BYTES else None
        order = np.argsort(owner, kind="stable")
        present, begin = np.unique(owner[order], return_index=True)
        picks = np.split(order, begin[1:])
        calls = [self._call(int(h), batch.part(p), message) for h, p in zip(present, picks, strict=True)]
        try:  # waiting for all of them in a thread is cheaper than awaiting each
            loop, answers = asyncio.get_running_loop(), [call.answer for call in calls]
            answers = await loop.run_in_executor(self._waiting, self._get, answers)
            opened = [self._opened(call, answer) for call, answer in zip(calls, answers, strict=True)]
        except self._ray.exceptions.RayError:  # somebody died or raised
            opened = []
        parts = [reply for reply in opened if reply is not None]
        if len(parts) < len(calls):
            parts = await asyncio.gather(*map(self._insist, calls))
        joined = Reply.join(parts)
        back = np.empty(len(order), np.int64)
        back[np.concatenate(picks)] = np.arange(len(order))
        return joined.part(back)

    def _call(self, index: int, part: Batch, message: object, in_full: bool = False) -> Call:
        """Hand jobs to a host; without their message where that is an object of its own."""
        bare = part if message is None else replace(part, message={})
        light = SentBatch.full(bare) if in_full else self._at_hosts[index].to_send(bare)
        host = self.hosts[index]
        return Call(index, host, light.call, part, message, host.compute.remote(_pack(light), message))

    def _get(self, answers: list[Any]) -> list[Any]:
        """What hosts answered. Those of a Ray that has died would never do so, and say nothing of it."""
        while True:
            try:
                return list(self._ray.get(answers, timeout=LOOK_S))
            except self._ray.exceptions.GetTimeoutError:
                self._look()

    def _look(self) -> None:
        if self._own is not None:
            self._own.check(REMEDY)

    def _opened(self, call: Call, answer: bytes) -> Reply | None:
        """The jobs' replies, or None where the host lacked somebody's memory."""
        if not answer:
            return None
        reply: Reply = pickle.loads(answer)
        self._at_hosts[call.index].note(call.part, call.number, reply)
        return reply

    async def _insist(self, call: Call) -> Reply:
        """The replies of a call that may have failed: again, with everybody's memory, at a new host if need be."""
        for attempt in range(TRIES):
            if attempt > 0:
                call = self._call(call.index, call.part, call.message, in_full=True)
            try:
                loop = asyncio.get_running_loop()
                (answer,) = await loop.run_in_executor(self._waiting, self._get, [call.answer])
                reply = self._opened(call, answer)
                if reply is not None:
                    return reply
            except self._ray.exceptions.RayTaskError as error:  # the client's own code raised: no repetition helps
                cause = error.cause
                raise cause if isinstance(cause, FedsimError) else RuntimeFailed(str(error)) from error
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
                self._look()  # nor is there anybody to start another host
                if self.hosts[call.index] is call.host:
                    self.hosts[call.index], self._at_hosts[call.index] = self._host(call.index), MemoryAtHost()
        clients = self._shards[call.index]
        raise RuntimeFailed(
            f"the host of clients {clients[0]} to {clients[-1]} died {TRIES} times over round {call.part.round + 1}; "
            "look at its memory, then resume from the last checkpoint"
        )

    async def about(self) -> list[dict[str, Any]]:
        """What every host says of itself."""
        return list(await asyncio.gather(*(h.about.remote() for h in self.hosts)))

    def close(self) -> None:
        """Stop the hosts; shut Ray down if this run started it, leave it if this run joined it."""
        for host in getattr(self, "hosts", ()):
            self._ray.kill(host)
        self._waiting.shutdown(cancel_futures=True)  # nobody may wait for a Ray that is gone
        if self._own is not None:
            self._own.close()
        elif self._joined:
            self._ray.shutdown()


def _check_address(address: Any) -> None:
    """Refuse what cannot be an address: Ray would look for minutes, or take it for something else."""
    good = r"auto|local|(ray://)?([\w.\-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}"
    fits = isinstance(address, str) and re.fullmatch(good, address, re.ASCII)
    if not fits or (":" in address and not 0 < int(address.rpartition(":")[2]) < 2**16):
        raise InvalidInput(f"Ray(address={quoted(address)}): write host:port, such as '10.0.0.1:6379', or 'auto'")


def join(ray: Any, address: object) -> None:
    """Join the cluster at `address`; where nobody listens, say so at once: Ray itself would try for minutes."""
    host, _, port = str(address).rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.removeprefix("ray://").strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises a dozen kinds, by what is wrong with an address
        raise RuntimeFailed(
            f"Ray(address={quoted(address)}): no cluster answers there ({shown(error)}); start one with "
            "`ray start --head`, or leave the address out for a Ray on this machine alone"
        ) from None


def _pack(parts: SentBatch | Reply) -> bytes:
    """One string of bytes: Ray takes half as long over it as over a handful of small arrays."""
    return pickle.dumps(parts, protocol=5)


def _dealt(setting: Setting, shards: list[Array]) -> list[tuple[Any, ...]]:
    """What hosts are given: each the rows of its own clients, if the problem can be dealt, else all the whole of it."""
    common = (setting.weights, setting.seed, setting.dtype)
    if not isinstance(setting.problem, HasShards):
        return [(setting.problem, *common)]
    return [(setting.problem.shard(clients), *common) for clients in shards]


def _carry_source(part: object) -> None:
    """A class from a scenario file or a script exists on no other machine: send its code along with it."""
    from ray import cloudpickle

    module = sys.modules.get(part.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or module.__name__.partition(".")[0] == "fedsim":
        return
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    if not any(str(file).startswith(str(folder)) for folder in installed):
        cloudpickle.register_pickle_by_value(module)


def _cores() -> int:
    return os.cpu_count() or 1
