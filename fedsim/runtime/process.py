"""Process-wide settings of a run: one BLAS thread, memory, garbage collection; and the exit of a process."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, lru_cache
from typing import Any, NoReturn


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold every loaded BLAS to one thread, torch's included, so that bits do not depend on the number of cores."""
    with ExitStack() as held:
        if sys.modules.get("torch") is not None:
            from fedsim.problems.torch.gradients import one_thread

            held.enter_context(one_thread)  # before OpenMP's number changes, which torch would take for the user's
        held.enter_context(_libraries(len(sys.modules)).limit(limits=1))
        yield


def blas_kernels() -> list[str]:
    """Return the names of the kernels that every loaded BLAS has chosen for this CPU, such as Haswell."""
    loaded = [library for library in _libraries(len(sys.modules)).info() if library["user_api"] == "blas"]
    return sorted({str(library.get("architecture", library["internal_api"])) for library in loaded})


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Return the loaded libraries; they are searched again when modules have been imported."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


GRACE_S = 2.0  # for threads to end


def exit_process(code: int) -> NoReturn:
    """Exit with this code; if a thread does not end within GRACE_S, exit with code 1 and a message."""
    if _others():
        threading.Thread(target=_exit_late, daemon=True).start()
    sys.exit(code)  # waits for all threads but daemons


def _exit_late() -> None:
    time.sleep(GRACE_S)
    if running := _others():
        names = ", ".join(sorted(thread.name for thread in running))
        sys.stderr.write(
            f"fedsim: a thread that the scenario's code started did not end within {GRACE_S:g} s and was stopped "
            f"({names}); make it a daemon (daemon=True) or join it\n"
        )
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(1)


def _others() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]


# glibc's names in <malloc.h>, the variables by which a user sets them, and our values in bytes
TRIM_THRESHOLD = (-1, "MALLOC_TRIM_THRESHOLD_", 2**28)  # free memory at the top before it goes back
MMAP_THRESHOLD = (-3, "MALLOC_MMAP_THRESHOLD_", 2**25)  # arrays above it come and go by themselves; glibc's limit


@cache
def keep_freed_memory() -> None:
    """Let the C library reuse freed memory: an eighth of the time of FedAvg on 100 models of 8,000 parameters.

    It holds from the first run on. The user's own variables take precedence; other C libraries than glibc are not set.
    """
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for number, variable, size in (TRIM_THRESHOLD, MMAP_THRESHOLD):
        if variable not in os.environ:
            mallopt(number, size)


NEW_OBJECTS = 20_000  # between two collections; Python's default is 700 or 2,000
_lock = threading.RLock()  # reentrant: a collection at the start of a run may close another run
_thresholds: list[tuple[int, int, int]] = []  # found by each active run


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often: rounds leave no cycles, and SimPy takes a third less time with 3,000 open visits.

    A collector that is off, or rarer still, is not changed.
    """
    first, *others = found = gc.get_threshold()
    ours = (max(first, NEW_OBJECTS) if first else 0, *others)
    with _lock:
        _thresholds.append(found)
        gc.set_threshold(*ours)
    try:
        yield
    finally:
        with _lock:
            found = _thresholds.pop()
            if not _thresholds and gc.get_threshold() == ours:  # else it was set during the run
                gc.set_threshold(*found)
