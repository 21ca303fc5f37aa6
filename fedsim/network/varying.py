"""Bandwidths that change over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_array, check_positive
from fedsim.errors import InvalidInput
from fedsim.text import short_repr

SLOWEST_BPS = 1e-100  # below it, the length of a transfer would overflow


@dataclass(frozen=True, eq=False)
class Varying:
    """A link's bandwidth in steps: bps[i] from times_s[i] on.

    The first time is 0. After the last step the bandwidth stays constant or, with `period_s`, the steps repeat every
    `period_s` seconds. At 0 bit/s transfers wait. A `Varying` may replace the number of any link's bandwidth; the
    rates of flows change exactly at the steps.
    """

    times_s: npt.ArrayLike
    bps: npt.ArrayLike
    period_s: float | None = None

    def __post_init__(self) -> None:
        times, bps = (
            check_array("Varying(times_s)", self.times_s, 1, True),
            check_array("Varying(bps)", self.bps, 1, True),
        )
        if times.shape != bps.shape or not len(times):
            raise InvalidInput(f"Varying: {len(times)} times and {len(bps)} bandwidths; give one bandwidth per time")
        if times[0] != 0.0:
            raise InvalidInput(f"Varying(times_s[0]={times[0]:g}): the first bandwidth begins at 0; give 0 there")
        if not (np.diff(times) > 0).all():
            i = int(np.argmin(np.diff(times) > 0)) + 1
            raise InvalidInput(f"Varying(times_s[{i}]={times[i]:g}) follows {times[i - 1]:g}: give times that rise")
        for i in np.flatnonzero((bps < SLOWEST_BPS) & (bps != 0.0)).tolist():
            raise InvalidInput(f"Varying(bps[{i}]={bps[i]:g}): give bit/s, or 0 for no transfer")
        if self.period_s is not None:
            period = check_positive(
                "Varying(period_s={!r})", self.period_s, remedy="give seconds, or None for no repetition"
            )
            if period <= times[-1]:
                raise InvalidInput(f"Varying(period_s={period:g}): the last step is at {times[-1]:g} s; repeat later")
            object.__setattr__(self, "period_s", period)
            if not bps.any():
                raise InvalidInput("Varying: all bandwidths are 0, so that transfers never end; give a positive one")
        elif bps[-1] == 0.0:
            raise InvalidInput("Varying: the last bandwidth is 0 and stays, so transfers never end; give period_s=")
        for name, column in (("times_s", times), ("bps", bps)):
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    @property
    def mean_bps(self) -> float:
        """The mean over a period; without a period, the last bandwidth."""
        times, bps = np.asarray(self.times_s), np.asarray(self.bps)
        if self.period_s is None:
            return float(bps[-1])
        return float(np.diff(times, append=self.period_s) @ bps / self.period_s)

    def steps(self, from_s: float) -> Iterator[tuple[float, float]]:
        """Yield (time, bandwidth): the bandwidth at `from_s`, then every later change, in order."""
        times: Array = np.asarray(self.times_s)
        rows = list(zip(times.tolist(), np.asarray(self.bps).tolist(), strict=True))
        period = self.period_s
        cycle = 0.0 if period is None else max(0.0, math.floor(from_s / period) - 1.0)
        now = rows[0][1] if period is None or cycle == 0.0 else rows[-1][1]
        while True:
            begin = 0.0 if period is None else cycle * period  # a product, so that rounding errors do not add up
            for time, bps in rows:
                if begin + time > from_s:
                    if now is not None:
                        yield from_s, now
                        now = None
                    yield begin + time, bps
                elif now is not None:
                    now = bps
            if period is None:
                break
            cycle += 1.0
        if now is not None:
            yield from_s, now

    def at(self, time_s: float) -> float:
        """Return the bandwidth at a time."""
        return next(self.steps(time_s))[1]


def means_of(bandwidths: Any) -> tuple[Any, dict[int, Varying]]:
    """Return bandwidths as numbers, the mean of each that varies, and the varying ones by position.

    Other types than lists, tuples and arrays of objects are returned unchanged, to be refused by the caller.
    """
    if isinstance(bandwidths, Varying):
        return [bandwidths.mean_bps], {0: bandwidths}
    if not (type(bandwidths) in (list, tuple) or (type(bandwidths) is np.ndarray and bandwidths.dtype == object)):
        return bandwidths, {}
    listed = list(np.ravel(bandwidths)) if isinstance(bandwidths, np.ndarray) else list(bandwidths)
    varying = {i: value for i, value in enumerate(listed) if isinstance(value, Varying)}
    return ([v.mean_bps if i in varying else v for i, v in enumerate(listed)] if varying else bandwidths), varying


class RateSteps:
    """The times at which the bandwidths of links in use change."""

    def __init__(self, varying: Mapping[int, Varying]) -> None:
        if not isinstance(varying, Mapping) or not all(isinstance(v, Varying) for v in varying.values()):
            raise InvalidInput(f"varying={short_repr(varying)}: give a mapping of links to fs.network.Varying")
        self._varying = varying
        self._users = dict.fromkeys(varying, 0)
        self._taken = dict.fromkeys(varying, 0)  # how often each has come into use
        self._to_come: dict[int, Iterator[tuple[float, float]]] = {}
        self._queue: list[tuple[float, int, float, int]] = []  # heap of (time, link, bandwidth, taken)

    def take(self, now_s: float, links: Iterable[int]) -> list[tuple[int, float]]:
        """Add a flow over these links; return those that were not in use, and their bandwidths now."""
        fresh = []
        for link in links:
            if link in self._varying:
                self._users[link] += 1
                if self._users[link] == 1:
                    self._taken[link] += 1
                    self._to_come[link] = self._varying[link].steps(now_s)
                    fresh.append((link, next(self._to_come[link])[1]))
                    self._expect(link)
        return fresh

    def release(self, links: Iterable[int]) -> None:
        """Remove a flow over these links."""
        for link in links:
            if link in self._varying:
                self._users[link] -= 1

    def next_s(self) -> float:
        """Return when the next bandwidth changes, inf if none does."""
        queue = self._queue
        while queue and (not self._users[queue[0][1]] or self._taken[queue[0][1]] != queue[0][3]):
            heappop(queue)
        return queue[0][0] if queue else math.inf

    def due(self, now_s: float) -> list[tuple[int, float]]:
        """Return the links whose bandwidths have changed by now, and their bandwidths."""
        changed = []
        while self.next_s() <= now_s:
            _, link, bps, _ = heappop(self._queue)
            changed.append((link, bps))
            self._expect(link)
        return changed

    def _expect(self, link: int) -> None:
        for time, bps in self._to_come[link]:
            heappush(self._queue, (time, link, bps, self._taken[link]))
            break
