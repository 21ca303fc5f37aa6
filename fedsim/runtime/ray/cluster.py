"""The Ray of this process: joined, found running, or private. All runs of the process share it.

It is left or stopped when the last run that uses it ends, or after the body of `held_open`, where a command executes
runs. Ray's own signal handlers are replaced by those that were there, so that SIGTERM still ends a run with a
checkpoint.
"""

from __future__ import annotations

import logging
import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING

from fedsim.errors import InvalidInput, RuntimeFailed
from fedsim.runtime.ray.private import OwnRay, print_no_errors, signals_restored
from fedsim.text import short_repr, short_str

if TYPE_CHECKING:
    from fedsim.runtime.ray import Ray

CHECK_S = 1.0  # between two checks that Ray is alive
LOST_S = 15.0  # without a connection to a joined cluster; after 60 s Ray ends the process
Address = tuple[str, int]


def check_address(address: object) -> None:
    """Refuse what is not an address: Ray would try for minutes."""
    good = r"auto|local|(ray://)?([\w.\-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}"
    text = address if isinstance(address, str) and re.fullmatch(good, address, re.ASCII) else ""
    if not text or (":" in text and not 0 < int(text.rpartition(":")[2]) < 2**16):
        raise InvalidInput(f"Ray(address={short_repr(address)}): write host:port, such as '10.0.0.1:6379', or 'auto'")


def join(ray: ModuleType, address: object) -> None:
    """Join the cluster at `address`; refuse one that does not answer, which Ray would try for minutes."""
    place = str(address).removeprefix("ray://")
    try:
        if place.rpartition(":")[2].isdigit():
            socket.create_connection(_split(place), timeout=10).close()
        with signals_restored():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        print_no_errors()
    except Exception as error:  # Ray raises a dozen kinds, by what is wrong with an address
        raise RuntimeFailed(
            f"Ray(address={short_repr(address)}): no cluster answers there ({short_str(error)}); start one with "
            "`ray start --head`, or leave the address out for a Ray on this machine alone"
        ) from None


class Cluster:
    """A running Ray, with the number of runs that use it."""

    def __init__(self, runtime: Ray, cpus: int) -> None:
        import ray

        self.ray, self.users, self.own = ray, 0, None
        self._joined = self.lost = False
        if not ray.is_initialized():
            if runtime.address is None:
                self.own = OwnRay(cpus)
            else:
                join(ray, runtime.address)
                self._joined = True
        self._vital = [] if self.own is not None else _vital(ray)
        self._checked, self._answered = 0.0, time.monotonic()

    def require(self, hosts: int, runtime: Ray) -> None:
        """Refuse more hosts than the cluster has room for."""
        have = self.ray.cluster_resources()
        for kind, each in (("CPU", runtime.num_cpus_per_host), ("GPU", runtime.num_gpus_per_host)):
            if hosts * each > have.get(kind, 0):
                few = f"{hosts} hosts need {hosts * each:g} {kind}s, the cluster has {have.get(kind, 0):g}"
                raise InvalidInput(f"{few}; ask for fewer hosts or a smaller num_{kind.lower()}s_per_host")

    def check(self) -> None:
        """Raise if Ray has died: it neither answers nor raises, and later ends this process."""
        if self.own is not None:
            if lost := self.own.lost:
                raise RuntimeFailed(f"Ray's {lost}, and with it every host; look at the machine's memory")
            return
        now = time.monotonic()
        if now - self._checked < CHECK_S:
            return
        self._checked = now
        if all(map(_answers, self._vital)):
            self._answered = now
        elif now - self._answered >= LOST_S:
            self.lost = True
            raise RuntimeFailed("the Ray cluster no longer answers; start it again")

    def nodes(self) -> dict[str, float]:
        """Return the CPUs of the living nodes by their ids."""
        return {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in self.ray.nodes() if node["Alive"]}

    def close(self) -> None:
        """Stop a private Ray; leave one that was joined."""
        if self.own is not None:
            self.own.close()
        elif self._joined:
            self.ray.shutdown()


_lock = threading.RLock()
_current: list[Cluster] = []  # at most one
_held_open = 0


def use(runtime: Ray, hosts: int) -> Cluster:
    """Return the cluster of this process, with room for these hosts if it is private; `release` gives it back."""
    cpus = max(1, math.ceil(hosts * runtime.num_cpus_per_host))
    with _lock:
        if _current and not _current[0].users and not _fits(_current[0], cpus):
            _current.pop().close()
        if not _current:
            _current.append(Cluster(runtime, cpus))
        _current[0].users += 1
        return _current[0]


def release(cluster: Cluster) -> None:
    """Give a cluster back; the last user leaves it or stops it."""
    with _lock:
        cluster.users -= 1
        _close_unused()


@contextmanager
def held_open() -> Iterator[None]:
    """Keep Ray, once it has started, between the runs of the body."""
    global _held_open
    with _lock:
        _held_open += 1
    try:
        yield
    finally:
        with _lock:
            _held_open -= 1
            _close_unused()


def _close_unused() -> None:
    if _current and not _current[0].users and not (_held_open and _fits(_current[0], 0)):
        _current.pop().close()


def _fits(cluster: Cluster, cpus: int) -> bool:
    """Return False if it has to be started again."""
    if cluster.own is None:
        return bool(cluster.ray.is_initialized())
    return not cluster.own.lost and cluster.own.cpus >= cpus


def _vital(ray: ModuleType) -> list[Address]:
    """Return the addresses of a joined cluster's head and of this machine's part of it, where they are known."""
    context = ray.get_runtime_context()
    found: list[Address] = []
    with suppress(Exception):  # through ray:// there is neither
        found.append(_split(context.gcs_address))
        here = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        found.append((here["NodeManagerAddress"], here["NodeManagerPort"]))
    return found


def _split(address: str) -> Address:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _answers(address: Address) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError:
        return False
    return True


def cores() -> int:
    """Return the number of this machine's cores."""
    return os.cpu_count() or 1
