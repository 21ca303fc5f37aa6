"""The folder of a private Ray: logs, sockets and spilled objects, and the processes that use it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PREFIX = "fedsim-ray-"
LOCK = ".driver"
INNER = "ray"  # which Ray makes accessible to all users of the machine
SOCKET = f"/{INNER}/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
LONGEST = 107 - len(SOCKET)  # names of sockets are limited
YOUNG_S = 60.0  # its driver may not have locked it yet


class RayFolder:
    """A new folder, for this user alone, around the one that Ray uses. Folders of killed drivers are removed first."""

    def __init__(self) -> None:
        base = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
        if len(os.path.join(base, PREFIX)) + 8 > LONGEST:
            base = "/tmp"
        _remove_stale(Path(base))
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base)).resolve()
        self.inner = self.path / INNER
        self.inner.mkdir()
        self._lock: Any = (self.path / LOCK).open("w")
        _is_free(self._lock)

    def kill_users(self) -> None:
        """Kill every process of Ray that works in the folder: hosts and agents survive a killed raylet."""
        kill_users(self.path)

    def remove(self) -> None:
        self._lock.close()
        _remove(self.path)


def kill_users(folder: Path) -> None:
    """Kill every process of Ray that works in a folder."""
    for _ in range(50):
        pids = users(folder)
        if not pids:
            return
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def users(folder: Path) -> list[int]:
    """Return the processes of Ray with an open file in the folder or with it as an argument; Linux only."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            if entry.stat().st_uid != os.getuid() or "\nState:\tZ" in (entry / "status").read_text():
                continue
            line = (entry / "cmdline").read_bytes()
            if f"={folder}".encode() in line or (line.startswith(b"ray::") and _has_open(entry, folder)):
                found.append(pid)
    return found


def _has_open(entry: Path, folder: Path) -> bool:
    for descriptor in (entry / "fd").iterdir():
        with suppress(OSError):
            if os.readlink(descriptor).startswith(f"{folder}/"):
                return True
    return False


def _remove_stale(base: Path) -> None:
    """Remove the folders of killed drivers and the remaining processes of their Ray."""
    if os.name != "posix":
        return
    for folder in base.glob(f"{PREFIX}*"):
        with suppress(OSError):
            about = folder.lstat()
            if about.st_uid != os.getuid() or time.time() - about.st_mtime < YOUNG_S or folder.is_symlink():
                continue
            with (folder / LOCK).open("w") as lock:
                if _is_free(lock):
                    kill_users(folder)
                    _remove(folder)


def _is_free(lock: Any) -> bool:
    """Try to take the lock, which ends with its process; return False where the system has no locks."""
    try:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except (ImportError, OSError):
        return False


def _remove(folder: Path) -> None:
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)  # a process that is ending may still write
