"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second does not wait for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that is set when the user, or the machine's scheduler, wants the program to end."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield stop
        return

    def ask(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
