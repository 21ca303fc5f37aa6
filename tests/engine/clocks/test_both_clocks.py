"""The compiled clock returns the blocks of the SimPy clock, bit by bit."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from engine.clocks.timelines import simpy_clock, system_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.clock_scenarios import scenarios
from strategies.gossip_scenarios import gossip_scenarios

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


def agree(scenario, sizes, lengths):
    """All clocks that can serve a scenario return the same blocks, or the same refusal."""
    expected, served = blocks_of(scenario, sizes, "simpy", lengths), []
    for path in ("loop", "short"):
        found = blocks_of(scenario, sizes, path, lengths)
        if isinstance(found, str) and not found.startswith("refused"):
            continue
        served.append(path)
        if isinstance(expected, str) or isinstance(found, str):
            assert found == expected
        else:
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                assert_same(a, b)
    assert "loop" in served


LENGTHS = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(scenarios(tiers=False), LENGTHS)
def test_stars_have_the_same_bits_on_every_clock(drawn, lengths):
    agree(*drawn, lengths)


@settings(max_examples=70, deadline=None)
@given(scenarios(tiers=True), LENGTHS)
def test_tiers_have_the_same_bits_on_every_clock(drawn, lengths):
    agree(*drawn, lengths)


@settings(max_examples=60, deadline=None)
@given(gossip_scenarios(), LENGTHS)
def test_gossip_has_the_same_bits_on_every_clock(drawn, lengths):
    agree(*drawn, lengths)


@settings(max_examples=70, deadline=None)
@given(scenarios(tiers=False, asynchronous=True), LENGTHS)
def test_asynchronous_clients_have_the_same_bits_on_every_clock(drawn, lengths):
    agree(*drawn, lengths)


@pytest.mark.soak
@settings(max_examples=10_000, deadline=None)
@given(
    st.sampled_from([(False, False), (True, False), (False, True)]).flatmap(lambda kind: scenarios(*kind))
    | gossip_scenarios(),
    LENGTHS,
)
def test_ten_thousand_scenarios_have_the_same_bits_on_every_clock(drawn, lengths):
    agree(*drawn, lengths)
