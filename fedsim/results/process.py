"""The identity of a process: its id, its host and its start time, because ids are used again."""

from __future__ import annotations

import os
import platform
import time
from functools import cache
from hashlib import blake2b
from itertools import count
from typing import Any

_NUMBERS = count()


def me() -> dict[str, Any]:
    """Return the identity of this process."""
    pid = os.getpid()
    return {"pid": pid, "host": platform.node(), "began": _began(pid)}


def alive(owner: dict[str, Any]) -> bool:
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
