"""What devices have to offer and may do besides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from fedsim.arrays import Array

if TYPE_CHECKING:
    from fedsim.protocols.algorithms import Rng
    from fedsim.protocols.columns import AvailabilityColumns, DeviceColumns, SlowdownColumns


class DevicesLike(Protocol):
    """How long the clients compute."""

    def compute_s(self, clients: Array, work: Array, now_s: Array, rng: Rng) -> Array:
        """Seconds that each visit computes, (visits,), of visits by `clients` that begin at `now_s`, (visits,) each.

        `work` is the local steps of each (times rows, if `per_example`); `rng` has a row of draws for each.
        """


class DeviceModel(DevicesLike, Protocol):
    """What devices may do besides."""

    wrapped: Any  # the object itself, once it has defaults

    timeless: bool = False  # nothing here depends on when a visit begins
    per_example: bool = False  # work counts rows as well

    def drop(self, clients: Array, now_s: Array, rng: Rng) -> tuple[Array, Array]:
        """The phase in which each visit breaks off (0: none, 1 before, 2 compute, 3 upload), and how far into it."""
        return np.zeros(len(clients), np.int8), np.zeros(len(clients))

    @property
    def reliable(self) -> bool:
        """Nobody ever drops out."""
        return not isinstance(self, Drops)

    def next_available(self, clients: Array, now_s: Array, rng: Rng) -> Array:
        """Now for whoever is on, else when it comes on; inf: never."""
        return now_s

    def available_until(self, clients: Array, now_s: Array, rng: Rng) -> Array:
        """When each client, on now, goes off."""
        return np.full(len(clients), math.inf)

    @property
    def always_available(self) -> bool:
        return not isinstance(self, ComesAndGoes)

    def dropout_of(self, clients: Array) -> Array | None:
        """Everybody's chance to lose a visit; None: not known."""
        return None

    def check(self, clients: int) -> None:
        """Refuse tables with too few rows."""

    def to_columns(self, clients: int, work: Array) -> DeviceColumns | None:
        """Return the devices as columns for the compiled clock, given the work of every client's visit; None: they run
        on the SimPy clock."""
        return None


@runtime_checkable
class InNumbers(Protocol):
    """A law, such as a slow-down's, that a kind and a few numbers name."""

    def to_columns(self) -> SlowdownColumns: ...


@runtime_checkable
class InColumns(Protocol):
    """When clients are on, told in columns: a row for each of these."""

    def to_columns(self, rows: Array) -> AvailabilityColumns: ...


@runtime_checkable
class Drops(Protocol):
    def drop(self, clients: Array, now_s: Array, rng: Rng) -> tuple[Array, Array]: ...


@runtime_checkable
class ComesAndGoes(Protocol):
    def next_available(self, clients: Array, now_s: Array, rng: Rng) -> Array: ...
