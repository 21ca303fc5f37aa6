"""Runs a scenario on the virtual clock. The only importer of SimPy: rounds, closing, folds, traces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from fedsim.engine.buffered import buffered
from fedsim.engine.collect import collect, identity
from fedsim.engine.events import events
from fedsim.engine.keeper import Interrupted, Keeper
from fedsim.engine.lockstep import lockstep, suits
from fedsim.engine.record import Record
from fedsim.engine.run import Observer, Progress, Run
from fedsim.engine.setting import setting_of

__all__ = ["Interrupted", "Keeper", "Observer", "Progress", "Record", "Run", "collect", "identity", "simulate"]


async def simulate(
    scenario: Any, runtime: Any, observers: Iterable[Observer] = (), skip: bool = False, keeper: Keeper | None = None
) -> Run:
    """The whole run: every replica until its budget is spent."""
    backend = runtime.kernels()
    setting = setting_of(scenario, backend)
    session = runtime.open(scenario.algorithm, setting)
    try:
        run = Run(scenario, setting, session, observers, skip)
        run.keeper = keeper if keeper is not None else Keeper(None, "", None, None)
        run.noted.on = run.keeper.files is not None
        await _way(scenario)(run)
        return run
    finally:
        session.close()


def _way(scenario: Any) -> Callable[[Run], Awaitable[None]]:
    """How to keep time: the closed form where it gives the same timeline, else event by event."""
    if getattr(scenario.participation, "asynchronous", False):
        return buffered
    return lockstep if suits(scenario) else events
