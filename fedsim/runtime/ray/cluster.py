"""Clusters of Ray: join one, or start and stop a private one.

A private Ray listens on the loopback interface alone, requires its own token, and works in a folder that is removed at
the end. Its processes ignore Ctrl-C and SIGTERM, which a scheduler sends to all processes at once: the driver finishes
its round, writes a checkpoint, and then ends them.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from typing import Any

from fedsim.errors import InvalidInput, RuntimeFailed
from fedsim.runtime.ray.folder import RayFolder
from fedsim.text import short_repr, short_str


def check_address(address: Any) -> None:
    """Refuse what is not an address: Ray would try for minutes."""
    good = r"auto|local|(ray://)?([\w.\-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}"
    fits = isinstance(address, str) and re.fullmatch(good, address, re.ASCII)
    if not fits or (":" in address and not 0 < int(address.rpartition(":")[2]) < 2**16):
        raise InvalidInput(f"Ray(address={short_repr(address)}): write host:port, such as '10.0.0.1:6379', or 'auto'")


def join(ray: Any, address: object) -> None:
    """Join the cluster at `address`; refuse one that does not answer, which Ray would try for minutes."""
    host, _, port = str(address).rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host.removeprefix("ray://").strip("[]"), int(port)), timeout=10).close()
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises a dozen kinds, by what is wrong with an address
        raise RuntimeFailed(
            f"Ray(address={short_repr(address)}): no cluster answers there ({short_str(error)}); start one with "
            "`ray start --head`, or leave the address out for a Ray on this machine alone"
        ) from None


OPTIONS = {  # quiet, never another Ray of this machine, replies of a few MB without the object store
    "address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False,
    "log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False,
    "_system_config": {"max_direct_call_object_size": 4_000_000, "task_rpc_inlined_bytes_limit": 40_000_000},
}  # fmt: skip
VITAL = ("raylet", "gcs_server")  # Ray does not work without them
ELSEWHERE = "start a cluster yourself and give its --address"


class OwnRay:
    """A private Ray, started and stopped by this process."""

    def __init__(self, cpus: int) -> None:
        import ray

        self._ray = ray
        self._folder = RayFolder()
        self._processes: dict[str, Any] = {}
        try:
            with _signals_restored(), _environment():
                self._start(cpus)
            self._refuse_open_doors()
        except BaseException:
            self.close()
            raise

    def _start(self, cpus: int) -> None:
        try:
            self._ray.init(num_cpus=cpus, _temp_dir=str(self._folder.path), **OPTIONS)
        except Exception as error:
            reason = short_str(f"{type(error).__name__}: {error}", 200)
            raise RuntimeFailed(f"Ray could not start on this machine ({reason}); {ELSEWHERE}") from error
        from ray._private import worker

        self._processes = {name: infos[0].process for name, infos in worker._global_node.all_processes.items()}
        for process in self._processes.values():
            process.terminate = process.kill  # Ray's shutdown waits 5 s: they ignore SIGTERM
        with suppress(AttributeError):  # Ray would print what its processes say on our standard output
            worker.global_worker.threads_stopped.set()
            worker.global_worker.gcs_error_subscriber.close()

    def _refuse_open_doors(self) -> None:
        """Refuse a Ray that listens beyond the loopback interface, or without a token."""
        from ray._private import worker
        from ray._private.authentication.authentication_utils import is_token_auth_enabled

        address = worker._global_node.node_ip_address
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

    def check(self, remedy: str) -> None:
        """Raise if it has died, with what the user can do."""
        if lost := self.lost:
            raise RuntimeFailed(f"Ray's {lost}, and with it every host; {remedy}")

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
def _signals_restored() -> Iterator[None]:
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
