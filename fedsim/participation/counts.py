"""What policies refuse alike: to ask, or to wait for, more clients than exist, and counts that are none."""

from __future__ import annotations

from typing import Protocol

from fedsim.checks import check_int
from fedsim.errors import InvalidInput


class Sized(Protocol):
    """A policy that asks so many clients, or all, and may wait for so many to be on."""

    @property
    def size(self) -> int | None: ...
    @property
    def at_least(self) -> int | None: ...


def check_size(self: Sized, clients: int) -> None:
    """Refuse to ask, or to wait for, more clients than exist."""
    name = type(self).__name__.lower()
    if self.size is not None and self.size > clients:
        raise InvalidInput(
            f"participation.{name}({self.size}): only {clients} clients exist; ask for at most {clients}"
        )
    check_wait(self, clients, name)


def check_wait(policy: Sized, clients: int, name: str) -> None:
    if policy.at_least is not None and policy.at_least > clients:
        given = f"participation.{name}(at_least={policy.at_least})"
        raise InvalidInput(f"{given}: only {clients} clients exist; wait for at most {clients}")


def check_counts(name: str, policy: object, *counts: str, optional: tuple[str, ...] = ()) -> None:
    """Called when a policy is made, not by its factory, so that a field replaced later is checked as well."""
    for field in (*counts, *(o for o in optional if getattr(policy, o) is not None)):
        given = f"participation.{name}({'at_least=' * (field == 'at_least')}{{}})"
        count = check_int(given, getattr(policy, field), remedy="ask for an integer of at least 1")
        object.__setattr__(policy, field, count)
