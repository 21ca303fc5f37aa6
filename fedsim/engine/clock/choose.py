"""Which clock simulates a scenario. Both give the same bits, so this decides how long a run takes, nothing else."""

from __future__ import annotations

from fedsim.engine.clock import Clock, Learning
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput, quoted

CLOCKS = ("auto", "simpy", "compiled")


def choose(system: System, sizes: MessageSizes, learning: Learning, name: str) -> Clock:
    """Return the clock of this name; "auto" is SimPy as long as no other clock serves star and tiers."""
    if name not in CLOCKS:
        raise InvalidInput(f"clock={quoted(name)}: choose 'auto', 'simpy' or 'compiled'")
    if name == "compiled":
        raise InvalidInput('clock="compiled": it serves no scenario yet; use clock="simpy"')
    from fedsim.engine.clock.simpy import SimpyClock

    return SimpyClock(system, sizes, learning)
