"""Timelines of gossip equal an independent simulation: shared links, latency, dropout, availability, policies."""

from __future__ import annotations

import pytest
from engine.clocks.gossip_cases import compared, random_case


@pytest.mark.parametrize("shape", ["private", "shared", "hub"])
def test_timelines_of_gossip_are_those_of_an_independent_simulation(shape: str) -> None:
    assert sum(compared(*random_case(seed, shape)) for seed in range(40)) > 500
