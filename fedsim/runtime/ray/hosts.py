"""Actors of a cluster. A dead one is replaced and its call repeated, at most a few times.

A replacement that finds no free CPU, because its node died, is placed beside a living host, whose CPUs it shares. If
there is none the calls raise. All of it takes less than a minute, Ray's own time to detect a dead node included.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsim.errors import RuntimeFailed
from fedsim.runtime.ray.cluster import Cluster

if TYPE_CHECKING:
    from fedsim.runtime.ray import Ray

PAUSES_S = (0.0, 1.0, 3.0, 9.0)  # before each replacement: for a while Ray may start the next one on a lost node
TRIES = len(PAUSES_S) + 1
START_S = 20.0  # for the next process of a host
BUSY_S = 45.0  # for the first process, where the CPUs are there: the file system may be slow, or others use them
LOOK_S = 1.0  # between checks while calls are waited for


@dataclass(frozen=True)
class HostCall:
    """A call of a host, and the reference of its answer."""

    index: int
    host: Any
    answer: Any


class Hosts:
    """Actors by number; `start(index, options)` starts one, and each has a method `node`."""

    def __init__(self, cluster: Cluster, runtime: Ray, count: int, start: Callable[[int, dict[str, Any]], Any]) -> None:
        from ray import exceptions

        self.cluster, self._ray, self._start_actor = cluster, cluster.ray, start
        needed = {"num_cpus": runtime.num_cpus_per_host, "num_gpus": runtime.num_gpus_per_host}
        self._options: dict[str, Any] = {**needed, "max_restarts": 0}
        died, lost = (exceptions.RayActorError, exceptions.OutOfMemoryError), exceptions.ObjectLostError
        self._deaths = (*died, exceptions.NodeDiedError, lost)
        self._ended, self._lock = threading.Event(), threading.RLock()
        self.actors: list[Any] = [None] * count
        self._node: list[Any] = [None] * count  # references of the nodes' ids: a host that runs has answered
        self._waiting: set[int] = set()  # hosts that do not run yet
        for index in range(count):
            self._start(index)

    def _start(self, index: int, options: dict[str, Any] | None = None) -> None:
        self.actors[index] = self._start_actor(index, self._options | (options or {}))
        self._node[index] = self.actors[index].node.remote()
        self._waiting.add(index)
        self._changed = time.monotonic()

    def get(self, answers: list[Any]) -> list[Any]:
        """Wait for answers of hosts, as long as Ray is alive and every host can start."""
        while True:
            self._check()
            try:
                return list(self._ray.get(answers, timeout=LOOK_S))
            except self._ray.exceptions.GetTimeoutError:
                self._place_waiting()

    def answer(self, call: HostCall, again: Callable[[], HostCall]) -> tuple[HostCall, Any]:
        """Return a call and its answer; `again` repeats the call at the host that replaces a dead one."""
        died = 0
        while True:
            try:
                return call, self.get([call.answer])[0]
            except self._deaths as death:
                died += 1
                self._replace(call, died, death)
                call = again()

    def _replace(self, call: HostCall, died: int, death: Exception) -> None:
        """Replace a dead host after a pause, unless that was done; give up if its calls ended too many."""
        self._check()
        if died >= TRIES:
            cause = ", last for lack of memory" if isinstance(death, self._ray.exceptions.OutOfMemoryError) else ""
            raise RuntimeFailed(f"client host {call.index} died {died} times{cause}; look at the machine's memory")
        if self.actors[call.index] is call.host:
            self._ended.wait(PAUSES_S[died - 1])
            with self._lock:
                if self.actors[call.index] is call.host and not self._ended.is_set():
                    self._start(call.index)

    def _check(self) -> None:
        """Raise if Ray has died, or if the run has ended because another call failed."""
        if self._ended.is_set():
            raise RuntimeFailed("the client hosts have been stopped")
        self.cluster.check()

    def _place_waiting(self) -> None:
        """Place hosts beside living ones if none of those that wait for a CPU has started for START_S."""
        with self._lock:
            for index in sorted(self._waiting):
                if self._ray.wait([self._node[index]], timeout=0)[0]:
                    self._waiting.remove(index)
                    self._changed = time.monotonic()
            if time.monotonic() - self._changed >= START_S and self.cluster.own is None:
                for index in sorted(self._waiting):
                    self._place_beside(index)

    def _place_beside(self, index: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = None if self._options["num_gpus"] else self._least_used()
        if node is None:
            room = sum(self.cluster.nodes().values()) >= self._options["num_cpus"] * len(self.actors)
            if room and time.monotonic() - self._changed < BUSY_S:
                return
            free = self._ray.available_resources()
            raise RuntimeFailed(
                f"client host {index} cannot start: {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs of the "
                f"cluster are free, a host needs {self._options['num_cpus']:g} and {self._options['num_gpus']:g}; "
                "add nodes, or ask for fewer hosts"
            )
        self._ray.kill(self.actors[index])
        self._start(index, {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)})
        self._waiting.remove(index)  # it needs no CPU of its own; if its node dies, so does it

    def _least_used(self) -> str | None:
        """Return the living node with the fewest of our hosts, among those that have one."""
        running = self._ray.wait(self._node, num_returns=len(self._node), timeout=0)[0]
        found: Counter[str] = Counter()
        for reference in running:
            try:
                found[self._ray.get(reference)] += 1
            except self._ray.exceptions.RayError:
                continue  # it died before it could answer
        alive = self.cluster.nodes()
        return min((node for node in sorted(found) if node in alive), key=found.__getitem__, default=None)

    def close(self) -> None:
        """Stop the hosts."""
        self._ended.set()
        for actor in self.actors:
            if actor is not None and not self.cluster.lost:  # it would wait for a minute
                self._ray.kill(actor)
