"""Actors that each hold one function: calls go to them in turn, and each call is a pure function of its argument."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fedsim.errors import RuntimeFailed
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.tasks import join_or_start

RETRIES = 2  # of a call whose actor dies


class ActorPool:
    """`runtime.hosts` actors; each makes its function by `make()` when it starts."""

    def __init__(self, runtime: Ray, make: Callable[[], Callable[[Any], Any]]) -> None:
        import ray

        self._ray, count = ray, runtime.hosts or os.cpu_count() or 1
        self._own, self._joined = join_or_start(ray, runtime, count)
        options = {"num_cpus": runtime.num_cpus_per_host, "num_gpus": runtime.num_gpus_per_host}
        actor = ray.remote(Actor).options(max_restarts=RETRIES, max_task_retries=RETRIES, **options)
        self._actors = [actor.remote(make) for _ in range(count)]

    def submit(self, number: int, argument: Any) -> Any:
        """Start a call; return what `result` takes."""
        return self._actors[number % len(self._actors)].call.remote(argument)

    def result(self, submitted: Any) -> Any:
        """Wait for a call."""
        try:
            return self._ray.get(submitted)
        except self._ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            raise RuntimeFailed(str(error).strip().splitlines()[0]) from error

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._own is not None:
            self._own.close()
        elif self._joined:
            self._ray.shutdown()


class Actor:
    """One function in a process of its own."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]]) -> None:
        self.function = make()

    def call(self, argument: Any) -> Any:
        return self.function(argument)
