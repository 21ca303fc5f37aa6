"""The promises of a subject that hold; the first that does not is raised as `Broken`."""

from __future__ import annotations

JOBS = 21  # in a test batch


class Broken(AssertionError):
    """A promise of a part that does not hold."""


class Promises:
    """The promises of one subject that held so far."""

    def __init__(self, subject: object, tried_on: str = "") -> None:
        self.name, self._on = type(subject).__name__, tried_on and f" (on {tried_on})"
        self.held: list[str] = []

    def __call__(self, text: str, holds: bool, otherwise: str) -> None:
        """Store a promise that holds, or raise Broken with the message `otherwise`."""
        if not holds:
            raise Broken(f"{self.name}: {otherwise}{self._on}")
        self.held.append(text + self._on)
