"""The bits of many small scenarios are those that were pinned; whoever changes one must mean it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden_scenarios import FILE, ON_RAY, RESUMED, SCENARIOS, digest, environment, resumed

import fedsim as fs
from fedsim.old_engine import always_compiled

PINNED = json.loads(FILE.read_text())
SAME_MACHINE = PINNED["environment"] == environment()


def agrees(result, name):
    """Every digest where versions and processor are those of the file; elsewhere the figures, to rounding."""
    found, pinned = digest(result), PINNED["scenarios"][name]
    if SAME_MACHINE:
        assert found == pinned
    assert np.allclose(found["figures"], pinned["figures"], rtol=1e-6)


def test_at_least_sixty_scenarios_are_pinned():
    assert set(PINNED["scenarios"]) == set(SCENARIOS)
    assert len(SCENARIOS) >= 60


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_has_the_pinned_bits(name):
    agrees(fs.run(SCENARIOS[name]), name)


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_has_the_pinned_bits(name):
    agrees(resumed(SCENARIOS[name]), name)


def test_threads_and_chunks_have_the_pinned_bits():
    for name in ("FALD, softmax", "QLSDPlusPlus", "tree: first"):
        agrees(fs.run(SCENARIOS[name], runtime=fs.Inline(threads=2, chunk=3)), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_RAY)
def test_hosts_have_the_pinned_bits(name):
    agrees(fs.run(SCENARIOS[name], runtime=fs.Ray(hosts=2)), name)


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.devices is not None and not s.record.events])
def test_the_compiled_clock_has_the_pinned_bits(name):
    with always_compiled():
        agrees(fs.run(SCENARIOS[name]), name)
