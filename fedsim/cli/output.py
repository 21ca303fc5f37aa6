"""Standard output that may be closed, full, or read by somebody who has heard enough: a run goes on all the same."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Output:
    """A stream that stops writing at its first error, and remembers it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.error = stream, None if stream is not None else OSError(9, "closed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try("write", text)
        return len(text)

    def flush(self) -> None:
        self._try("flush")

    def isatty(self) -> bool:
        return self.error is None and bool(self._stream.isatty())

    def code(self, code: int) -> int:
        """The exit code: what could not be written is a failure, unless the reader left of its own accord."""
        self.flush()
        if self.error is None:
            return code
        if self._stream is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python complains about it at the very end
        if isinstance(self.error, BrokenPipeError) or self._stream is None:
            return code
        why = self.error.strerror or self.error
        print(f"fedsim: standard output cannot be written to ({why}); results are where --out says", file=sys.stderr)
        return code or 1

    def _try(self, name: str, *arguments: object) -> None:
        if self.error is None:
            try:
                getattr(self._stream, name)(*arguments)
            except OSError as error:
                self.error = error


@contextmanager
def careful() -> Iterator[Output]:
    """Standard streams that never raise, whatever is or is not behind them."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # no name of a file, and no letter that the terminal lacks, may stop a run
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    output, before = Output(sys.stdout), (sys.stdout, sys.stderr)
    sys.stdout = output
    sys.stderr = Output(sys.stderr)
    try:
        yield output
    finally:
        sys.stdout = before[0]
        if before[1] is not None:
            sys.stderr = before[1]
