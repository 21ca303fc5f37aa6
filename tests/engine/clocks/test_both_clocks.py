"""The compiled clock returns the blocks of the SimPy clock, bit by bit."""

from __future__ import annotations

import pytest
from engine.clocks.blocks import assert_same, blocks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.clock_scenarios import scenarios
from strategies.gossip_scenarios import gossip_scenarios


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
