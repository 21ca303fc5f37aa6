"""What a check collects: the promises that hold, or the first that does not, said as a failure."""

from __future__ import annotations

JOBS = 21  # that a subject is tried with


class Broken(AssertionError):
    """Something that a part of a scenario has to hold does not hold."""


class Promises:
    """Those of one subject that were kept so far."""

    def __init__(self, subject: object, tried_on: str = "") -> None:
        self.name, self._on = type(subject).__name__, tried_on and f" (on {tried_on})"
        self.kept: list[str] = []

    def __call__(self, text: str, holds: bool, otherwise: str) -> None:
        """Note a promise, or raise Broken with the sentence about its failure."""
        if not holds:
            raise Broken(f"{self.name}: {otherwise}{self._on}")
        self.kept.append(text + self._on)
