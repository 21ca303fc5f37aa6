"""A lock file that admits one process at a time to a folder and names its owner.

Where the file system supports locks (local disks, NFS, Lustre with `flock`), a lock ends with its process, on any
machine. Elsewhere the file itself is the lock: it is created exclusively, and it is stale once its owner on this
machine has exited. A lock file of another program is never changed.
"""

from __future__ import annotations

import errno
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import CorruptData, InUse
from fedsim.results import files
from fedsim.results.process import alive, me, tag

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK, OWNER = ".lock", ".lock-owner"  # the second is used where files cannot be locked
WIDTH = 400  # bytes of the owner, padded, so that a shorter text replaces a longer one
GRACE_S = 10.0  # an empty lock file this young was just made, and its owner will write to it
GLANCE_S = 0.1  # a process that checks whether a lock is held holds it for a moment


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds."""

    path: Path
    descriptor: int | None  # None: the file itself is the lock

    def note(self, facts: dict[str, Any]) -> None:
        """Store what the process does in the lock file, for `read_owner`; not where files cannot be locked."""
        if self.descriptor is not None:
            _write_owner(self.descriptor, facts)

    def release(self) -> None:
        """Release the lock; remove the file first, so that no process takes it for a held lock."""
        if self.descriptor is None:
            if me().items() <= _owner(self.path).items():
                files.remove(self.path)
                files.remove(self.path.with_name(self.path.name.removesuffix("-owner")))
            return
        try:
            with suppress(OSError):
                if os.path.samestat(os.fstat(self.descriptor), self.path.lstat()):
                    files.remove(self.path)
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
        descriptor = files.descriptor(folder / name, os.O_RDONLY)
    except (OSError, CorruptData):
        return _holds(folder / f"{name}-owner")
    try:
        got = _flock(descriptor, shared=True)
        return not got if got is not None else _holds(folder / f"{name}-owner")
    finally:
        os.close(descriptor)


def read_owner(folder: Path, name: str = LOCK) -> dict[str, Any]:
    """Return the process in a lock file and what it has noted, {} if the file cannot be read."""
    for path in (folder / name, folder / f"{name}-owner"):
        with suppress(CorruptData):
            if owner := _owner(path):
                return owner
    return {}


def _write_owner(descriptor: int, facts: dict[str, Any]) -> None:
    with suppress(OSError):  # a full disk: the lock is valid without the owner
        os.pwrite(descriptor, f"{json.dumps({**me(), **facts}):{WIDTH}}".encode(), 0)


def _take(path: Path, folder: Path) -> Lock:
    while fcntl is not None:
        descriptor = files.descriptor(path, os.O_RDWR | os.O_CREAT)
        ours = False
        try:
            got = _flock(descriptor)
            if got is None:
                break
            owner = _parsed(path, os.pread(descriptor, 4096, 0))
            if not got:
                raise _in_use(folder, owner)
            if os.fstat(descriptor).st_nlink > 1:
                raise _foreign(path)
            # The last holder may have removed the file between the two steps; then this lock protects nothing.
            with suppress(FileNotFoundError):
                ours = os.path.samestat(os.fstat(descriptor), path.lstat())
            if ours:
                with suppress(OSError):
                    os.ftruncate(descriptor, 0)
                _write_owner(descriptor, {"since": time.time()})
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
            file = files.new_file(path)
        except FileExistsError:
            found = _owner(path)
            if _holds(path):
                raise _in_use(folder, found) from None
            aside = path.with_name(f"{path.name}.{tag()}.tmp")
            with suppress(FileNotFoundError):  # of several processes that find it stale, one moves it
                files.move(path, aside)
                moved = _owner(aside)
                if moved != found:  # it was renewed in between: restore it
                    files.restore(aside, path)
                    raise _in_use(folder, moved) from None
                files.remove(aside)
            continue
        with file:
            file.write(json.dumps({**me(), "since": time.time()}).encode())
            file.flush()
            os.fsync(file.fileno())
        return Lock(path, None)


def _holds(path: Path) -> bool:
    """Return True if the owner in a file may still run."""
    try:
        owner = _owner(path)
        return alive(owner) if owner else time.time() - path.lstat().st_mtime < GRACE_S
    except (OSError, CorruptData):
        return False


def _owner(path: Path) -> dict[str, Any]:
    try:
        return _parsed(path, files.read(path))
    except OSError:
        return {}


def _parsed(path: Path, data: bytes) -> dict[str, Any]:
    """Return the owner in a lock file, {} if its owner has not written yet."""
    if not data.strip(b"\0"):
        return {}
    try:
        owner = json.loads(data)
    except (ValueError, RecursionError):
        owner = None
    if not isinstance(owner, dict) or "pid" not in owner:
        raise _foreign(path)
    return owner


def _foreign(path: Path) -> CorruptData:
    return CorruptData(f"{path} is no lock of fedsim; remove it or choose another --out")


def _in_use(folder: Path, owner: dict[str, Any]) -> InUse:
    who = f"process {owner.get('pid')} on {owner.get('host')}" if owner else "another process"
    return InUse(f"{folder} is in use by {who}; wait until it has ended, or choose another --out")
