"""What a reader of our output may expect: nobody's run dies of a closed pipe, and no warning precedes the sentence."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TextIO


class Patient:
    """A stream whose reader may go away, as in `fedsim run ... | head -1`: the rest is said to nobody."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._silence()

    def _silence(self) -> None:
        """What is still in its buffer goes to nobody too; otherwise Python would complain of it at its end."""
        nobody = os.open(os.devnull, os.O_WRONLY)
        with suppress(OSError, ValueError):
            os.dup2(nobody, self._stream.fileno())
        os.close(nobody)


def patient_output() -> None:
    """For the program itself, not for tests that read what is printed."""
    if sys.stdout is not None:
        sys.stdout = Patient(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = Patient(sys.stderr)


@dataclass
class Heard:
    """The warnings of a command; after a failure, numerical ones say nothing that its sentence does not."""

    failed: bool = False
    lines: dict[str, type[Warning]] = field(default_factory=dict)  # each once, in order


@contextmanager
def warnings_last() -> Iterator[Heard]:
    """Hold back Python's warnings until the command is done."""
    heard = Heard()

    def hear(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        heard.lines.setdefault(f"warning: {' '.join(str(message).split())}", category)

    before = warnings.showwarning
    warnings.showwarning = hear
    try:
        yield heard
    finally:
        warnings.showwarning = before
        for line, category in heard.lines.items():
            if not heard.failed or issubclass(category, UserWarning):
                print(line, file=sys.stderr)
