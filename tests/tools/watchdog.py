"""A case that hangs fails instead."""

from __future__ import annotations

import signal
from contextlib import contextmanager

PROCESSOR_S, REAL_S = 60, 180  # for one case, all of them tiny; one may compile a clock on a busy machine


class Hung(BaseException):
    """Not an Exception, so that nobody on the way mistakes it for a client's."""


@contextmanager
def watchdog(case):
    def bark(*_):
        raise Hung(f"case {case} ran for more than {PROCESSOR_S} s of processor time, or waits for something")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, PROCESSOR_S), (signal.ITIMER_REAL, signal.SIGALRM, REAL_S))
    before = [signal.signal(number, bark) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
