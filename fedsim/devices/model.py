"""The devices of all clients, in four independent parts:

    speed          seconds per local step: one number, a column with a row per client, or a law
    slow-down      a random factor on every visit
    dropout        whether a visit ends early, in which phase, and where in it
    availability   when the client is online

Devices have no state. Every value is a function of the client, the time and the keys in `rng`, for many visits in one
call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsim import rng as numpy_draws
from fedsim.arrays import Array
from fedsim.checks import call_function, check_bool, check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.per_client import Column, check_column, check_field, duration, row_count, rows_of
from fedsim.protocols import (
    AvailabilityColumns,
    AvailabilityLike,
    Describes,
    DeviceColumns,
    SlowdownColumns,
    SlowdownLike,
    call,
    member,
)
from fedsim.protocols.devices import Availability, Slowdown
from fedsim.rng import Draws, Stream
from fedsim.rng.elementary import exp
from fedsim.rules.visits import DROPOUT, Dropout, drop_phase
from fedsim.text import short_repr, short_str

PHASES = Dropout._fields
NO_ROUND = 2**32 - 1  # the round in the key of draws that belong to no round


@dataclass(frozen=True)
class LognormalSpeed:
    """Seconds per step of client c: `median_step_s * exp(sigma * z_c)`, a standard normal z_c for (seed, c).

    Only the clients of a call are drawn, so that the cost does not depend on the population. `exp` is fedsim's own, so
    that the bits depend neither on the machine nor on the number of clients in a call.
    """

    median_step_s: float
    _: KW_ONLY
    sigma: float
    seed: int = 0

    def __post_init__(self) -> None:
        check_field(self, "median_step_s", "lognormal median_step_s")
        check_field(self, "sigma", "lognormal sigma", high=50.0)
        remedy = "a seed is an integer from 0 to 2**64 - 1"
        object.__setattr__(self, "seed", check_int("lognormal seed={!r}", self.seed, 0, remedy, 2**64 - 1))

    def seconds_per_step(self, clients: Array, source: Any = None) -> Array:
        """Return seconds per step, (n,); `source` is `fedsim.rng` or its compiled twin."""
        top = int(clients.max()) + 1
        if top < len(clients):  # many visits of few clients: draw each client once
            return self.seconds_per_step(np.arange(top), source)[clients]
        source = source or numpy_draws
        key = source.keys(int(self.seed), Stream.COMPUTE, client=clients, round=NO_ROUND)
        return self.median_step_s * exp(self.sigma * source.normal(key, 1)[:, 0])


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of all clients, as `constant`, `lognormal`, `table` and `from_flops` make them.

    seconds_per_step: a number, one per client, or a law such as `LognormalSpeed`.
    slowdown: None, or a random factor on every visit, such as `pareto_slowdown(2.0)`.
    dropout: the probability that a visit ends during its compute time (a number or one per client), or a
        mapping of "before", "compute" and "upload" to probabilities.
    availability: None for always online, or `markov`, `diurnal`, `intervals`.
    latency_s: seconds before the first step of a visit, to wake up and load the model.
    per_example: the seconds are for one example, so that work is steps times examples.
    recycle: client c uses row c modulo the number of rows, so a short table serves any population.
    """

    seconds_per_step: Column | LognormalSpeed
    _: KW_ONLY
    slowdown: Slowdown | None = None
    dropout: Column | Mapping[str, Column] = 0.0
    availability: Availability | None = None
    latency_s: Column = 0.0
    per_example: bool = False
    recycle: bool = False
    flops_per_step: float | None = None  # of `from_flops`: the floating-point operations of a step

    timeless = True  # compute time and dropout do not depend on when a visit begins

    def __post_init__(self) -> None:
        for name in ("per_example", "recycle"):
            object.__setattr__(self, name, check_bool(f"devices {name}={{}}", getattr(self, name)))
        if not isinstance(self.seconds_per_step, LognormalSpeed):
            unit = "seconds_per_example" if self.per_example else "seconds_per_step"
            object.__setattr__(self, "seconds_per_step", check_column(unit, self.seconds_per_step))
        object.__setattr__(self, "latency_s", check_column("latency_s", self.latency_s))
        object.__setattr__(self, "dropout", _dropout(self.dropout))
        if self.flops_per_step is not None:
            object.__setattr__(self, "flops_per_step", check_positive("flops_per_step={}", self.flops_per_step))
        _has(self.slowdown, "slowdown", "factor", "devices.pareto_slowdown(2.0)")
        _has(self.availability, "availability", "next_available", "devices.markov(on_s=3600, off_s=7200)")

    # --- Visits ---------------------------------------------------------------------------------------

    def compute_s(self, clients: Array, work: Array, now_s: Array, rng: Draws) -> Array:
        """Return the compute time of each visit: latency + work x seconds per step x slow-down."""
        if not len(clients):
            return np.zeros(0)
        seconds = work * self._seconds_per_step(clients, rng.source)
        if self.slowdown is not None:
            seconds = seconds * call(self.slowdown, "factor", rng)
        return np.asarray(seconds + self._of(clients, self.latency_s))

    def drop(self, clients: Array, now_s: Array, rng: Draws) -> tuple[Array, Array]:
        """Return the phase in which each visit ends early (int8, 0 for none) and how far into that phase (0 to 1)."""
        if self.reliable or not len(clients):
            return np.zeros(len(clients), np.int8), np.zeros(len(clients))
        u, fraction = rng.uniform(), rng.uniform()
        odds = np.empty(len(clients), DROPOUT)
        for name in PHASES:
            odds[name] = self._of(clients, self._share(name))
        if rng.source is None or rng.source.name == "numpy":
            phases = [drop_phase(own, Dropout(*share)) for own, share in zip(u.tolist(), odds.tolist(), strict=True)]
            return np.array(phases, np.int8), fraction
        return np.asarray(rng.source.drop_phases(u, odds)), fraction

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        """Return now for a client that is online, else the time it comes online, inf if it never does."""
        if self.availability is None or not len(clients):
            return np.array(now_s, np.float64)
        rows = self._rows(clients, self._tables.get("availability"))
        return np.asarray(call(self.availability, "next_available", rows, now_s, rng))

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array:
        """Return when each client goes offline, inf if it never does; now for a client that is offline."""
        if self.availability is None or not len(clients):
            return np.full(len(clients), np.inf)
        rows = self._rows(clients, self._tables.get("availability"))
        return np.asarray(call(self.availability, "available_until", rows, now_s, rng))

    def dropout_of(self, clients: Array) -> Array:
        """Return the probability that a visit of each client is lost, in any phase."""
        shares = (self._share(name) for name in PHASES)
        return sum((self._of(clients, share) + np.zeros(len(clients)) for share in shares), np.zeros(len(clients)))

    def to_columns(self, clients: int, work: Array) -> DeviceColumns | None:
        """Return the devices as columns; None where a part has none."""
        slowdown, online, ids = SlowdownColumns(), AvailabilityColumns(), np.arange(clients)
        if self.slowdown is not None:
            if not isinstance(self.slowdown, SlowdownLike):
                return None
            slowdown = self.slowdown.to_columns()
        if self.availability is not None:
            if not isinstance(self.availability, AvailabilityLike):
                return None
            online = self.availability.to_columns(self._rows(ids, self._tables.get("availability")))
        dropout: Any = [self._of(ids, self._share(name)) for name in PHASES]
        with np.errstate(over="ignore"):  # an infinite compute time is valid
            work_s = work * self._seconds_per_step(ids)
        return DeviceColumns(work_s, self._of(ids, self.latency_s), slowdown, Dropout(*dropout), online)

    # --- Properties of all clients --------------------------------------------------------------------

    @property
    def always_available(self) -> bool:
        return self.availability is None

    @cached_property
    def reliable(self) -> bool:
        """True if no visit ever drops out."""
        return not any(np.any(self._share(name)) for name in PHASES)

    @cached_property
    def instant(self) -> bool:
        """True if computing takes no time."""
        speed = self.seconds_per_step
        seconds = speed.median_step_s if isinstance(speed, LognormalSpeed) else speed
        return not (np.any(seconds) or np.any(self.latency_s))

    @property
    def clients(self) -> int | None:
        """The number of clients that the tables have rows for; None for any number."""
        return None if self.recycle else min(self._tables.values(), default=None)

    def check(self, clients: int) -> None:
        """Refuse tables with fewer rows than there are clients."""
        for name, rows in self._tables.items():
            if rows < clients and not self.recycle:
                raise InvalidInput(
                    f"devices: {name} has {rows} rows for {clients} clients; give one row per client, or"
                    " recycle=True to repeat the rows"
                )

    def describe(self) -> str:
        """Return one line: `lognormal 1 ms/step, Pareto slow-down, dropout 5%`."""
        unit = "/example" if self.per_example else "/step"
        if isinstance(self.seconds_per_step, LognormalSpeed):
            parts = [f"lognormal {duration(self.seconds_per_step.median_step_s)}{unit}"]
        else:
            parts = ["instant" if self.instant else duration(self.seconds_per_step) + unit]
        if np.any(self.latency_s):
            parts.append(f"latency {duration(self.latency_s)}")
        if self.slowdown is not None:
            parts.append(_description(self.slowdown, "slow-down"))
        if not self.reliable:
            parts.append(f"dropout {100 * sum(np.mean(self._share(name)) for name in PHASES):.3g}%")
        if self.availability is not None:
            parts.append(_description(self.availability, "availability"))
        return ", ".join(parts)

    # --- Rows -----------------------------------------------------------------------------------------

    def _seconds_per_step(self, clients: Array, source: Any = None) -> Column:
        """Return the speed of each client, drawn once; `source` is `fedsim.rng` or its compiled twin."""
        law = self.seconds_per_step
        if not isinstance(law, LognormalSpeed):
            return self._of(clients, law)
        drawn: Array = self.__dict__.get("_drawn", np.zeros(0))
        if (top := int(clients.max(initial=-1)) + 1) > len(drawn):
            drawn = law.seconds_per_step(np.arange(max(top, 2 * len(drawn))), source)
            object.__setattr__(self, "_drawn", drawn)
        return drawn[clients]

    def _of(self, clients: Array, values: Column) -> Column:
        """Return the number that all clients share, or one per client."""
        if isinstance(values, float):
            return values
        rows = self._rows(clients, len(values))
        return values[rows] if rows.max(initial=-1) < len(values) else rows_of(values, rows)  # raises

    def _rows(self, clients: Array, rows: int | None) -> Array:
        return clients % rows if self.recycle and rows is not None else clients

    def _share(self, phase: str) -> Column:
        if isinstance(self.dropout, Mapping):
            return self.dropout.get(phase, 0.0)
        return self.dropout if phase == "compute" else 0.0

    @cached_property
    def _tables(self) -> dict[str, int]:
        tables = {"seconds_per_step": row_count(self.seconds_per_step), "latency_s": row_count(self.latency_s)}
        tables |= {f"dropout ({name})": row_count(self._share(name)) for name in PHASES}
        tables["availability"] = _clients(self.availability)
        return {name: rows for name, rows in tables.items() if rows is not None}


def _clients(availability: Availability | None) -> int | None:
    """Return the number of clients that an availability model has rows for; None for any number."""
    where = f"{type(availability).__name__}.clients"
    rows = call_function(where, getattr, availability, "clients", None)
    return None if rows is None else check_int(where + "={}", rows)


def _dropout(value: object) -> Column | dict[str, Column]:
    if not isinstance(value, Mapping):
        return check_column("dropout", value, high=1.0)
    unknown = sorted(set(value) - set(PHASES), key=short_str)
    if unknown:
        raise InvalidInput(f"dropout of {short_str(unknown)}: the phases are {', '.join(PHASES)}")
    shares = {name: check_column(f"dropout {name}", value[name], high=1.0) for name in PHASES if name in value}
    lengths = {row_count(share) for share in shares.values()} - {None}
    if len(lengths) > 1:
        raise InvalidInput("dropout: its phases have columns of different lengths; give one row per client each")
    total = np.max(sum(shares.values()))
    if total > 1.0 + 1e-9:
        raise InvalidInput(f"dropout: the phases add up to {total:g}; give probabilities that sum to at most 1")
    return shares


def _has(part: object, name: str, method: str, example: str) -> None:
    if part is not None and (isinstance(part, type) or not callable(member(part, method))):
        raise InvalidInput(f"devices {name}={short_repr(part)}: give None or a model such as {example}")


def _description(part: object, name: str) -> str:
    return str(call(part, "describe")) if isinstance(part, Describes) else f"{type(part).__name__} {name}"
