"""Policies that close before everybody has answered.

What they have in common are functions, which their classes name as methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, positive, quoted
from fedsim.participation.counts import Sized, check_counts, check_size
from fedsim.protocols import Rng, View
from fedsim.protocols.columns import PolicyColumns
from fedsim.rules import selection
from fedsim.rules.closing import AT_DEADLINE, AT_REPLIES, Closing, closing_s


def _ask(self: Sized, view: View, rng: Rng) -> Array:
    """So many clients, or everybody."""
    return np.asarray(view.everybody() if self.size is None else view.sample_available(self.size))


def _columns(self: Sized, rule: Closing) -> PolicyColumns:
    return PolicyColumns(selection.ALL if self.size is None else selection.UNIFORM, self.size or 0, closing=rule)


def _closing_s(rule: Closing, view: View) -> float:
    return closing_s(rule, view.opened_s, float(view.now_s), len(view.selected), len(view.arrived))


def _at_most(self: Sized, weights: Array, clients: Array) -> tuple[Array, bool]:
    """Who is asked may be late: no more than the chance to be asked."""
    return np.ones(len(weights)) if self.size is None else self.size / clients, False


@dataclass(frozen=True)
class First:
    replies: int
    size: int | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        check_counts("first", self, "replies", optional=("size", "at_least"))
        if self.size is not None and self.size < self.replies:
            given = f"participation.first({self.replies}, of={self.size})"
            raise InvalidInput(f"{given}: cannot wait for {self.replies} of {self.size}; ask at least {self.replies}")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_REPLIES, float(self.replies))

    def close(self, view: View) -> float:
        return _closing_s(self._closing, view)

    def check(self, clients: int) -> None:
        check_size(self, clients)
        if self.size is None and self.replies > clients:
            given = f"participation.first({self.replies})"
            raise InvalidInput(f"{given}: only {clients} clients exist; wait for at most {clients}")

    def to_columns(self) -> PolicyColumns:
        return _columns(self, self._closing)

    select, chance = _ask, _at_most


@dataclass(frozen=True)
class Deadline:
    seconds: float
    size: int | None = None
    at_least: int | None = None
    batched = True

    def __post_init__(self) -> None:
        remedy = "seconds must be a positive number"
        object.__setattr__(self, "seconds", positive("participation.deadline({})", self.seconds, remedy=remedy))
        check_counts("deadline", self, optional=("size", "at_least"))

    @property
    def _closing(self) -> Closing:
        return Closing(AT_DEADLINE, self.seconds)

    def close(self, view: View) -> float:
        return _closing_s(self._closing, view)

    def to_columns(self) -> PolicyColumns:
        return _columns(self, self._closing)

    select, check, chance = _ask, check_size, _at_most


@dataclass(frozen=True)
class Buffered:
    replies: int
    size: int | None = None
    discount: Callable[[int], float] | None = None
    asynchronous, at_least = True, None

    def __post_init__(self) -> None:
        check_counts("buffered", self, "replies", optional=("size",))
        if not (self.discount is None or callable(self.discount)) or isinstance(self.discount, type):
            given = f"participation.buffered(discount={quoted(self.discount)})"
            raise InvalidInput(f"{given}: give a function of the staleness, or None")

    @property
    def _closing(self) -> Closing:
        return Closing(AT_REPLIES, float(self.replies))

    def close(self, view: View) -> float:
        return _closing_s(self._closing, view)

    def to_columns(self) -> PolicyColumns:
        return _columns(self, self._closing)

    select, check = _ask, check_size
