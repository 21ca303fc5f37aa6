"""Independent calls as tasks of a Ray cluster, for many runs at once, each with the inline runtime."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from fedsim.errors import RuntimeFailed
from fedsim.runtime.ray import Ray
from fedsim.runtime.ray.cluster import cores, release, use

RETRIES = 2  # of a task whose process or machine dies
TICK_S = 0.2
ROOM_S = 30.0  # without a node that can execute a task
REMEDY = "then repeat the command with --resume"


def spread(
    runtime: Ray, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int | None,
    tick: Callable[[], bool],
) -> Iterator[tuple[int, Any]]:  # fmt: skip
    """Call `function` with each of `calls`, at most `jobs` at a time, anywhere on the cluster.

    Yield (number, None) when a call is submitted and (number, answer) when it is done, with an error as the answer if
    it died. `tick()` is called several times a second; once false, no call is submitted.
    """
    cluster = use(runtime, jobs or runtime.hosts or cores())
    ray, needed, room_s = cluster.ray, runtime.num_cpus_per_host, time.monotonic()
    try:
        most = jobs or max(1, int(ray.cluster_resources().get("CPU", 1) / (needed or 1)))
        remote = ray.remote(function).options(num_cpus=needed, num_gpus=runtime.num_gpus_per_host, max_retries=RETRIES)
        waiting = list(range(len(calls)))[::-1]
        busy: dict[Any, int] = {}
        while busy or (waiting and tick()):
            while waiting and len(busy) < most and tick():
                number = waiting.pop()
                busy[remote.remote(*calls[number])] = number
                yield number, None
            ready = ray.wait(list(busy), timeout=TICK_S)[0]
            cluster.check()
            if max(cluster.nodes().values(), default=0.0) >= needed:
                room_s = time.monotonic()
            elif time.monotonic() - room_s > ROOM_S:
                raise RuntimeFailed(f"no living node of the cluster has {needed:g} CPUs; add nodes")
            for done in ready:
                yield busy.pop(done), _answer(ray, done)
            tick()
    except RuntimeFailed as error:
        raise RuntimeFailed(f"{error}, {REMEDY}") from error
    finally:
        release(cluster)


def _answer(ray: ModuleType, done: object) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        return RuntimeFailed(str(error).strip().splitlines()[0])
