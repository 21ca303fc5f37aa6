"""Runs a scenario on the virtual clock. The only importer of SimPy; README.md beside this shows the way of a round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedsim.engine.system import setting_of
from fedsim.exchanges import Gossip
from fedsim.old_engine import gossip, tiers_closed_form
from fedsim.old_engine.asynchronous import Asynchronous
from fedsim.old_engine.checkpoint import Checkpointer
from fedsim.old_engine.closed_form import ClosedForm, suits
from fedsim.old_engine.collect import collect
from fedsim.old_engine.compiled_clock import compiled
from fedsim.old_engine.compiled_sites import gossip_by_events, tiers_by_events
from fedsim.old_engine.events import Events
from fedsim.old_engine.gossip import Gossiping
from fedsim.old_engine.run import Driver, Run
from fedsim.old_engine.tiers_closed_form import ClosedFormTiers
from fedsim.old_engine.world import World
from fedsim.protocols import Observer, Runtime

if TYPE_CHECKING:
    from fedsim.scenario import Scenario

__all__ = ["Checkpointer", "Run", "collect", "simulate"]


async def simulate(
    scenario: Scenario, runtime: Runtime, observers: Iterable[Observer] = (), skip: bool = False,
    checkpoints: Checkpointer | None = None,
) -> Run:  # fmt: skip
    """The whole run: every replica until its budget is spent."""
    setting = setting_of(scenario, runtime.kernels())
    session = runtime.open(scenario.parts.algorithm.own, setting)
    try:
        world = World(scenario, setting, skip)
        run = Run(world, session, checkpoints or Checkpointer(None, "", None, None), observers)
        await run.drive(_driver(run))
        return run
    finally:
        session.close()


def _driver(run: Run) -> Driver:
    """How to keep time: the closed form where it gives the same timeline, else event by event."""
    if isinstance(run.world.scenario.exchange, Gossip):
        return Gossiping(run) if gossip.suits(run.world) else gossip_by_events(run)
    if run.world.sites.every:
        return ClosedFormTiers(run) if tiers_closed_form.suits(run.world, run.learner) else tiers_by_events(run)
    if not run.world.policy.asynchronous and suits(run.world):
        return ClosedForm(run)
    made = compiled(run)
    if made is not None:
        return made
    return Asynchronous(run) if run.world.policy.asynchronous else Events(run)
