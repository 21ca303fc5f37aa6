"""Timelines of a scenario from a clock alone, without learning."""

from __future__ import annotations

import asyncio

import numpy as np

import fedsim as fs
from fedsim.engine.clock.simpy import SimpyClock
from fedsim.engine.rounds import RoundBlock
from fedsim.engine.system import MessageSizes, System, setting_of


class NoLearning:
    """What a clock asks where virtual time does not depend on values: nothing."""

    async def bits(self, position, client, visit, round):
        raise AssertionError("no reply's size depends on values here")

    def observed(self, position, clients):
        return np.full(len(clients), np.nan)


def simpy_clock(scenario: fs.Scenario, sizes: MessageSizes, learning=None) -> SimpyClock:
    return SimpyClock(system_of(scenario), sizes, learning or NoLearning())


def system_of(scenario: fs.Scenario) -> System:
    return System(scenario, setting_of(scenario, fs.Inline(threads=1).kernels()), timing_only=True)


def block_of(scenario: fs.Scenario, rounds: int, sizes: MessageSizes, clock=simpy_clock) -> RoundBlock:
    """Return the first rounds of all replicas."""
    return asyncio.run(clock(scenario, sizes).next(np.arange(len(scenario.replica_numbers)), rounds))
