"""A private Ray, started and stopped by this process.

It listens on the loopback interface alone, requires its own token, and works in a folder that is removed at the end.
Its processes ignore Ctrl-C and SIGTERM, which a scheduler sends to all processes at once: the driver finishes its
round, writes a checkpoint, and then ends them.

`ray.init(_node_ip_address="127.0.0.1")` alone does not suffice: Ray 2.60 replaces it by the network address of the
machine and listens on all interfaces. It reads the variable against that when it is imported, which a user may have
done, and the token only once in a process. So a few names of `ray._private` are needed, all of them in this file.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import Any

from fedsim.errors import RuntimeFailed
from fedsim.runtime.ray.folder import RayFolder
from fedsim.text import short_str

OPTIONS = {  # quiet, never another Ray of this machine
    "address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False,
    "log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False,
}  # fmt: skip
REPLIES = {"max_direct_call_object_size": 4_000_000, "task_rpc_inlined_bytes_limit": 40_000_000}  # few in the store
VITAL = ("raylet", "gcs_server")  # Ray does not work without them
ELSEWHERE = "start a cluster yourself and give its --address"


class OwnRay:
    """The processes of a private Ray."""

    def __init__(self, cpus: int) -> None:
        import ray

        self._ray, self.cpus = ray, cpus
        self._folder = RayFolder()
        self._processes: dict[str, Any] = {}
        try:
            with signals_restored(), _environment():
                self._start(cpus)
            self._refuse_open_doors()
        except BaseException:
            self.close()
            raise

    def _start(self, cpus: int) -> None:
        place = {"_temp_dir": str(self._folder.inner), "object_spilling_directory": str(self._folder.inner / "spilled")}
        try:
            self._ray.init(num_cpus=cpus, _system_config=dict(REPLIES), **place, **OPTIONS)  # Ray changes that dict
        except Exception as error:
            reason = short_str(f"{type(error).__name__}: {error}", 200)
            raise RuntimeFailed(f"Ray could not start on this machine ({reason}); {ELSEWHERE}") from error
        from ray._private import worker

        self._processes = {name: infos[0].process for name, infos in worker._global_node.all_processes.items()}
        for process in self._processes.values():
            process.terminate = process.kill  # Ray's shutdown waits 5 s: they ignore SIGTERM
        print_no_errors()

    def _refuse_open_doors(self) -> None:
        """Refuse a Ray that listens beyond the loopback interface, or without a token."""
        from ray._private.authentication.authentication_utils import is_token_auth_enabled

        address = self._ray.util.get_node_ip_address()
        if address not in ("127.0.0.1", "::1"):
            raise RuntimeFailed(f"Ray {self._ray.__version__} would listen on {address}, open to others; {ELSEWHERE}")
        if not is_token_auth_enabled():
            raise RuntimeFailed(f"Ray {self._ray.__version__} would not require a token; {ELSEWHERE}")

    @property
    def lost(self) -> str:
        """The vital process that has died, and how; "" while all are alive."""
        for name in VITAL:
            process = self._processes.get(name)
            code = None if process is None else process.poll()
            if code is not None:
                return f"{name} died ({f'signal {signal.Signals(-code).name}' if code < 0 else f'exit code {code}'})"
        return ""

    def close(self) -> None:
        """End all its processes and remove its folder; kill the hosts of a dead Ray first, whose shutdown is slow."""
        with _silenced() if self.lost else nullcontext():
            if self.lost:
                self._kill()
            if self._ray.is_initialized():
                self._ray.shutdown()
            self._kill()
        self._folder.remove()
        _reread()

    def _kill(self) -> None:
        for process in self._processes.values():
            with suppress(OSError):
                process.kill()
        self._folder.kill_users()
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)


def print_no_errors() -> None:
    """Keep Ray from printing the errors of its processes on our standard output."""
    from ray._private import worker

    with suppress(AttributeError):
        worker.global_worker.threads_stopped.set()
        worker.global_worker.gcs_error_subscriber.close()


def unblock_sigterm() -> None:
    """Unblock SIGTERM in a host or a task, for processes that its code starts. A host that it ends is replaced."""
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence what a dead Ray writes to standard error in this process."""
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment variables that Ray reads at its start, and restore them.

    A token in the environment is written to no file, while Ray would write one to the home folder. The last variable
    makes Ray use 127.0.0.1 instead of this machine's network address.
    """
    from ray._private import ray_constants

    ours = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.urandom(32).hex(),  # not a stream of rng, which could be guessed; no result depends on it
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    before, cluster = {name: os.environ.get(name) for name in ours}, ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update(ours)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        _reread()
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _reread() -> None:
    """Clear the authentication mode and token that Ray has cached in this process."""
    try:
        raylet = import_module("ray._raylet")
        raylet.Config.initialize("")
        raylet.AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError):
        import ray

        raise RuntimeFailed(f"Ray {ray.__version__} has no tokens; install ray>=2.52, or {ELSEWHERE}") from None


@contextmanager
def signals_restored() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces; block SIGTERM meanwhile.

    Child processes inherit the block, as with Ray's own for Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread() or os.name != "posix":
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
