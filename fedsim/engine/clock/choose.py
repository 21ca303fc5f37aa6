"""The choice of the clock that simulates a scenario. Both give the same bits, so only the speed depends on it."""

from __future__ import annotations

import math
from typing import NamedTuple

from fedsim.engine.clock import Clock, Learning
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.kernels import KernelState

CLOCKS = ("auto", "simpy", "compiled")
VISIT_S = {"private": 25e-6, "asynchronous": 90e-6, "shared": 200e-6}  # a visit on SimPy at most; half of it is common
COMPILE_S = {"short": 3.0, "loop": 4.0, "shared": 6.0}  # of one core, about, by the path of the compiled clock
LOAD_S = 0.3  # its code from the disk


class Choice(NamedTuple):
    """A clock, and why it was taken."""

    clock: Clock
    reason: str
    one_timeline: bool = False  # the clock simulates one replica, whose timeline is that of all


def choose(system: System, sizes: MessageSizes, learning: Learning, name: str, saves: bool = True) -> Choice:
    """Return the clock of this name; "auto": the compiled one if it can serve and SimPy would not be done sooner.

    `saves`: whether the run has checkpoints. Where all replicas have one timeline, the clock simulates one of them.
    """
    if system.one_timeline and not sizes.depend_on_values:
        return _choose(system.of_one(), sizes, learning, name, saves)._replace(one_timeline=True)
    return _choose(system, sizes, learning, name, saves)


def _choose(system: System, sizes: MessageSizes, learning: Learning, name: str, saves: bool) -> Choice:
    if name != "simpy":
        from fedsim.engine.clock.compiled.paths import compiled_clock

        made = compiled_clock(system, sizes, learning=learning)
        if isinstance(made, str):
            if name == "compiled":
                raise InvalidInput(f'clock="compiled" cannot serve this scenario: {made}; use clock="simpy"')
            return Choice(_simpy(system, sizes, learning, saves), made)
        made.saves = saves
        if name == "compiled":
            return Choice(made, "as asked for")
        found, shared = made.found(), system.shares_links
        kind = "asynchronous" if system.policy.asynchronous else "private"
        seconds = expected_visits(system, sizes) * VISIT_S["shared" if shared else kind]
        compile_s = COMPILE_S["shared" if shared else made.path]
        worth_s = {KernelState.LOADED: 0.0, KernelState.CACHED: LOAD_S, KernelState.MISSING: compile_s}[found]
        if seconds >= worth_s:
            return Choice(made, "every part has columns")
        return Choice(_simpy(system, sizes, learning, saves), f"a short run, and the compiled code is {found.value}")
    return Choice(_simpy(system, sizes, learning, saves), "as asked for")


def _simpy(system: System, sizes: MessageSizes, learning: Learning, saves: bool) -> Clock:
    from fedsim.engine.clock.simpy import SimpyClock

    return SimpyClock(system, sizes, learning, saves)


def expected_visits(system: System, sizes: MessageSizes) -> float:
    """Return about how many visits a run has; inf where that is not known beforehand."""
    budget, sites, each = system.budget, system.sites, system.visits_a_round
    up, down, between = (sizes.reply or 0) * each, sizes.broadcast * each, 0.0  # bits of a round
    if system.gossip is not None:
        up, down, between = 0, 0, float((sizes.reply or 0) * len(system.gossip.sender))
    elif sites.every:
        between = sites.count * (sizes.to_cloud + sizes.from_cloud) / sites.every
    rounds = math.inf if budget.rounds is None else float(budget.rounds)
    for limit, bits in (
        (budget.uplink_bits, up), (budget.downlink_bits, down), (budget.backhaul_bits, between),
        (budget.total_bits, up + down + between),
    ):  # fmt: skip
        if limit is not None and bits:
            rounds = min(rounds, limit / bits + 1)
    return rounds * each * len(system.replicas)
