"""Hosts that each have one function: calls go to them in turn, and each call is a pure function of its argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedsim.errors import RuntimeFailed
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.cluster import cores, release, use
from fedsim.runtime.ray.hosts import HostCall, Hosts


@dataclass(frozen=True)
class Submitted:
    """A call that was started, and its argument, with which it can be repeated."""

    call: HostCall
    argument: Any


class ActorPool:
    """`runtime.hosts` actors; each makes its function by `make()` when it starts."""

    def __init__(self, runtime: Ray, make: Callable[[], Callable[[Any], Any]]) -> None:
        count = runtime.hosts or cores()
        self._cluster = use(runtime, count)
        try:
            actor = self._cluster.ray.remote(Actor)
            self._hosts = Hosts(
                self._cluster, runtime, count, lambda index, options: actor.options(**options).remote(make)
            )
        except BaseException:
            release(self._cluster)
            raise

    def submit(self, number: int, argument: object) -> Submitted:
        """Start a call; return what `result` takes."""
        return Submitted(self._call(number % len(self._hosts.actors), argument), argument)

    def _call(self, index: int, argument: object) -> HostCall:
        host = self._hosts.actors[index]
        return HostCall(index, host, host.call.remote(argument))

    def result(self, submitted: Submitted) -> Any:
        """Wait for a call."""
        ray, index = self._cluster.ray, submitted.call.index
        try:
            return self._hosts.answer(submitted.call, lambda: self._call(index, submitted.argument))[1]
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError as error:
            raise RuntimeFailed(str(error).strip().splitlines()[0]) from error

    def close(self) -> None:
        self._hosts.close()
        release(self._cluster)


class Actor:
    """One function in a process of its own, made at the first call."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self.make = make
        self.function: Callable[[Any], Any] | None = None

    def node(self) -> str:
        """Return the id of the node that it runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def call(self, argument: object) -> Any:
        self.function = self.function or self.make()
        return self.function(argument)
