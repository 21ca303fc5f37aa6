"""The compiled clock returns the blocks of the SimPy clock, bit by bit."""

from __future__ import annotations

import pytest
from engine.clocks.blocks import assert_same, blocks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies.clock_scenarios import scenarios
from strategies.gossip_scenarios import gossip_scenarios

import fedsim as fs
from fedsim.engine.system import MessageSizes


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


@pytest.mark.parametrize("bits", [2586, 2**53 + 1])
def test_a_cut_message_has_sent_the_same_bits_as_a_flow_and_on_a_link_of_its_own(bits):
    scenario = fs.Scenario(
        problem=fs.problems.Payload(1, parameters=1),
        algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
        network=fs.topologies.star(1, uplink_bps=64, downlink_bps=64, latency_s=0.01, loss=0.5),
        participation=fs.participation.deadline(1.0, of=1),
        budget=fs.Budget(rounds=3),
        broadcast_to="all",  # flows on SimPy and in the loop, not on the short path
    )
    agree(scenario, MessageSizes(bits, bits, bits, bits, bits), [3])
    agree(scenario, MessageSizes(0, bits, bits, bits, bits), [3])


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
