"""Jobs on Ray: client hosts, asyncio actors that each own a shard of the clients.

A host receives its clients' data once, through the object store, and computes with the code of `inline`. It caches the
memory after its clients' latest jobs. The driver has the committed memory and sends a row of it only to a host without
that row: on a first visit, after a reply that was not aggregated, or after a host died. No state is lost with a host:
its successor repeats the lost jobs, and the bits are the same.
"""

from __future__ import annotations

import asyncio
import os
import pickle
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
from fedsim.runtime.ray.cluster import OwnRay, check_address, join
from fedsim.runtime.ray.host import Host, MemoryAtHost, SentBatch, carry_source, pack, split_setting

# Real seconds before each replacement of a dead host: for a while Ray may start the next one on a lost node.
PAUSES_S = (0.0, 2.0, 8.0, 20.0)
TRIES = len(PAUSES_S) + 1
INLINE_BYTES = 100_000  # a broadcast up to this size is sent with the call, a larger one once as an object
FULL_DATA_BYTES = 64_000_000  # data up to this size are sent to every host, for blocks of rounds
LOOK_S = 1.0  # between checks that Ray itself is alive
REMEDY = "look at the machine's memory, then resume from the last checkpoint"


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
        hosts = (
            f"{self.clients_per_host} clients a host" if self.clients_per_host else f"{self.hosts or _cores()} hosts"
        )
        return f"ray, {hosts}" + (f", {self.address}" if self.address else "")

    def shards(self, clients: int) -> list[Array]:
        """Return the clients of each host: consecutive numbers, in shards of nearly equal size."""
        count = -(-clients // self.clients_per_host) if self.clients_per_host else min(self.hosts or _cores(), clients)
        return [np.asarray(part) for part in np.array_split(np.arange(clients), count)]


@dataclass(frozen=True)
class HostCall:
    """A call of a host: its jobs, and the reference of its answer."""

    index: int
    host: Any
    number: int
    part: Batch
    message: Any  # the broadcast, where it is a separate object
    answer: Any


class RaySession:
    """The client hosts of a run. Each computes the clients of its shard; replies are joined in the batch's order."""

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
            self.hosts = [self._host(i) for i in range(len(self._shards))]
            self._at_hosts = [MemoryAtHost() for _ in self.hosts]
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: int) -> bool:
        """Join a running Ray, or start one; return True if this session joined a cluster."""
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
        """Return a host's own object, or the one that all hosts share."""
        return self._settings[index if len(self._settings) > 1 else 0]

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """Return all replies of the batch, with one call for each host of its clients."""
        self._look()  # first: Ray ends a process that uses a dead object store
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
        except self._ray.exceptions.RayError:  # a host died or raised
            opened = []
        parts = [reply for reply in opened if reply is not None]
        if len(parts) < len(calls):
            parts = await asyncio.gather(*map(self._retry, calls))
        joined = Reply.join(parts)
        back = np.empty(len(order), np.int64)
        back[np.concatenate(picks)] = np.arange(len(order))
        return joined.part(back)

    def _call(self, index: int, part: Batch, message: object, in_full: bool = False) -> HostCall:
        """Send jobs to a host, without their message where that is a separate object."""
        bare = part if message is None else replace(part, message={})
        light = SentBatch.full(bare) if in_full else self._at_hosts[index].to_send(bare)
        host = self.hosts[index]
        return HostCall(index, host, light.call, part, message, host.compute.remote(pack(light), message))

    def _get(self, answers: list[Any]) -> list[Any]:
        """Wait for answers of hosts. A dead Ray neither answers nor raises."""
        while True:
            try:
                return list(self._ray.get(answers, timeout=LOOK_S))
            except self._ray.exceptions.GetTimeoutError:
                self._look()

    def _look(self) -> None:
        if self._own is not None:
            self._own.check(REMEDY)

    def _opened(self, call: HostCall, answer: bytes) -> Reply | None:
        """Return the jobs' replies; None where the host had no memory of a client."""
        if not answer:
            return None
        reply: Reply = pickle.loads(answer)
        self._at_hosts[call.index].note(call.part, call.number, reply)
        return reply

    async def _retry(self, call: HostCall) -> Reply:
        """Return the replies of a call that may have failed; repeat it with all memory, at a new host if necessary."""
        for pause_s in (*PAUSES_S, None):
            try:
                reply = self._opened(call, await self._answer(call.answer))
                if reply is not None:
                    return reply
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
                await self._replace(call.index, call.host, pause_s)
            call = self._call(call.index, call.part, call.message, in_full=True)
        clients = self._shards[call.index]
        raise RuntimeFailed(
            f"the host of clients {clients[0]} to {clients[-1]} died {TRIES} times over round {call.part.round + 1}; "
            "look at its memory, then resume from the last checkpoint"
        )

    async def learn(self, block: LearningBlock) -> Learnt:
        """Learn the rounds of a block, some replicas at each host."""
        self._look()
        parts = block.parts(len(self.hosts))
        return Learnt.join(list(await asyncio.gather(*(self._learn(i, pack(part)) for i, part in enumerate(parts)))))

    async def _learn(self, index: int, packed: bytes) -> Learnt:
        """Learn one host's share; the host stores nothing, so that another one can repeat it."""
        for pause_s in (*PAUSES_S, None):
            host = self.hosts[index]
            try:
                answer = await self._answer(host.learn.remote(self._all_data, packed))
                done: Learnt = pickle.loads(answer)
                return done
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError):
                await self._replace(index, host, pause_s)
        raise RuntimeFailed(f"host {index} died {TRIES} times over a block of rounds; {REMEDY}")

    async def _answer(self, answer: object) -> bytes:
        """Return a host's answer; raise what its client's code raised, which is not repeated."""
        try:
            (found,) = await asyncio.get_running_loop().run_in_executor(self._waiting, self._get, [answer])
            return bytes(found)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, FedsimError) else RuntimeFailed(str(error)) from error

    async def _replace(self, index: int, dead: object, pause_s: float | None) -> None:
        """Replace a dead host after a pause, unless that was done; None: give up."""
        self._look()  # raises if Ray itself has died
        await asyncio.sleep(pause_s or 0.0)
        if pause_s is not None and self.hosts[index] is dead:
            self.hosts[index], self._at_hosts[index] = self._host(index), MemoryAtHost()

    async def about(self) -> list[dict[str, Any]]:
        """Return what every host models."""
        return list(await asyncio.gather(*(h.about.remote() for h in self.hosts)))

    def close(self) -> None:
        """Stop the hosts; shut Ray down if this run started it, leave it if this run joined it."""
        for host in getattr(self, "hosts", ()):
            self._ray.kill(host)
        self._waiting.shutdown(cancel_futures=True)  # do not wait for a dead Ray
        if self._own is not None:
            self._own.close()
        elif self._joined:
            self._ray.shutdown()


def _cores() -> int:
    return os.cpu_count() or 1
