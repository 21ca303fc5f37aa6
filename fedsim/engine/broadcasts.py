"""Broadcasts that visits of asynchronous clients started from, by replica and version, and the rebasing of replies.

A version is kept while a visit in flight names it. The newest version is not stored: it follows from the current state.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import call_function, check_positive
from fedsim.engine.system import System
from fedsim.runtime.jobs import Reply

VERSION_BITS = 32


class Broadcasts:
    """Messages in reused places; sorted keys map a replica and version to its place."""

    def __init__(self) -> None:
        self._key, self._place, self._in_flight = (np.zeros(0, np.int64) for _ in range(3))
        self._messages: Arrays = {}  # (places, ...)
        self._free = np.zeros(0, np.int64)

    def add(self, position: Array, version: int, message: Arrays, visits: Array) -> None:
        """Add a version of these replicas, and the number of visits of each that have started from it.

        A run that resumes after a failure adds the version of the round that failed again.
        """
        new = ~np.isin((position.astype(np.int64) << VERSION_BITS) | version, self._key)
        position, visits, message = position[new], visits[new], {name: rows[new] for name, rows in message.items()}
        while len(self._free) < len(position):
            self._grow(message, len(position))
        place, self._free = self._free[: len(position)], self._free[len(position) :]
        for name, rows in message.items():
            self._messages[name][place] = rows
        key = (position.astype(np.int64) << VERSION_BITS) | version
        at = np.searchsorted(self._key, key)
        self._key, self._place = np.insert(self._key, at, key), np.insert(self._place, at, place)
        self._in_flight = np.insert(self._in_flight, at, visits)

    def of(self, position: Array, version: Array) -> tuple[Arrays, Array]:
        """Return the messages that these visits started from, once each, and which of them is whose."""
        place, row = np.unique(self._place[self._at(position, version)], return_inverse=True)
        return {name: m[place] for name, m in self._messages.items()}, row

    def end(self, position: Array, version: Array) -> None:
        """Count visits that have ended, and remove versions that no visit in flight has started from."""
        np.subtract.at(self._in_flight, self._at(position, version), 1)
        used = self._in_flight > 0
        self._free = np.concatenate([self._free, self._place[~used]])
        self._key, self._place, self._in_flight = self._key[used], self._place[used], self._in_flight[used]

    def _at(self, position: Array, version: Array) -> Array:
        return np.searchsorted(self._key, (position.astype(np.int64) << VERSION_BITS) | version.astype(np.int64))

    def _grow(self, message: Arrays, least: int) -> None:
        """Double the number of places."""
        count = len(self._place) + len(self._free)
        more = max(count, least)
        for name, rows in message.items():
            longer = np.empty((count + more, *rows.shape[1:]), rows.dtype)
            if count:
                longer[:count] = self._messages[name]
            self._messages[name] = longer
        self._free = np.concatenate([self._free, np.arange(count, count + more)])

    # --- Checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> Arrays:
        messages = {f"message.{name}": m[self._place] for name, m in self._messages.items()}
        return {"key": self._key, "in_flight": self._in_flight} | messages

    def restore(self, saved: Arrays) -> None:
        self._key, self._in_flight = saved["key"], saved["in_flight"]
        self._place, self._free = np.arange(len(self._key)), np.zeros(0, np.int64)
        names = [name for name in saved if name.startswith("message.")]
        self._messages = {name.removeprefix("message."): saved[name] for name in names}


def rebased(system: System, reply: Reply, started: Arrays, now: Arrays, staleness: Array) -> Reply:
    """Return replies as if their clients had started from `now`, the present broadcast; all arrays have a row a reply.

    With s the policy's discount of the staleness that is now + s (value - started) for what was broadcast, s times the
    value for all else.
    """
    discount, s = system.policy.discount, np.ones(len(staleness))
    if discount is not None:
        s = np.array([_discounted(discount, k) for k in staleness.tolist()])
    values = {}
    for name, value in reply.values.items():
        factor = s.astype(value.dtype).reshape(-1, *[1] * (value.ndim - 1))
        if name in system.algorithm.local_only:
            values[name] = value
        elif name in started:
            values[name] = now[name] + factor * (value - started[name])
        else:
            values[name] = factor * value
    return Reply(values, reply.bits, reply.memory)


def _discounted(discount: Callable[[int], float], staleness: int) -> float:
    factor = np.asarray(call_function("participation.buffered: discount", discount, staleness))
    given = factor.item() if factor.size == 1 else factor
    where = "participation.buffered: discount returned {}"
    return check_positive(where, given, zero=True, remedy="it must be a number of at least 0")
