"""Contexts in which every run is on one clock, through the argument `clock=` of `fs.run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fedsim import running


@contextmanager
def clock(name: str) -> Iterator[None]:
    """Make `clock=name` the default of `fs.run`."""
    with mock.patch.dict(running.arun.__kwdefaults__, clock=name):
        yield


def reference_clock():
    return clock("simpy")


def always_compiled():
    return clock("compiled")
