"""Run a scenario on a virtual clock: two clocks, one rulebook, one way for a round to count.

run            the loop: next block of rounds from the clock, commit it, checkpoint
commit         the only way a round counts: budget, privacy ledger, aggregate, totals, record, observers
rounds         values: VisitOutcomes, RoundBlock
learner        models, client memory, replies
broadcasts     the models that asynchronous clients started from
system         what clocks may read: parts, routes, keyed draws
view           the argument of a policy
sites          servers, edges or gossiping clients of a replica, and the routes between them
recorder       samples and rows of `rounds`
evaluation     metrics after a round
events         rows of `events`
checkpoint     when to save, what is saved, resume
checks         refusals before the first round
memory_needed  bytes that a run needs
message_sizes  bits of replies
initial_state  models and client memory before round 1
manifest       the manifest of a finished run
clock/         the protocol of a clock, and which one: SimPy, compiled
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedsim.engine.checkpoint import Checkpointer
from fedsim.engine.checks import check_run, check_steps
from fedsim.engine.clock.choose import choose
from fedsim.engine.learner import Learner
from fedsim.engine.manifest import collect
from fedsim.engine.run import Run
from fedsim.engine.system import System, setting_of
from fedsim.protocols import Observer, Runtime

if TYPE_CHECKING:
    from fedsim.scenario import Scenario

__all__ = ["Checkpointer", "Run", "collect", "simulate"]


async def simulate(
    scenario: Scenario, runtime: Runtime, observers: Iterable[Observer] = (), timing_only: bool = False,
    checkpoints: Checkpointer | None = None, clock: str = "auto",
) -> Run:  # fmt: skip
    """Run every replica until its budget is spent."""
    setting = setting_of(scenario, runtime.kernels())
    session = runtime.open(scenario.parts.algorithm.wrapped, setting)
    try:
        system = System(scenario, setting, timing_only)
        learner = Learner(system, session)
        check_steps(system)
        check_run(system, learner.sizes)
        checkpoints = checkpoints or Checkpointer(None, "", None, None)
        run = Run(system, learner, checkpoints, observers)
        await run.drive(*choose(system, learner.sizes, learner, clock, saves=checkpoints.files is not None))
        if not timing_only:
            run.hosts = await learner.session.describe_hosts()
        return run
    finally:
        session.close()
