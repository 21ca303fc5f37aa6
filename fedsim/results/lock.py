"""A lock file that admits one process at a time to a folder and names its owner.

Where the file system supports locks (local disks, NFS, Lustre with `flock`), a lock ends with its process, on any
machine. Elsewhere the file itself is the lock: it is created exclusively, and it is stale once its owner on this
machine has exited. An owner is a process id, a host and the start time of the process, because ids are used again.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

from fedsim.errors import InUse

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK, OWNER = ".lock", ".lock-owner"  # the second is used where files cannot be locked
GRACE_S = 10.0  # an empty lock file this young was just made, and its owner will write to it
GLANCE_S = 0.1  # a process that checks whether a lock is held holds it for a moment
_NUMBERS = count()


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds."""

    path: Path
    descriptor: int | None  # None: the file itself is the lock

    def release(self) -> None:
        """Release the lock; remove the file first, so that no process takes it for a held lock."""
        if self.descriptor is None:
            if _owner(self.path) == _me():
                self.path.unlink(missing_ok=True)
                self.path.with_name(self.path.name.removesuffix("-owner")).unlink(missing_ok=True)
            return
        try:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self.descriptor), self.path.stat()):
                    self.path.unlink()
        finally:
            with suppress(OSError):  # a forked child must not hold it any longer
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)


def take(folder: Path, name: str = LOCK, wait_s: float = GLANCE_S) -> Lock:
    """Take the lock of a folder; raise InUse with its owner, FileNotFoundError if the folder is missing."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return _take(folder / name, folder)
        except InUse:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def held(folder: Path, name: str = LOCK) -> bool:
    """Return True if a process of any machine holds the lock."""
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return _holds(folder / f"{name}-owner")
    try:
        got = _flock(descriptor, shared=True)
        return not got if got is not None else _holds(folder / f"{name}-owner")
    finally:
        os.close(descriptor)


def _take(path: Path, folder: Path) -> Lock:
    while fcntl is not None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        ours = False
        try:
            got = _flock(descriptor)
            if got is None:
                break
            if not got:
                raise _in_use(folder, _parsed(os.pread(descriptor, 4096, 0)))
            # The last holder may have removed the file between the two steps; then this lock protects nothing.
            ours = path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())
            if ours:
                with suppress(OSError):  # a full disk: the lock is valid without the owner
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, json.dumps(_me()).encode(), 0)
                return Lock(path, descriptor)
        finally:
            if not ours:
                os.close(descriptor)
    return _exclusive(path.with_name(f"{path.name}-owner"), folder)


def _flock(descriptor: int, shared: bool = False) -> bool | None:
    """Return True if the lock was taken, None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        return None


def _exclusive(path: Path, folder: Path) -> Lock:
    """Take a lock without support of the file system: creating the file takes it, unless its owner has exited."""
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            found = _owner(path)
            if _holds(path):
                raise _in_use(folder, found) from None
            aside = path.with_name(f"{path.name}.{tag()}.tmp")
            with suppress(FileNotFoundError):  # of several processes that find it stale, one moves it
                os.rename(path, aside)
                moved = _owner(aside)
                if moved != found:  # it was renewed in between: restore it
                    with suppress(OSError):
                        os.link(aside, path)
                    aside.unlink(missing_ok=True)
                    raise _in_use(folder, moved) from None
                aside.unlink(missing_ok=True)
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(_me()).encode())
            file.flush()
            os.fsync(file.fileno())
        return Lock(path, None)


def _holds(path: Path) -> bool:
    """Return True if the owner in a file may still run."""
    owner = _owner(path)
    if owner:
        return _alive(owner)
    try:
        return time.time() - path.stat().st_mtime < GRACE_S
    except OSError:
        return False


def _owner(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return {}


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(data)
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _in_use(folder: Path, owner: dict[str, Any]) -> InUse:
    who = f"process {owner.get('pid')} on {owner.get('host')}" if owner else "another process"
    return InUse(f"{folder} is in use by {who}; wait until it has ended, or choose another --out")


def _me() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "host": platform.node(), "began": _began(pid)}


def _alive(owner: dict[str, Any]) -> bool:
    """Return False only if the owner has certainly exited; processes of other machines cannot be seen."""
    if owner.get("host") != platform.node():
        return True
    began = _began(owner.get("pid"))
    return began is None or began == owner.get("began")


def _began(pid: Any) -> str | None:
    """Return the start of a process of this machine as text, "" if it does not exist, None if that cannot be seen."""
    if not os.path.exists("/proc/self/stat"):
        return None
    try:
        with open(f"/proc/{int(pid)}/stat", "rb") as file:
            ticks = file.read().rsplit(b")", 1)[1].split()[19].decode()
    except (OSError, ValueError, TypeError, IndexError):
        return ""
    return f"{_boot()}-{ticks}"


@cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()[:8]
    except OSError:
        return ""


@cache
def _here() -> str:
    return blake2b(f"{platform.node()} {_boot()}".encode(), digest_size=4).hexdigest()


def tag() -> str:
    """Return a unique part of a temporary name that names this process."""
    pid = os.getpid()
    began = (_began(pid) or "-0").rsplit("-", 1)[1]
    return f"{_here()}-{pid}-{began}-{time.time_ns()}{next(_NUMBERS) % 1000:03d}"


def is_dead(tagged: str) -> bool:
    """Return True if the process that a `tag` names has certainly exited: it ran on this machine since its start."""
    parts = tagged.split("-")
    if len(parts) != 4 or parts[0] != _here() or not parts[1].isdigit():
        return False
    began = _began(int(parts[1]))
    return began is not None and began.rsplit("-", 1)[-1] != parts[2]
