"""Jobs on Ray: client hosts, asyncio actors that each own a shard of the clients.

A host receives its clients' data once, through the object store, and computes with the code of `inline`. It caches the
memory after its clients' latest jobs. The driver has the committed memory and sends a row of it only to a host without
that row: on a first visit, after a reply that was not aggregated, or after a host died. No state is lost with a host:
its successor repeats the lost jobs, and the bits are the same.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedsim import kernels
from fedsim.arrays import Array
from fedsim.checks import check_int, check_positive
from fedsim.errors import FedsimError, InvalidInput, RuntimeFailed
from fedsim.protocols import AlgorithmLike
from fedsim.runtime.blocks import LearningBlock, Learnt
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.ray.cluster import check_address, cores, release, use
from fedsim.runtime.ray.host import Host, MemoryAtHost, SentBatch, carry_source, pack, split_setting
from fedsim.runtime.ray.hosts import HostCall, Hosts

INLINE_BYTES = 100_000  # a broadcast up to this size is sent with the call, a larger one once as an object
FULL_DATA_BYTES = 64_000_000  # data up to this size are sent to every host, for blocks of rounds
ABOUT_S = 10.0  # for hosts to describe themselves at the end of a run


@dataclass(frozen=True)
class Ray:
    """Jobs on `hosts` client hosts, or on hosts of `clients_per_host` clients each (1: an actor per client).

    `address=None` starts a private Ray and shuts it down at the end; an address joins that cluster. With
    `num_gpus_per_host` the hosts compute with CUDA.
    """

    hosts: int | None = None
    address: str | None = None
    clients_per_host: int | None = None
    num_gpus_per_host: float = 0
    num_cpus_per_host: float = 1

    def __post_init__(self) -> None:
        if self.address is not None:
            check_address(self.address)
        if self.hosts is not None and self.clients_per_host is not None:
            raise InvalidInput("Ray(hosts=..., clients_per_host=...): give one of the two")
        for name in ("hosts", "clients_per_host"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_int(f"Ray({name}={{}})", getattr(self, name)))
        for name in ("num_gpus_per_host", "num_cpus_per_host"):
            check_positive(f"Ray({name}={{}})", getattr(self, name), zero=True)

    def kernels(self) -> Any:
        """Return the driver's backend, for draws and aggregation. Hosts with GPUs use CUDA."""
        return kernels.backend("cpu")

    def open(self, algorithm: AlgorithmLike, setting: Setting) -> RaySession:
        return RaySession(self, algorithm, setting)

    def describe(self) -> str:
        hosts = f"{self.clients_per_host} clients a host" if self.clients_per_host else f"{self.hosts or cores()} hosts"
        return f"ray, {hosts}" + (f", {self.address}" if self.address else "")

    def shards(self, clients: int) -> list[Array]:
        """Return the clients of each host: consecutive numbers, in shards of nearly equal size."""
        count = -(-clients // self.clients_per_host) if self.clients_per_host else min(self.hosts or cores(), clients)
        return [np.asarray(part) for part in np.array_split(np.arange(clients), count)]


@dataclass(frozen=True)
class BatchCall(HostCall):
    """A call of a host with its jobs."""

    number: int
    part: Batch
    message: Any  # the broadcast, where it is a separate object


class RaySession:
    """The client hosts of a run. Each computes the clients of its shard; replies are joined in the batch's order."""

    def __init__(self, runtime: Ray, algorithm: AlgorithmLike, setting: Setting) -> None:
        self._runtime, self._shards = runtime, runtime.shards(setting.problem.clients)
        self._cluster = use(runtime, len(self._shards))
        self._ray = ray = self._cluster.ray
        self._waiting = ThreadPoolExecutor(64, "fedsim-ray")
        try:
            self._cluster.require(len(self._shards), runtime)
            self._host_of = np.repeat(np.arange(len(self._shards)), [len(s) for s in self._shards])
            self._backend = "cuda" if runtime.num_gpus_per_host else "cpu"
            for part in (algorithm, setting.problem, *setting.role.user_code):
                carry_source(part)
            self._algorithm = ray.put(algorithm)
            self._settings = [ray.put(held) for held in split_setting(setting, self._shards)]
            self._rows = {"weight": setting.weights, **setting.rows}  # a host's columns of its clients
            size = int(setting.problem.sizes.sum()) * setting.problem.dim * setting.dtype.itemsize
            fits = self._backend == "cpu" and size <= FULL_DATA_BYTES
            self.learns_blocks = fits and Worker(algorithm, setting).learns_blocks
            self._all_data = ray.put(setting.problem) if self.learns_blocks else None
            self._actor = ray.remote(Host)
            self._at_hosts = [MemoryAtHost() for _ in self._shards]
            self._hosts = Hosts(self._cluster, runtime, len(self._shards), self._host)
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> list[Any]:
        """The actors."""
        return self._hosts.actors

    def _host(self, index: int, options: dict[str, Any]) -> Any:
        """Start a host; it fetches its data at the first call, so that it answers at once where it runs."""
        clients = self._shards[index]
        self._at_hosts[index] = MemoryAtHost()
        rows = {name: column[clients] for name, column in self._rows.items()}
        parts = (self._algorithm, self._settings[index if len(self._settings) > 1 else 0])
        return self._actor.options(**options).remote(parts, clients, rows, self._backend)

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """Return all replies of the batch, with one call for each host of its clients."""
        self._cluster.check()  # first: Ray ends a process that uses a dead object store
        owner = self._host_of[batch.client]
        size = sum(m.nbytes for m in batch.message.values())
        message = self._ray.put(batch.message) if size > INLINE_BYTES else None
        order = np.argsort(owner, kind="stable")
        present, begin = np.unique(owner[order], return_index=True)
        picks = np.split(order, begin[1:])
        calls = [self._call(int(h), batch.part(p), message) for h, p in zip(present, picks, strict=True)]
        try:  # waiting for all of them in a thread is cheaper than awaiting each
            answers = await self._in_thread(self._hosts.get, [call.answer for call in calls])
            opened = [self._opened(call, answer) for call, answer in zip(calls, answers, strict=True)]
        except self._ray.exceptions.RayError:  # a host died or raised
            opened = []
        parts = [reply for reply in opened if reply is not None]
        if len(parts) < len(calls):
            parts = await asyncio.gather(*(self._in_thread(self._finish, call) for call in calls))
        joined = Reply.join(parts)
        back = np.empty(len(order), np.int64)
        back[np.concatenate(picks)] = np.arange(len(order))
        return joined.part(back)

    def _in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        return asyncio.get_running_loop().run_in_executor(self._waiting, function, *arguments)

    def _call(self, index: int, part: Batch, message: object, in_full: bool = False) -> BatchCall:
        """Send jobs to a host, without their message where that is a separate object."""
        bare = part if message is None else replace(part, message={})
        light = SentBatch.full(bare) if in_full else self._at_hosts[index].to_send(bare)
        host = self.hosts[index]
        return BatchCall(index, host, host.compute.remote(pack(light), message), light.call, part, message)

    def _opened(self, call: BatchCall, answer: bytes) -> Reply | None:
        """Return the jobs' replies; None where the host had no memory of a client."""
        if not answer:
            return None
        reply: Reply = pickle.loads(answer)
        self._at_hosts[call.index].note(call.part, call.number, reply)
        return reply

    def _finish(self, call: BatchCall) -> Reply:
        """Return the replies of a call that may have failed; repeat it with all memory, at a new host if necessary."""

        def again() -> BatchCall:
            return self._call(call.index, call.part, call.message, in_full=True)

        reply = self._opened(*self._answer(call, again))
        while reply is None:
            reply = self._opened(*self._answer(again(), again))
        return reply

    async def learn(self, block: LearningBlock) -> Learnt:
        """Learn the rounds of a block, some replicas at each host."""
        self._cluster.check()
        parts = block.parts(len(self.hosts))
        return Learnt.join(
            list(await asyncio.gather(*(self._in_thread(self._learn, i, pack(part)) for i, part in enumerate(parts))))
        )

    def _learn(self, index: int, packed: bytes) -> Learnt:
        """Learn one host's share; the host stores nothing, so that another one can repeat it."""

        def again() -> HostCall:
            host = self.hosts[index]
            return HostCall(index, host, host.learn.remote(self._all_data, packed))

        done: Learnt = pickle.loads(self._answer(again(), again)[1])
        return done

    def _answer(self, call: HostCall, again: Callable[[], HostCall]) -> tuple[Any, bytes]:
        """Return a host's answer; raise what its client's code raised, which is not repeated."""
        try:
            return self._hosts.answer(call, again)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, FedsimError) else RuntimeFailed(str(error)) from error

    async def describe_hosts(self) -> list[dict[str, Any]]:
        """Return what each host models: its clients, their links and devices, where it runs and the bytes it holds."""
        asked = [host.about.remote() for host in self.hosts]
        self._ray.wait(asked, num_returns=len(asked), timeout=ABOUT_S)
        out = []
        for index, (clients, answer) in enumerate(zip(self._shards, asked, strict=True)):
            row: dict[str, Any] = {
                "host": index,
                "clients": len(clients),
                "first": int(clients[0]),
                "last": int(clients[-1]),
            }
            for name, column in self._rows.items():
                row |= {f"{name}_min": float(column[clients].min()), f"{name}_max": float(column[clients].max())}
            try:
                found = self._ray.get(answer, timeout=0)
                row |= {name: found[name] for name in ("bytes_held", "node", "pid")}
            except self._ray.exceptions.RayError:  # it has died since its last call, or is busy
                row |= {"bytes_held": None, "node": None, "pid": None}
            out.append(row)
        return out

    def close(self) -> None:
        """Stop the hosts and give the cluster back."""
        if hasattr(self, "_hosts"):
            self._hosts.close()
        self._waiting.shutdown(cancel_futures=True)
        release(self._cluster)
