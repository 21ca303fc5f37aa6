"""Where ClientApps are executed: in this thread, on threads, in processes, on Ray. The results are the same.

A ClientApp draws from the generators of its process, so the threads of one process take turns. Processes and Ray hosts
load the app from its folder and run several ClientApps at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.errors import InvalidInput, RuntimeFailed
from fedsim.flower.loading import Description, load
from fedsim.flower.messages import copied, copied_content
from fedsim.flower.nodes import Call, ClientCaller, InlineNodes, NodeAnswer
from fedsim.flower.process_state import restored
from fedsim.flower.processes import Processes
from fedsim.flower.virtual_time import replaced_time
from fedsim.runtime import inline
from fedsim.runtime.process import one_blas_thread
from fedsim.runtime.ray import Ray
from fedsim.text import short_repr

if TYPE_CHECKING:
    from fedsim.protocols import Runtime

_HELD = ExitStack()


@dataclass(frozen=True)
class Remote:
    """What another process needs to call the same ClientApp."""

    description: Description
    run_id: int
    seed: int
    counts: str

    def caller(self) -> ClientCaller:
        """Load the app in this process, for good."""
        held = _HELD  # never closed: the process serves this app alone
        held.enter_context(restored(self.description.folder))
        held.enter_context(replaced_time())
        _, client_app = load(self.description.folder, self.description)
        held.enter_context(one_blas_thread())
        return ClientCaller(client_app, self.run_id, self.description.settings, self.seed, self.counts)


@contextmanager
def executor_of(runtime: Runtime | None, caller: ClientCaller, description: Description) -> Iterator[Any]:
    """Return what executes the calls of one run."""
    remote = Remote(description, caller.run_id, caller.seed, caller.counts)
    if runtime is None or (isinstance(runtime, inline.Inline) and (runtime.threads or 1) == 1):
        yield InlineNodes(caller)
    elif isinstance(runtime, inline.Inline):
        with ThreadPoolExecutor(runtime.threads) as threads:
            yield Pool(threads, caller, eager=False)
    elif isinstance(runtime, Processes):
        _check_folder(description.folder)
        with ProcessPoolExecutor(runtime.processes, get_context("spawn"), _start, (remote,)) as processes:
            yield Pool(processes, _call)
    elif isinstance(runtime, Ray):
        _check_folder(description.folder)
        from fedsim.runtime.ray.pool import ActorPool

        pool = ActorPool(runtime, remote.caller)
        try:
            yield RayHosts(pool)
        finally:
            pool.close()
    else:
        raise InvalidInput(f"runtime={short_repr(runtime)}: write fs.Inline(), fs.flower.Processes(4) or fs.Ray()")


class Pool:
    """Calls on an executor of the standard library; `eager` ones start when their message is sent.

    Threads must not be eager: the ServerApp draws from the same generators until it waits.
    """

    def __init__(self, executor: Executor, function: Callable[..., NodeAnswer], eager: bool = True) -> None:
        self.executor, self.function, self.eager = executor, function, eager

    def submit(self, call: Call) -> Future[NodeAnswer]:
        return self.executor.submit(self.function, parcel(call))

    def result(self, submitted: Future[NodeAnswer]) -> NodeAnswer:
        try:
            return submitted.result()
        except BrokenProcessPool:
            raise RuntimeFailed("a process that executes ClientApps died; look at the machine's memory") from None


class RayHosts:
    """Calls on Ray actors."""

    eager = True

    def __init__(self, pool: Any) -> None:
        self.pool = pool

    def submit(self, call: Call) -> Any:
        return self.pool.submit(call.number, parcel(call))

    def result(self, submitted: object) -> NodeAnswer:
        answer: NodeAnswer = self.pool.result(submitted)
        return answer


def parcel(call: Call) -> Call:
    """Return a call that can be pickled: Flower's arrays keep memory views when they have been measured."""
    state = None if call.state is None else copied_content(call.state)
    return replace(call, message=copied(call.message), state=state)


_caller: list[ClientCaller] = []


def _start(remote: Remote) -> None:
    _caller[:] = [remote.caller()]


def _call(call: Call) -> NodeAnswer:
    return _caller[0](call)


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        raise InvalidInput(
            "other processes load an app from its folder; give the path instead of (server_app, client_app)"
        )
