"""The contract of devices, and devices as columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from fedsim.arrays import Array
from fedsim.rules.availability import ALWAYS
from fedsim.rules.draws import NO_SLOWDOWN
from fedsim.rules.visits import Dropout

if TYPE_CHECKING:
    from fedsim.protocols.algorithms import Rng
    from fedsim.rng import Draws


class SlowdownColumns(NamedTuple):
    """The law of a factor on the compute time of every visit."""

    law: int = NO_SLOWDOWN
    a: float = 0.0
    b: float = 0.0


class AvailabilityColumns(NamedTuple):
    """When clients are online: the fields of `rules.availability.OnlineLaw`, one number or one per client."""

    code: int = ALWAYS
    a: float | Array = 0.0
    b: float | Array = 0.0
    period_s: float | Array = math.inf
    begin: int | Array = 0  # a client's intervals in the two columns below
    end: int | Array = 0
    starts_s: Array = np.zeros(1)
    ends_s: Array = np.zeros(1)


class DeviceColumns(NamedTuple):
    """Compute time, dropout and availability, one number or one per client."""

    work_s: float | Array  # compute seconds of a visit, before its slow-down
    wake_s: float | Array
    slowdown: SlowdownColumns
    dropout: Dropout
    availability: AvailabilityColumns


class DevicesLike(Protocol):
    """The required members of devices: how long clients compute."""

    def compute_s(self, clients: Array, work: Array, now_s: Array, rng: Rng) -> Array:
        """Return the compute seconds (visits,) of visits by `clients` that begin at `now_s`, (visits,) each.

        `work` is the local steps of each (times rows, if `per_example`); `rng` has a row of draws for each.
        """


class DeviceModel(DevicesLike, Protocol):
    """All members of devices, with the defaults of the optional ones."""

    wrapped: Any  # the object itself, once it has defaults

    timeless: bool = False  # nothing here depends on when a visit begins
    per_example: bool = False  # work counts rows as well

    def drop(self, clients: Array, now_s: Array, rng: Rng) -> tuple[Array, Array]:
        """Return the phase in which each visit drops out (0 none, 1 before, 2 compute, 3 upload) and the fraction."""
        return np.zeros(len(clients), np.int8), np.zeros(len(clients))

    @property
    def reliable(self) -> bool:
        """No client ever drops out."""
        return not isinstance(self, HasDropouts)

    def next_available(self, clients: Array, now_s: Array, rng: Rng) -> Array:
        """Return now for clients that are online, else when they come online; inf: never."""
        return now_s

    def available_until(self, clients: Array, now_s: Array, rng: Rng) -> Array:
        """Return when each client, which is online now, goes offline."""
        return np.full(len(clients), math.inf)

    @property
    def always_available(self) -> bool:
        return not isinstance(self, HasAvailability)

    def dropout_of(self, clients: Array) -> Array | None:
        """Return each client's probability to lose a visit; None: unknown."""
        return None

    def check(self, clients: int) -> None:
        """Refuse tables with too few rows."""

    def to_columns(self, clients: int, work: Array) -> DeviceColumns | None:
        """Return columns for the compiled clock, given the work of every client's visit; None: SimPy clock only."""
        return None


@runtime_checkable
class SlowdownLike(Protocol):
    """A law of slow-downs that the compiled clock can draw from."""

    def to_columns(self) -> SlowdownColumns: ...


@runtime_checkable
class AvailabilityLike(Protocol):
    """An availability model that the compiled clock can evaluate, given the row of each client."""

    def to_columns(self, rows: Array) -> AvailabilityColumns: ...


@runtime_checkable
class HasDropouts(Protocol):
    """Devices whose visits may drop out."""

    def drop(self, clients: Array, now_s: Array, rng: Rng) -> tuple[Array, Array]: ...


@runtime_checkable
class HasAvailability(Protocol):
    """Devices that are not always online."""

    def next_available(self, clients: Array, now_s: Array, rng: Rng) -> Array: ...


class Availability(Protocol):
    """Online periods; `rng` has one row per client, the same in every call: (seed, replica, client)."""

    @property
    def clients(self) -> int | None: ...  # rows of its table, None for any number of clients

    def next_available(self, clients: Array, now_s: Array, rng: Draws) -> Array: ...

    def available_until(self, clients: Array, now_s: Array, rng: Draws) -> Array: ...

    def describe(self) -> str: ...


class Slowdown(Protocol):
    """A factor on the compute time of a visit."""

    def factor(self, rng: Draws) -> Array: ...  # (rows,)

    def describe(self) -> str: ...
