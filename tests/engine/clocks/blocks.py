"""Blocks of rounds from any clock, and that two are equal."""

from __future__ import annotations

import asyncio

import numpy as np
from engine.clocks.timelines import simpy_clock, system_of

import fedsim as fs
from fedsim.engine.clock.compiled.paths import compiled_clock

ROWS = ("lengths", "stopped_by", "opened_s", "closed_s", "selected", "unselected_bits", "backhaul_bits", "offsets")


def clock_of(scenario, sizes, path):
    if path == "simpy":
        return simpy_clock(scenario, sizes)
    return compiled_clock(system_of(scenario), sizes, path)


def blocks_of(scenario, sizes, path, lengths):
    """The blocks of so many rounds each, or what was refused."""
    clock, made = clock_of(scenario, sizes, path), []
    if isinstance(clock, str):
        return clock

    async def run():
        active = np.arange(len(scenario.replica_numbers))
        for rounds in lengths:
            block = await clock.next(active, rounds)
            made.append(block.by_replica())
            active = active[block.lengths == rounds]
            if not len(active):
                break

    try:
        asyncio.run(run())
    except fs.errors.InvalidInput as error:
        return f"refused: {error}"
    return made


def assert_same(left, right):
    """Two blocks are equal, bit by bit."""
    for name in (*ROWS, "replicas", "oldest_version"):
        a, b = np.asarray(getattr(left, name)), np.asarray(getattr(right, name))
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes()), f"{name}: {a}, {b}"
    for name, a, b in zip(left.visits._fields, left.visits, right.visits, strict=True):
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), f"{name}: {a}, {b}"
    assert (left.starts is None) == (right.starts is None)
    for name, a, b in zip(left.starts._fields, left.starts, right.starts, strict=True) if left.starts else ():
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), f"starts.{name}: {a}, {b}"
    assert (left.cloud is None) == (right.cloud is None)
    for name, a, b in zip(left.cloud._fields, left.cloud, right.cloud, strict=True) if left.cloud else ():
        assert a.tobytes() == b.tobytes(), f"{name}: {a}, {b}"
    assert (left.gossip is None) == (right.gossip is None)
    for name, a, b in zip(left.gossip._fields, left.gossip, right.gossip, strict=True) if left.gossip else ():
        assert (a.shape, a.dtype, a.tobytes()) == (b.shape, b.dtype, b.tobytes()), f"{name}: {a}, {b}"
