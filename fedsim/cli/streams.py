"""No warning precedes the one sentence that a command ends with."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class HeldWarnings:
    """The warnings of a command; after a failure, numerical ones say nothing that its sentence does not."""

    failed: bool = False
    lines: dict[str, type[Warning]] = field(default_factory=dict)  # each once, in order


@contextmanager
def warnings_last() -> Iterator[HeldWarnings]:
    """Hold back Python's warnings until the command is done."""
    heard = HeldWarnings()

    def hear(message: object, category: type[Warning], *_: object, **__: object) -> None:
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
