"""Devices: what a client's processor and owner do to the clock. Four independent parts:

    speed          seconds per local step: one number, a column with a row per client, or a law
    slow-down      a random factor on every visit
    dropout        whether a visit is cut short, in which phase, and where in it
    availability   when the client is on at all

Nothing here knows networks or algorithms, nothing here remembers: every answer is a function of the client, the
time and the keys in `rng`, for many visits at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import check_bool
from fedsim.devices.availability import Availability
from fedsim.devices.speed import LognormalSpeed, Slowdown
from fedsim.errors import InvalidInput
from fedsim.per_client import Column, column, duration, length, pick
from fedsim.protocols import (
    AvailabilityColumns,
    AvailabilityLike,
    Describes,
    DeviceColumns,
    SlowdownColumns,
    SlowdownLike,
)
from fedsim.rng import Draws
from fedsim.text import short_repr, short_str

NONE, BEFORE, COMPUTE, UPLOAD = range(4)  # the phases of `drop`
PHASES = ("before", "compute", "upload")


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of all clients. `constant`, `lognormal`, `table` and `from_flops` make them.

    seconds_per_step: a number, one per client, or a law such as `LognormalSpeed`.
    slowdown: None, or a factor drawn anew at every visit, such as `pareto_slowdown(2.0)`.
    dropout: the probability that a visit ends during its compute time (a number or one per client), or a
        mapping of "before", "compute" and "upload" to probabilities.
    availability: None for always, or `markov`, `diurnal`, `intervals`.
    latency_s: seconds before the first step of a visit, to wake up and load the model.
    per_example: the seconds are for one example, so that work counts steps times examples.
    recycle: client c uses row c modulo the number of rows, so a short table serves any population.
    """

    seconds_per_step: Column | LognormalSpeed
    slowdown: Slowdown | None = None
    dropout: Column | Mapping[str, Column] = 0.0
    availability: Availability | None = None
    latency_s: Column = 0.0
    per_example: bool = False
    recycle: bool = False

    timeless = True  # how long a visit computes and whether it drops out does not depend on when it begins

    def __post_init__(self) -> None:
        for name in ("per_example", "recycle"):
            object.__setattr__(self, name, check_bool(f"devices {name}={{}}", getattr(self, name)))
        if not isinstance(self.seconds_per_step, LognormalSpeed):
            unit = "seconds_per_example" if self.per_example else "seconds_per_step"
            object.__setattr__(self, "seconds_per_step", column(unit, self.seconds_per_step))
        object.__setattr__(self, "latency_s", column("latency_s", self.latency_s))
        object.__setattr__(self, "dropout", _dropout(self.dropout))
        _has(self.slowdown, "slowdown", "factor", "devices.pareto_slowdown(2.0)")
        _has(self.availability, "availability", "next_available", "devices.markov(on_s=3600, off_s=7200)")

    # --- What the engine asks -----------------------------------------------------------------------

    def compute_s(self, clients: Array, work: Array, now_s: Array, rng: Draws) -> Array:
        """Seconds that each visit computes: work x seconds per step x slow-down, after the latency."""
        if not len(clients):
            return np.zeros(0)
        seconds = work * self._seconds_per_step(clients, rng.source)
        if self.slowdown is not None:
            seconds = seconds * self.slowdown.factor(rng)
        return np.asarray(seconds + self._of(clients, self.latency_s))

    def drop(self, clients: Array, now_s: Array, rng: Draws) -> tuple[Array, Array]:
        """The phase in which each visit ends early (int8, 0 for none) and how far into that phase (0 to 1)."""
        if self.reliable or not len(clients):
            return np.zeros(len(clients), np.int8), np.zeros(len(clients))
        u, fraction = rng.uniform(), rng.uniform()
        phase, reached = np.zeros(len(clients), np.int8), np.zeros(len(clients))
        for number, name in enumerate(PHASES, start=1):
            share = self._share(name)
            if isinstance(share, float) and share == 0.0:
                continue
            until = reached + self._of(clients, share)
            phase[(reached <= u) & (u < until)] = number
            reached = until
        return phase, fraction

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        """Now for a client that is on, else the time it comes on next, inf if it never does."""
        if self.availability is None or not len(clients):
            return np.array(now_s, np.float64)
        rows = self._rows(clients, self._tables.get("availability"))
        return self.availability.next_available(rows, now_s, rng)

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        """The end of the on-period that each client is in, inf if it has none; now for a client that is off."""
        if self.availability is None or not len(clients):
            return np.full(len(clients), np.inf)
        rows = self._rows(clients, self._tables.get("availability"))
        return self.availability.available_until(rows, now_s, rng)

    def dropout_of(self, clients: Array) -> Array:
        """The probability that a visit of each client is lost, in whatever phase."""
        shares = (self._share(name) for name in PHASES)
        return sum((self._of(clients, share) + np.zeros(len(clients)) for share in shares), np.zeros(len(clients)))

    def to_columns(self, clients: int, work: Array) -> DeviceColumns | None:
        """Return the devices as columns; None where a part has none."""
        slowdown, online, everyone = SlowdownColumns(), AvailabilityColumns(), np.arange(clients)
        if self.slowdown is not None:
            if not isinstance(self.slowdown, SlowdownLike):
                return None
            slowdown = self.slowdown.to_columns()
        if self.availability is not None:
            if not isinstance(self.availability, AvailabilityLike):
                return None
            online = self.availability.to_columns(self._rows(everyone, self._tables.get("availability")))
        before, compute, upload = (self._of(everyone, self._share(name)) for name in PHASES)
        with np.errstate(over="ignore"):  # for ever
            work_s = work * self._seconds_per_step(everyone)
        return DeviceColumns(work_s, self._of(everyone, self.latency_s), slowdown, (before, compute, upload), online)

    # --- What the engine may skip, and what it prints -------------------------------------------------

    @property
    def always_available(self) -> bool:
        return self.availability is None

    @cached_property
    def reliable(self) -> bool:
        """Nobody ever drops out."""
        return not any(np.any(self._share(name)) for name in PHASES)

    @cached_property
    def instant(self) -> bool:
        """Computing takes no time at all."""
        speed = self.seconds_per_step
        seconds = speed.median_step_s if isinstance(speed, LognormalSpeed) else speed
        return not (np.any(seconds) or np.any(self.latency_s))

    @property
    def clients(self) -> int | None:
        """How many clients the tables have rows for; None for any number."""
        return None if self.recycle else min(self._tables.values(), default=None)

    def check(self, clients: int) -> None:
        """Refuse tables with fewer rows than there are clients."""
        for name, rows in self._tables.items():
            if rows < clients and not self.recycle:
                raise InvalidInput(
                    f"devices: {name} has {rows} rows for {clients} clients; give one row per client, or"
                    " recycle=True to use the rows again and again"
                )

    def describe(self) -> str:
        """One line: `lognormal 1 ms/step, Pareto slow-down, dropout 5%`."""
        unit = "/example" if self.per_example else "/step"
        if isinstance(self.seconds_per_step, LognormalSpeed):
            parts = [f"lognormal {duration(self.seconds_per_step.median_step_s)}{unit}"]
        else:
            parts = ["instant" if self.instant else duration(self.seconds_per_step) + unit]
        if np.any(self.latency_s):
            parts.append(f"latency {duration(self.latency_s)}")
        if self.slowdown is not None:
            parts.append(_words(self.slowdown, "slow-down"))
        if not self.reliable:
            parts.append(f"dropout {100 * sum(np.mean(self._share(name)) for name in PHASES):.3g}%")
        if self.availability is not None:
            parts.append(_words(self.availability, "availability"))
        return ", ".join(parts)

    # --- Rows -----------------------------------------------------------------------------------------

    def _seconds_per_step(self, clients: Array, source: Any = None) -> Column:
        """Return each client's own, drawn once; `source` is `fedsim.rng` or its compiled twin."""
        law = self.seconds_per_step
        if not isinstance(law, LognormalSpeed):
            return self._of(clients, law)
        drawn: Array = self.__dict__.get("_drawn", np.zeros(0))
        if (top := int(clients.max(initial=-1)) + 1) > len(drawn):
            drawn = law.seconds_per_step(np.arange(max(top, 2 * len(drawn))), source)
            object.__setattr__(self, "_drawn", drawn)
        return drawn[clients]

    def _of(self, clients: Array, values: Column) -> Column:
        """Return the number that all clients share, or each client's own."""
        if isinstance(values, float):
            return values
        rows = self._rows(clients, len(values))
        return values[rows] if rows.max(initial=-1) < len(values) else pick(values, rows)  # which refuses

    def _rows(self, clients: Array, rows: int | None) -> Array:
        return clients % rows if self.recycle and rows is not None else clients

    def _share(self, phase: str) -> Column:
        if isinstance(self.dropout, Mapping):
            return self.dropout.get(phase, 0.0)
        return self.dropout if phase == "compute" else 0.0

    @cached_property
    def _tables(self) -> dict[str, int]:
        tables = {"seconds_per_step": length(self.seconds_per_step), "latency_s": length(self.latency_s)}
        tables |= {f"dropout ({name})": length(self._share(name)) for name in PHASES}
        tables["availability"] = getattr(self.availability, "clients", None)
        return {name: rows for name, rows in tables.items() if rows is not None}


def _dropout(value: object) -> Column | dict[str, Column]:
    if not isinstance(value, Mapping):
        return column("dropout", value, high=1.0)
    unknown = sorted(set(value) - set(PHASES), key=short_str)
    if unknown:
        raise InvalidInput(f"dropout of {short_str(unknown)}: the phases are {', '.join(PHASES)}")
    shares = {name: column(f"dropout {name}", value[name], high=1.0) for name in PHASES if name in value}
    lengths = {length(share) for share in shares.values()} - {None}
    if len(lengths) > 1:
        raise InvalidInput("dropout: its phases have columns of different lengths; give one row per client each")
    total = np.max(sum(shares.values()))
    if total > 1.0 + 1e-9:
        raise InvalidInput(f"dropout: the phases add up to {total:g}; give probabilities that sum to at most 1")
    return shares


def _has(part: object, name: str, method: str, example: str) -> None:
    if part is not None and (isinstance(part, type) or not callable(getattr(part, method, None))):
        raise InvalidInput(f"devices {name}={short_repr(part)}: give None or a model such as {example}")


def _words(part: object, name: str) -> str:
    return str(part.describe()) if isinstance(part, Describes) else f"{type(part).__name__} {name}"
