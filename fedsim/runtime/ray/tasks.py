"""Independent calls as tasks of a Ray cluster, for many runs at once, each with the inline runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from fedsim.errors import RuntimeFailed
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.cluster import OwnRay, join

RETRIES = 2  # of a task whose process or machine dies
TICK_S = 0.2
REMEDY = "look at the machine's memory, then repeat the command with --resume"


def spread(
    runtime: Ray, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int | None,
    tick: Callable[[], bool],
) -> Iterator[tuple[int, Any]]:  # fmt: skip
    """Call `function` with each of `calls`, at most `jobs` at a time, anywhere on the cluster.

    Yield (number, None) when a call is submitted and (number, answer) when it is done, with an error as the answer if
    it died. `tick()` is called several times a second; once false, no call is submitted.
    """
    import ray

    own, joined = join_or_start(ray, runtime, jobs)
    try:
        cores = ray.cluster_resources().get("CPU", 1)
        most = jobs or max(1, int(cores / (runtime.num_cpus_per_host or 1)))
        remote = ray.remote(function).options(
            num_cpus=runtime.num_cpus_per_host, num_gpus=runtime.num_gpus_per_host, max_retries=RETRIES
        )
        waiting = list(range(len(calls)))[::-1]
        busy: dict[Any, int] = {}
        while busy or (waiting and tick()):
            while waiting and len(busy) < most and tick():
                number = waiting.pop()
                busy[remote.remote(*calls[number])] = number
                yield number, None
            ready = ray.wait(list(busy), timeout=TICK_S)[0]
            if own is not None:
                own.check(REMEDY)
            for done in ready:
                yield busy.pop(done), _answer(ray, done)
            tick()
    finally:
        if own is not None:
            own.close()
        elif joined:
            ray.shutdown()


def join_or_start(ray: ModuleType, runtime: Ray, jobs: int | None) -> tuple[OwnRay | None, bool]:
    """Join a running Ray, or start one; return the one that was started, and True if one was joined."""
    if ray.is_initialized():
        return None, False
    if runtime.address is None:
        cores = max(1, round((jobs or runtime.hosts or os.cpu_count() or 1) * runtime.num_cpus_per_host))
        return OwnRay(cores), False
    join(ray, runtime.address)
    return None, True


def _answer(ray: ModuleType, done: object) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        return RuntimeFailed(str(error).strip().splitlines()[0])
