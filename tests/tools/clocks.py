"""Contexts in which every run is on one clock, through the argument `clock=` of `fs.run`, or on one of its paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from fedsim import running
from fedsim.engine.clock.compiled import paths as compiled


@contextmanager
def clock(name: str) -> Iterator[None]:
    """Make `clock=name` the default of `fs.run`."""
    with mock.patch.dict(running.DEFAULTS, clock=name):
        yield


def reference_clock():
    return clock("simpy")


def always_compiled():
    return clock("compiled")


@contextmanager
def compiled_path(path: str) -> Iterator[None]:
    """Make every run take the compiled clock's event loop ("loop") or its path without events ("short")."""
    with (
        clock("compiled"),
        mock.patch.object(compiled.compiled_clock, "__defaults__", (path, *compiled.compiled_clock.__defaults__[1:])),
    ):
        yield
