"""What a process notes in the lock of its run, for `fedsim status` in other processes and on other machines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.results import lock

EVERY_S = 1.0  # between two notes


@dataclass(frozen=True)
class Activity:
    """The process that holds a run; None for what it has not noted."""

    host: str | None = None
    pid: int | None = None
    age_s: float | None = None  # since it took the lock
    idle_s: float | None = None  # since it completed a block of rounds
    round: int | None = None
    rounds: int | None = None  # in the budget
    left_s: float | None = None


def announcer(held: lock.Lock, rounds: int | None) -> Callable[[int], None]:
    """Return a function that notes the rounds that are done."""
    since, noted, first = time.time(), 0.0, None

    def announce(done: int) -> None:
        nonlocal noted, first
        now = time.time()
        first = first or (done, now)
        if now - noted >= EVERY_S:
            noted = now
            held.note({"since": since, "round": done, "rounds": rounds, "first": first, "noted": now})

    return announce


def activity(folder: Path, name: str = lock.LOCK) -> Activity:
    """Return what the holder of a lock has noted; values of a wrong type count as missing."""
    owner, now = lock.read_owner(folder, name), time.time()

    def number(key: str) -> float | None:
        value = owner.get(key)
        return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else None

    def integer(key: str) -> int | None:
        value = number(key)
        return None if value is None else int(value)

    since, noted, host = number("since"), number("noted"), owner.get("host")
    return Activity(
        host if isinstance(host, str) else None, integer("pid"), None if since is None else max(0.0, now - since),
        None if noted is None else max(0.0, now - noted), integer("round"), integer("rounds"), _left(owner),
    )  # fmt: skip


def _left(owner: dict[str, Any]) -> float | None:
    """Return the seconds that are left at the pace since the first note."""
    try:
        start, began = owner["first"]
        left = (owner["noted"] - began) * (owner["rounds"] - owner["round"]) / (owner["round"] - start)
        return float(left) if 0 <= left < 1e15 else None
    except (LookupError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
