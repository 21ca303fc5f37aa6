"""One process at a time in a folder: a lock file that names its owner, held by the operating system where it can.

Where the file system has locks (local disks, NFS, Lustre with `flock`), a lock ends with its process, on whatever
machine that was. Elsewhere the file alone counts: made exclusively, and stale once its owner on this machine is
gone. An owner is a process id, a host and the moment the process began, for process ids are used again.
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

LOCK, OWNER = ".lock", ".lock-owner"  # the second where files cannot be locked
GRACE_S = 10.0  # a lock file that is still empty was made by somebody who is about to write to it
GLANCE_S = 0.1  # somebody who only looks whether a lock is held holds it for that moment
_NUMBERS = count()


@dataclass(frozen=True)
class Lock:
    """What a process holds; `release` gives it back."""

    path: Path
    descriptor: int | None  # None: the file itself is the lock

    def release(self) -> None:
        """Give it back. The file goes first, so that nobody takes it for a lock that is held."""
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
            with suppress(OSError):  # a child that was forked meanwhile must not go on holding it
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)


def take(folder: Path, name: str = LOCK, wait_s: float = GLANCE_S) -> Lock:
    """The lock of a folder, or InUse with who has it. FileNotFoundError where the folder has gone."""
    until = time.monotonic() + wait_s
    while True:
        try:
            return _take(folder / name, folder)
        except InUse:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def held(folder: Path, name: str = LOCK) -> bool:
    """Whether some process, perhaps on another machine, has the lock at this moment."""
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
            # Its last holder may have taken the file away between our two steps; then this lock is of nothing.
            ours = path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())
            if ours:
                with suppress(OSError):  # a full disk: the lock holds, it only cannot say whose it is
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, json.dumps(_me()).encode(), 0)
                return Lock(path, descriptor)
        finally:
            if not ours:
                os.close(descriptor)
    return _exclusive(path.with_name(f"{path.name}-owner"), folder)


def _flock(descriptor: int, shared: bool = False) -> bool | None:
    """Whether the lock is ours now; None where there are no such locks."""
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
    """Without locks of the file system: whoever makes the file has it, unless its maker is surely gone."""
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            found = _owner(path)
            if _holds(path):
                raise _in_use(folder, found) from None
            aside = path.with_name(f"{path.name}.{tag()}.tmp")
            with suppress(FileNotFoundError):  # of several who see that it is stale, one moves it away
                os.rename(path, aside)
                moved = _owner(aside)
                if moved != found:  # it was renewed in between: give it back
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
    """Whether the owner that a file names may still be there."""
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


# --- Who a process is ---------------------------------------------------------------------------------


def _me() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "host": platform.node(), "began": _began(pid)}


def _alive(owner: dict[str, Any]) -> bool:
    """False only if it is certain: another machine's processes cannot be seen from here."""
    if owner.get("host") != platform.node():
        return True
    began = _began(owner.get("pid"))
    return began is None or began == owner.get("began")


def _began(pid: Any) -> str | None:
    """When a process of this machine began, in a form to compare; "" if there is none, None if that cannot be seen."""
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
    """Part of a temporary name: whose it is, and one that nobody used before."""
    pid = os.getpid()
    began = (_began(pid) or "-0").rsplit("-", 1)[1]
    return f"{_here()}-{pid}-{began}-{time.time_ns()}{next(_NUMBERS) % 1000:03d}"


def is_dead(tagged: str) -> bool:
    """Whether the process that a `tag` names is certainly gone: it was one of this machine, since it was started."""
    parts = tagged.split("-")
    if len(parts) != 4 or parts[0] != _here() or not parts[1].isdigit():
        return False
    began = _began(int(parts[1]))
    return began is not None and began.rsplit("-", 1)[-1] != parts[2]
