"""The requirements that a subject meets; the first that it does not meet is raised as `Broken`."""

from __future__ import annotations

JOBS = 21  # in a test batch


class Broken(AssertionError):
    """A requirement that a part does not meet."""


class Contract:
    """The requirements that one subject has met so far; a call checks the next one."""

    def __init__(self, subject: object, tried_on: str = "") -> None:
        self.name, self._on = type(subject).__name__, tried_on and f" (on {tried_on})"
        self.held: list[str] = []

    def __call__(self, text: str, holds: bool, otherwise: str) -> None:
        """Record a requirement that holds, or raise Broken with the message `otherwise`."""
        if not holds:
            raise Broken(f"{self.name}: {otherwise}{self._on}")
        self.held.append(text + self._on)
